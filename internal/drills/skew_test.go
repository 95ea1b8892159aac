// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/processtest"
)

// envClock is the variable by which a replica's clock is set, in seconds ahead.
const envClock = "TIERLIMIT_CLOCK_OFFSET"

// The clock of a program in Go is set by its runtime: it is statically linked, so that nothing can be
// preloaded. Timers go by the monotonic clock and are not affected.
const (
	clockCall  = "\treturn time_now()\n}"
	clockSkew  = "\tsec, nsec, mono = time_now(); return sec + clockOffset(), nsec, mono\n}"
	clockAhead = `package runtime

func clockOffset() (seconds int64) {
	value := gogetenv("` + envClock + `")
	for i := range len(value) {
		if value[i] != '-' {
			seconds = 10*seconds + int64(value[i]-'0')
		}
	}
	if value != "" && value[0] == '-' {
		return -seconds
	}
	return seconds
}
`
)

// buildSkewed builds the program with a clock that envClock sets. The first time all packages are
// compiled for it, which takes minutes.
func buildSkewed(t *testing.T) string {
	t.Helper()
	output, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	folder := filepath.Join(strings.TrimSpace(string(output)), "src", "runtime")
	original := filepath.Join(folder, "time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Count(source, []byte(clockCall)) != 1 {
		t.Fatalf("%s has not exactly one %q any more: find the new place in which the runtime tells the time", original, clockCall)
	}
	dir := t.TempDir()
	replace := map[string]string{}
	for name, content := range map[string][]byte{
		"time.go":     bytes.Replace(source, []byte(clockCall), []byte(clockSkew), 1),
		"zz_clock.go": []byte(clockAhead),
	} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, content, 0o600); err != nil {
			t.Fatal(err)
		}
		replace[filepath.Join(folder, name)] = file
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	skewed, err := processtest.Build(dir, "tierlimit-skewed", "-overlay", file)
	if err != nil {
		t.Fatal(err)
	}
	return skewed
}
