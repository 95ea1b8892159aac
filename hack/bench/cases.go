// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import "github.com/tierlimit/tierlimit/hack/bench/contenders"

// contender is a server under test. To try another one, or another flag, add a line.
type contender struct {
	// name is what tables call it, and what -only is matched with.
	name string
	// engine is a name in the package contenders, served by this program. "" is the binary.
	engine string
	// flags are given to the binary in addition. Example: "--deny-memory=0".
	flags []string
	// needs is a flag without which the contender is left out; "" is none. Example: "deny-memory".
	needs string
	// path is what it is asked: {tier} and {user} are replaced.
	path string
	// hot is path for the case in which everybody shares one budget.
	hot string
}

const (
	plainPath = "/check?tier={tier}&user={user}"
	hotPath   = "/check?tier={tier}&user=everybody-{cell}"
)

// everybody are all contenders; the tables pick from them by name.
var everybody = []contender{
	{name: "floor", engine: "floor", path: plainPath},
	{name: "tierlimit", path: plainPath, hot: hotPath},
	{name: "tierlimit, deny memory off", flags: []string{"--deny-memory=0"}, needs: "deny-memory", path: plainPath, hot: hotPath},
	{name: "pkg/limiter", engine: "limiter", path: plainPath, hot: hotPath},
	{name: "naive", engine: "naive", path: plainPath, hot: hotPath},
	{name: "redis_rate", engine: "redis_rate", path: plainPath},
	{name: "ulule", engine: "ulule", path: plainPath},
	{name: "script, a connection a call", engine: "script", path: plainPath},
	{name: "script, AutoPipeline", engine: "script-pipelined", path: plainPath},
	{name: "script, AutoPipeline full duplex", engine: "script-pipelined-full", path: plainPath},
}

// group is a table of rates: contenders that are loaded in the same way, in turns.
type group struct {
	// name is what -only is matched with.
	name  string
	title string
	about string
	// contenders are names in everybody, in the order of the table.
	contenders []string
	// tiers are taken in turn by the users.
	tiers []string
	// base is the contender that ratios relate to, beside the floor, and baseTitle what columns call it.
	base, baseTitle string
	// close asks for a new connection for each check, hot for the path of the hot key.
	close, hot bool
}

var compared = []string{"floor", "tierlimit", "tierlimit, deny memory off", "pkg/limiter", "naive", "redis_rate", "ulule"}

var groups = []group{
	{
		name: "admitted", title: "Admitted", contenders: compared, base: "naive", baseTitle: "naive",
		about: "Every check is admitted by a minute and a day.",
		tiers: []string{contenders.Admitted},
	},
	{
		name: "rejected", title: "Rejected", contenders: compared, base: "naive", baseTitle: "naive",
		about: "Every user has used up the minute before, and every check is rejected.",
		tiers: []string{contenders.Rejected},
	},
	{
		name: "mixed", title: "Mixed", contenders: compared, base: "naive", baseTitle: "naive",
		about: "Every other user has used up the minute, so that half of the checks are rejected.",
		tiers: []string{contenders.Admitted, contenders.Rejected},
	},
	{
		name: "connection", title: "A new connection for each check", base: "naive", baseTitle: "naive", close: true,
		about:      "The pattern of ingress-nginx, whose `auth_request` keeps no connection. Admitted.",
		contenders: []string{"floor", "tierlimit", "naive"},
		tiers:      []string{contenders.Admitted},
	},
	{
		name: "hot", title: "A hot key", base: "naive", baseTitle: "naive", hot: true,
		about:      "All checks are of one budget, whose log grows with each of them. Admitted.",
		contenders: []string{"tierlimit", "tierlimit, deny memory off", "pkg/limiter", "naive"},
		tiers:      []string{contenders.Admitted},
	},
	{
		name: "strategies", title: "Client strategies", base: "script, a connection a call", baseTitle: "the first",
		about: "Ways to call the same script (`pkg/limiter/sliding_window.lua`), each in the same handler, and " +
			"`pkg/limiter` as it is. Admitted. AutoPipeline is go-redis's, by `Submit` and `WaitContext`; full duplex " +
			"has a flush delay of 250 us.",
		contenders: []string{"script, a connection a call", "script, AutoPipeline", "script, AutoPipeline full duplex", "pkg/limiter"},
		tiers:      []string{contenders.Admitted},
	},
}
