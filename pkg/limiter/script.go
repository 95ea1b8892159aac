// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"crypto/sha1" //nolint:gosec // it is how Redis names scripts
	"embed"
	"encoding/hex"
)

//go:embed *.lua
var sources embed.FS

var (
	slidingWindow = newScript("sliding_window.lua")
	settle        = newScript("settle.lua")
	grantScript   = newScript("grant.lua")
	inspectScript = newScript("inspect.lua")
	resetScript   = newScript("reset.lua")
	timesScript   = newScript("times.lua")
)

// script is a Lua script, called by the SHA-1 of its source (EVALSHA) or, where the server may not
// have it, with its source (EVAL), which also loads it.
type script struct {
	source string
	sha    string
}

func newScript(file string) *script {
	source, err := sources.ReadFile(file)
	if err != nil {
		panic(err)
	}
	sum := sha1.Sum(source) //nolint:gosec // it is how Redis names scripts
	return &script{source: string(source), sha: hex.EncodeToString(sum[:])}
}

// call is one execution of a script.
type call struct {
	script *script
	keys   []string
	args   []any
	// own is for how many of the windows, the first ones, the grant is; "" is all.
	own string
	// again is true when the call may have been executed before.
	again bool
	now   string // the time for the script; "" is Redis's own
	lease string // in microseconds, where there are reservations; "" is none
	// reserve makes reservations, not charges.
	reserve bool
}

// command returns the command to send. With load the source goes along.
func (c *call) command(load bool) []any {
	words := make([]any, 0, 8+len(c.keys)+len(c.args))
	if load {
		words = append(words, "eval", c.script.source)
	} else {
		words = append(words, "evalsha", c.script.sha)
	}
	words = append(words, len(c.keys))
	for _, key := range c.keys {
		words = append(words, key)
	}
	words = append(words, c.args...)
	// Trailing arguments without a value are left out: each costs Redis more than a look at a log.
	required := len(words)
	words = append(words, c.own, flagged(c.again), c.now, c.lease, flagged(c.reserve))
	for len(words) > required && words[len(words)-1] == "" {
		words = words[:len(words)-1]
	}
	return words
}

func flagged(set bool) string {
	if set {
		return "1"
	}
	return ""
}
