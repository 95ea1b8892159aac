// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/tierlimit/tierlimit/hack/bench/contenders"
)

// results is everything that a run has measured. What was left out is empty.
type results struct {
	bench        *bench
	started      time.Time
	version      string // of the binary. Example: "tierlimit v1.0.0"
	redisVersion string

	groups          []groupResult
	exact           []exactness
	contenderMemory []footprint
	ours, uuids     []footprint
	stalls          []stall
	costs           *costs
	process         *processCosts
	frozen          *frozen
	alone           []lone
}

// markdown is the whole report.
func (r *results) markdown() string {
	var w strings.Builder
	r.conditions(&w)
	r.glance(&w)
	for _, g := range r.groups {
		g.markdown(&w)
	}
	r.exactness(&w)
	r.footprints(&w)
	r.rest(&w)
	return w.String()
}

// table writes a table. The first column is text, the others are aligned to the right.
func table(w *strings.Builder, head []string, rows [][]string) {
	fmt.Fprintf(w, "| %s |\n|---|%s\n", strings.Join(head, " | "), strings.Repeat("---:|", len(head)-1))
	for _, row := range rows {
		fmt.Fprintf(w, "| %s |\n", strings.Join(row, " | "))
	}
	w.WriteString("\n")
}

// number writes a figure with so many decimals, and a dash when there is none.
func number(value float64, decimals int) string {
	if math.IsNaN(value) || math.IsInf(value, 0) {
		return "-"
	}
	return grouped(fmt.Sprintf("%.*f", decimals, value))
}

// grouped puts commas between the thousands of a number without decimals.
func grouped(digits string) string {
	if strings.Contains(digits, ".") {
		return digits
	}
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func percent(share float64) string { return number(100*share, 0) + " %" }

// glance is one line for each contender, of what the tables below say in full.
func (r *results) glance(w *strings.Builder) {
	admitted, rejected, offender, mixed := r.group("admitted"), r.group("rejected"), r.group("offender"), r.group("mixed")
	if admitted == nil || rejected == nil || offender == nil || mixed == nil {
		return
	}
	fmt.Fprintf(w, "![Checks per second and over-admission of each contender](performance.svg)\n\n### At a glance\n\nChecks a second (and as a share of the floor's), CPU on the admitted path, memory of a user after 5 "+
		"admitted requests, and by how much a limit of %d was exceeded in any stretch of its window.\n\n", burstLimit())
	var rows [][]string
	for _, a := range admitted.rows {
		line := []string{a.name}
		for _, g := range []*groupResult{admitted, rejected, offender, mixed} {
			cell := g.row(a.name)
			if cell == nil {
				line = append(line, "-")
				continue
			}
			line = append(line, fmt.Sprintf("%s (%s)", number(cell.rate(), 0), number(cell.ratio(g.row("floor")), 2)))
		}
		line = append(line, number(a.serverCPU(), 0), number(a.redisCPU(), 0), r.memoryOf(a.name), r.overOf(a.name))
		rows = append(rows, line)
	}
	table(w, []string{"", "admitted/s", "rejected/s", "rejected/s, repeat offender", "mixed/s", "server us", "Redis us", "bytes a user", "over-admitted"}, rows)
	w.WriteString("Memory and over-admission of `tierlimit` are those of `pkg/limiter`, of which it is made: its shortest window is a " +
		"minute, and the bursts need one of 2 s.\n\n")
}

func burstLimit() int { return int(contenders.Tiers[contenders.Short][0].Requests) }

func (r *results) group(name string) *groupResult {
	for i := range r.groups {
		if r.groups[i].name == name {
			return &r.groups[i]
		}
	}
	return nil
}

// madeOf is the contender that has measured something for another.
func madeOf(name string, measured string) string {
	if strings.HasPrefix(name, "tierlimit") || name == "pkg/limiter" {
		return measured
	}
	return name
}

func (r *results) memoryOf(name string) string {
	for _, f := range r.contenderMemory {
		if f.name == madeOf(name, "tierlimit") && f.requests == 5 {
			return number(f.perUser, 0)
		}
	}
	return "-"
}

// over is the over-admission of a contender, and whether it was measured.
func (r *results) over(name string) (int, bool) {
	for _, e := range r.exact {
		if e.name == madeOf(name, "pkg/limiter") {
			return e.worst, true
		}
	}
	return 0, false
}

func (r *results) overOf(name string) string {
	over, measured := r.over(name)
	if !measured {
		return "-"
	}
	return fmt.Sprintf("%d of %d", over, burstLimit())
}

// markdown writes the table of a group of rates.
func (g groupResult) markdown(w *strings.Builder) {
	fmt.Fprintf(w, "### %s\n\n%s\n\n", g.title, g.about)
	floor, base := g.row("floor"), g.row(g.base)
	head := []string{"", "checks/s", "spread", "of the floor", "of " + g.baseTitle, "p50 ms", "p99 ms", "server CPU us",
		"of the floor's", "Redis CPU us", "of " + g.baseTitle + "'s", "rejected", "errors"}
	var rows [][]string
	var marks []string
	for _, r := range g.rows {
		rejected, failed := r.shares()
		errors := "0"
		if failed > 0 {
			errors = fmt.Sprintf("%.2f %%", 100*failed)
		}
		if failed > tolerated {
			errors = "**" + errors + "**"
			marks = append(marks, r.name)
		}
		rows = append(rows, []string{
			r.name, number(r.rate(), 0), percent(r.spread()), number(r.ratio(floor), 2), number(r.ratio(base), 2),
			number(r.p50(), 2), number(r.p99(), 2), number(r.serverCPU(), 0), number(quotient(r, floor, (*row).serverCPU), 2),
			number(r.redisCPU(), 0), number(quotient(r, base, (*row).redisCPU), 2), percent(rejected), errors,
		})
	}
	if floor == nil {
		head, rows = without(head, rows, 3, 8)
	}
	table(w, head, rows)
	if len(marks) > 0 {
		fmt.Fprintf(w, "**Not to be believed, because more than %.1f %% of the answers were errors: %s.**\n\n", 100*tolerated, strings.Join(marks, ", "))
	}
}

// quotient relates a figure of a row to that of another.
func quotient(r, other *row, figure func(*row) float64) float64 {
	if other == nil {
		return math.NaN()
	}
	return figure(r) / figure(other)
}

// without drops columns.
func without(head []string, rows [][]string, columns ...int) ([]string, [][]string) {
	drop := func(cells []string) []string {
		var kept []string
		for i, cell := range cells {
			if !slices.Contains(columns, i) {
				kept = append(kept, cell)
			}
		}
		return kept
	}
	for i := range rows {
		rows[i] = drop(rows[i])
	}
	return drop(head), rows
}
