// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package trouble

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"github.com/google/go-cmp/cmp"
)

func TestTroubleIsAFewLines(t *testing.T) {
	failure := errors.New("no answer")
	steps := []struct {
		reason  string
		advance time.Duration
		err     error
		logs    string // what the line has; "" is no line
	}{
		{"all is well", 0, nil, ""},
		{"it begins", 0, failure, `"failed"=1`},
		{"it goes on", time.Second, failure, ""},
		{"it goes on for long", 30 * time.Second, failure, `"failed"=3`},
		{"a success between failures", time.Second, nil, ""},
		{"and another failure", time.Second, failure, ""},
		{"nothing but successes, not for long enough", 4 * time.Second, nil, ""},
		{"now it is over", time.Second, nil, `"works again" "failed"=4`},
		{"which is said once", time.Hour, nil, ""},
		{"it begins anew", 0, failure, `"failed"=1`},
	}
	now := time.Date(2026, time.November, 30, 12, 0, 0, 0, time.UTC)
	var lines []string
	trouble := Trouble{
		Log:    funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}),
		Begins: "does not work", Ends: "works again", Counts: "failed",
		Reminder: 30 * time.Second, Over: 5 * time.Second,
		Now: func() time.Time { return now },
	}
	for _, step := range steps {
		now = now.Add(step.advance)
		lines = nil
		trouble.Observe(step.err)
		switch {
		case step.logs == "" && len(lines) > 0:
			t.Errorf("%s: logged %q", step.reason, lines)
		case step.logs != "" && (len(lines) != 1 || !strings.Contains(lines[0], step.logs)):
			t.Errorf("%s: logged %q, want one line with %s", step.reason, lines, step.logs)
		}
	}
}

func TestFirstSuccessEndsItWithoutATime(t *testing.T) {
	lines := 0
	trouble := Trouble{Log: funcr.New(func(string, string) { lines++ }, funcr.Options{}), Reminder: time.Hour}
	for _, err := range []error{errors.New("x"), nil, errors.New("x"), errors.New("x")} {
		trouble.Observe(err)
		if trouble.Lasting() != (err != nil) {
			t.Errorf("after %v it lasts: %v", err, trouble.Lasting())
		}
	}
	if lines != 3 {
		t.Errorf("%d lines, want one for each beginning and one for the end", lines)
	}
}

func TestShortened(t *testing.T) {
	short := errors.New("short")
	if got := Shortened(short); !errors.Is(got, short) {
		t.Errorf("got another error %v", got)
	}
	got := Shortened(errors.New(strings.Repeat("a", 299) + "é and more")).Error()
	if diff := cmp.Diff(strings.Repeat("a", 299)+"...", got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}
