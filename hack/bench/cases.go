// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// contender is a server under test. To try another one, or another flag, add a line.
type contender struct {
	// name is what tables call it, and what -only is matched with.
	name string
	// engine is a name in the package contenders, served by this program. "" is the binary.
	engine string
	// flags are given to the binary in addition. Example: "--deny-memory=0".
	flags []string
	// capped asks for the group's cap of all users together.
	capped bool
}

// everybody are all contenders; the tables pick from them by name.
var everybody = []contender{
	{name: "floor", engine: "floor"},
	{name: "tierlimit"},
	{name: "tierlimit, deny memory off", flags: []string{"--deny-memory=0"}},
	{name: "tierlimit, upstream cap", capped: true},
	{name: "tierlimit, upstream cap, deny memory off", flags: []string{"--deny-memory=0"}, capped: true},
	{name: "pkg/limiter", engine: "limiter"},
	{name: "pkg/limiter, deny memory", engine: "limiter-remembering"},
	{name: "naive", engine: "naive"},
	{name: "redis_rate", engine: "redis_rate"},
	{name: "ulule", engine: "ulule"},
	{name: "script, a connection a call", engine: "script"},
	{name: "script, AutoPipeline", engine: "script-pipelined"},
	{name: "script, AutoPipeline full duplex", engine: "script-pipelined-full"},
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
	// upstream is the tier that caps all users together, for contenders that are capped.
	upstream string
	// users are how many ask; 0 is -users.
	users int
	// base is the contender that ratios relate to, beside the floor, and baseTitle what columns call it.
	base, baseTitle string
	// close asks for a new connection for each check.
	close bool
}

var compared = []string{"floor", "tierlimit", "tierlimit, deny memory off", "pkg/limiter", "naive", "redis_rate", "ulule"}

// offenders are few enough that each asks again within milliseconds.
const offenders = 200

var groups = []group{
	{
		name: "admitted", title: "Admitted", contenders: compared, base: "naive", baseTitle: "naive",
		about: "Every check is admitted by a minute and a day.",
		tiers: []string{contenders.Admitted},
	},
	{
		name: "rejected", title: "Rejected", contenders: compared, base: "naive", baseTitle: "naive",
		about: "Every user has used up the minute before, and every check is rejected. At fewer than 40,000 checks a second each " +
			"of 10,000 users asks again after more than the 250 ms for which `tierlimit` remembers a rejection: Redis is asked.",
		tiers: []string{contenders.Rejected},
	},
	{
		name: "offender", title: "Rejected, repeat offender", base: "naive", baseTitle: "naive",
		about: "The same with 200 users, each of whom asks again and again, some 100 times a second: a client that ignores " +
			"`Retry-After`. `tierlimit` answers them from memory.",
		contenders: slices.Insert(slices.Clone(compared), 4, "pkg/limiter, deny memory"),
		tiers:      []string{contenders.Rejected}, users: offenders,
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
		name: "hot", title: "A hot key: one user", base: "naive", baseTitle: "naive", users: 1,
		about:      "All checks are of one user, whose log grows with each of them. Admitted.",
		contenders: []string{"tierlimit", "pkg/limiter", "naive"},
		tiers:      []string{contenders.Admitted},
	},
	{
		name: "cap", title: "A hot key: the cap of an upstream", base: "tierlimit", baseTitle: "tierlimit without",
		about: "All users share the cap of one upstream (`upstream=`), a minute and a day too, beside the budgets of their own. " +
			"Each check is charged to four logs, two of which are everybody's and grow with each of them. Admitted.",
		contenders: []string{"floor", "tierlimit", "tierlimit, upstream cap"},
		tiers:      []string{contenders.Admitted}, upstream: contenders.Admitted,
	},
	{
		name: "cap-full", title: "Rejected by the cap of an upstream", base: "tierlimit", baseTitle: "tierlimit without",
		about: "The cap is used up, and every user has room: each check is rejected by the cap. `tierlimit` without a cap admits; it " +
			"is there to compare with.",
		contenders: []string{"floor", "tierlimit", "tierlimit, upstream cap", "tierlimit, upstream cap, deny memory off"},
		tiers:      []string{contenders.Admitted}, upstream: contenders.Rejected,
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
