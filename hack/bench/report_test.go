// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
	"time"
)

func TestBetween(t *testing.T) {
	page := "# Title\n\nBefore.\n\n" + beginMark + "\nold\n" + endMark + "\n\nAfter.\n"
	want := "# Title\n\nBefore.\n\n" + beginMark + "\n\nnew\n\n" + endMark + "\n\nAfter.\n"
	first, err := between(page, "new\n")
	if err != nil || first != want {
		t.Errorf("got %v:\n%s\nwant\n%s", err, first, want)
	}
	if second, err := between(first, "new\n"); err != nil || second != want {
		t.Errorf("a second time it becomes %v:\n%s", err, second)
	}
	for _, broken := range []string{"no marks", beginMark, endMark + beginMark} {
		if got, err := between(broken, "new"); err == nil {
			t.Errorf("%q became %q", broken, got)
		}
	}
}

func TestNumber(t *testing.T) {
	cases := map[string]struct {
		value    float64
		decimals int
	}{
		"0": {0, 0}, "999": {999, 0}, "1,000": {999.6, 0}, "29,800": {29_800, 0}, "1,234,567": {1_234_567, 0},
		"-1,000": {-1000, 0}, "-100": {-100, 0}, "12345.68": {12_345.678, 2},
	}
	for want, tc := range cases {
		if got := number(tc.value, tc.decimals); got != want {
			t.Errorf("number(%v, %d) = %q, want %q", tc.value, tc.decimals, got, want)
		}
	}
}

// cells are the samples of a contender with a rate for each round.
func cells(name string, failed int64, rates ...int64) *row {
	r := &row{name: name}
	for _, rate := range rates {
		r.samples = append(r.samples, sample{
			loaded:    loaded{Requests: rate, DurationUS: 1_000_000, P50US: 1500, P99US: 9000, SocketErrors: failed},
			counts:    counts{admitted: rate},
			serverCPU: time.Second, redisCPU: 500 * time.Millisecond,
		})
	}
	return r
}

func TestGroupTable(t *testing.T) {
	g := groupResult{group: groups[0], rows: []*row{cells("floor", 0, 20_000, 40_000, 20_000), cells("tierlimit", 30, 10_000, 10_000, 15_000), cells("naive", 0, 5_000, 5_000, 6_000)}}
	var w strings.Builder
	g.markdown(&w)
	for _, want := range []string{
		// The ratios to the floor are 0.5, 0.25 and 0.75; the CPU is 3 s for 35,000 checks.
		"| tierlimit | 10,000 | 50 % | 0.50 | 2.00 | 1.50 | 9.00 | 86 | 2.29 | 43 | 0.46 | 0 % | **0.26 %** |",
		"| naive | 5,000 | 20 % | 0.25 | 1.00 |",
		"Not to be believed, because more than 0.1 % of the answers were errors: tierlimit.",
	} {
		if !strings.Contains(w.String(), want) {
			t.Errorf("%q is missing in\n%s", want, w.String())
		}
	}
}

// The whole report can be made of any part of the results, since -only leaves out others.
func TestReportOfParts(t *testing.T) {
	b := &bench{root: t.TempDir(), rounds: 1}
	all := &results{
		bench: b,
		groups: []groupResult{
			{groups[0], []*row{cells("floor", 0, 30_000), cells("tierlimit", 0, 12_000)}}, {groups[1], []*row{cells("tierlimit", 0, 28_000)}},
			{groups[2], []*row{cells("tierlimit", 0, 29_000)}}, {groups[3], []*row{cells("tierlimit", 0, 15_000)}},
		},
		exact:  []exactness{{name: "pkg/limiter"}, {name: "ulule", worst: 9}},
		ours:   []footprint{{requests: 5, logs: 1, perUser: 200, usage: 170, encoding: "listpack"}},
		uuids:  []footprint{{requests: 5, logs: 1, perUser: 400, usage: 350, encoding: "listpack"}},
		stalls: []stall{{what: "a call", typical: 300, worst: 400}, {typical: 50, entries: 60}, {typical: 55, entries: 100_000}},
		costs: &costs{counter: "valgrind", kinds: []instructionCount{
			{what: "PING", total: 1000, commands: 1}, {what: "script", total: 9000, commands: 1, naive: "naive"}, {what: "naive", total: 12_000, commands: 2},
		}},
		process: &processCosts{[]allocation{{"in memory", 12, 900, 1.5}}, []share{{"go-redis", 0.25}}},
		frozen:  &frozen{first: []float64{50, 52}, then: []float64{1, 3, 50}, statuses: map[int]int{503: 64}},
		alone:   []lone{{"pkg/limiter", 120}, {"plain", 100}},
	}
	all.contenderMemory = []footprint{{name: "tierlimit", requests: 5, logs: 2, perUser: 365}}
	report := all.markdown()
	for _, want := range []string{"| tierlimit | 12,000 (0.40) | 28,000 (-) | 29,000 (-) | 15,000 (-) |", "| 365 | 0 of 10 |", "| script | 9,000 | 8,000 | 0.800 |", "64 times 503", "ratio of 1.20",
		"| 2 | 52.0 | 51.00 | 51.00 |", "| 3 | 50.0 | 18.00 | 3.00 |", "takes 1.10 times as long as on one of 60", "counted with valgrind",
		"| in memory | 12.0 | 900 | 1.50 |", "| go-redis | 25.0 % |",
	} {
		if !strings.Contains(report, want) {
			t.Errorf("%q is missing in\n%s", want, report)
		}
	}
	if report := (&results{bench: b}).markdown(); strings.Contains(report, "###") {
		t.Errorf("nothing was measured, but the report says\n%s", report)
	}
}

func TestDraw(t *testing.T) {
	picture, err := draw([]bar{{"floor", 30_000, 30_000, 0, false}, {"a & b", 12_000, 28_000, 0, true}, {"ulule", 8_000, 9_000, 9, true}})
	if err != nil {
		t.Fatal(err)
	}
	decoder := xml.NewDecoder(strings.NewReader(picture))
	for range 10_000 {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("%v in\n%s", err, picture)
		}
	}
	for _, want := range []string{"12,000", "28,000", "a &amp; b", `width="150" height="13"`} {
		if !strings.Contains(picture, want) {
			t.Errorf("%q is missing in\n%s", want, picture)
		}
	}
	if _, err := draw(nil); err != nil {
		t.Errorf("nothing to draw: %v", err)
	}
}
