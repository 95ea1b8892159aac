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

func (c *call) evalSha() []any { return c.command("evalsha", c.script.sha) }

func (c *call) eval() []any { return c.command("eval", c.script.source) }

func (c *call) command(name, script string) []any {
	words := make([]any, 0, 3+len(c.keys)+len(c.args))
	words = append(words, name, script, len(c.keys))
	for _, key := range c.keys {
		words = append(words, key)
	}
	return append(words, c.args...)
}
