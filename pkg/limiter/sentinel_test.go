// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"errors"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// TestMasterThatSentinelDoesNotKnow: nobody has decided, which is not an unexpected reply.
func TestMasterThatSentinelDoesNotKnow(t *testing.T) {
	listener := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	address := listener.Addr().String()
	_ = listener.Close()
	_, port, _ := net.SplitHostPort(address)
	config := filepath.Join(t.TempDir(), "sentinel.conf")
	if err := os.WriteFile(config, []byte("bind 127.0.0.1\nport "+port+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("redis-server", config, "--sentinel")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	sentinel := redis.NewClient(&redis.Options{Addr: address})
	defer sentinel.Close()
	eventually(t, "Sentinel answers", func() bool { return sentinel.Ping(t.Context()).Err() == nil })

	client := must(NewClient("redis+sentinel://:hunter@" + address + "?master=mymaster"))(t)
	defer client.Close()
	err := ask(t, client)
	if err == nil || errors.Is(err, ErrReply) || !strings.Contains(err.Error(), "the Sentinels know no master of the name in the URL") {
		t.Errorf("got %v, want an error that says so and is not ErrReply", err)
	}
}
