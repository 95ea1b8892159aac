// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package desk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"
)

// Formats of -o. The first is that without it.
const (
	formatTable = ""
	formatWide  = "wide"
	formatJSON  = "json"
	formatYAML  = "yaml"
)

// output is the flag -o.
type output struct {
	format  string
	formats []string
}

func (o *output) add(c *cobra.Command, formats ...string) {
	o.formats = formats
	c.Flags().StringVarP(&o.format, "output", "o", formatTable, "`FORMAT` of the output: "+strings.Join(formats, ", "))
}

func (o *output) validate() error {
	if o.format != formatTable && !slices.Contains(o.formats, o.format) {
		return usagef("--output is %.40q: use %s", o.format, strings.Join(o.formats, ", "))
	}
	return nil
}

// raw returns whether the answer is printed as it is.
func (o *output) raw() bool { return o.format == formatJSON || o.format == formatYAML }

// print prints JSON as JSON or YAML. What this client does not know of a newer API is printed too.
func (o *output) print(w io.Writer, answer []byte) error {
	if o.format == formatYAML {
		text, err := yaml.JSONToYAML(answer)
		if err != nil {
			return fmt.Errorf("the answer is not JSON: %w", err)
		}
		_, err = w.Write(text)
		return err
	}
	var text bytes.Buffer
	if err := json.Indent(&text, bytes.TrimSpace(answer), "", "  "); err != nil {
		return fmt.Errorf("the answer is not JSON: %w", err)
	}
	text.WriteByte('\n')
	answer = text.Bytes()
	if terminal(w) {
		answer = escaped(answer)
	}
	_, err := w.Write(answer)
	return err
}

// escaped writes JSON with escapes for what would move the cursor of a terminal, or turn what is written around.
func escaped(text []byte) []byte {
	var result bytes.Buffer
	for _, r := range string(text) {
		if strconv.IsPrint(r) || r == '\n' {
			result.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&result, `\u%04x`, unit)
		}
	}
	return result.Bytes()
}

// printValue is print of what was put together here.
func (o *output) printValue(w io.Writer, value any) error {
	text, err := json.Marshal(value)
	if err != nil {
		return err
	}
	return o.print(w, text)
}

// table prints rows as kubectl does. The first row is the headings.
func table(w io.Writer, rows [][]string) error {
	writer := printers.GetNewTabWriter(w)
	for _, row := range rows {
		fmt.Fprintln(writer, strings.Join(row, "\t"))
	}
	return writer.Flush()
}

// in says how long it is until a time: "in 12s", "now".
func in(now, then time.Time) string {
	if !then.After(now) {
		return "now"
	}
	return "in " + left(now, then)
}

// left is the time until another, "12s". It is rounded up, so that nobody comes early.
func left(now, then time.Time) string {
	d := roundUp(max(0, then.Sub(now)), time.Second)
	for _, unit := range shownUnits {
		if d >= unit.from {
			d = roundUp(d, unit.unit)
		}
	}
	return duration.HumanDuration(d)
}

// shownUnits are the smallest units that HumanDuration shows of times of at least so much.
var shownUnits = []struct{ from, unit time.Duration }{
	{10 * time.Minute, time.Minute},
	{8 * time.Hour, time.Hour},
	{8 * 24 * time.Hour, 24 * time.Hour},
}

func roundUp(d, unit time.Duration) time.Duration {
	if down := d.Truncate(unit); down < d {
		return down + unit
	}
	return d
}

// ago says how long it is since a time, "3s".
func ago(now, then time.Time) string { return duration.HumanDuration(max(0, now.Sub(then))) }

// clock is a time as a clock on the wall of whoever reads it shows it, rounded up to seconds, and with the
// date if that is not today's.
func clock(now, then time.Time) string {
	if down := then.Truncate(time.Second); down.Before(then) {
		then = down.Add(time.Second)
	}
	then, now = then.Local(), now.Local()
	if then.Format(time.DateOnly) == now.Format(time.DateOnly) {
		return then.Format("15:04:05 MST")
	}
	return then.Format("2006-01-02 15:04:05 MST")
}

// at is in with the clock's time.
func at(now, then time.Time) string {
	return fmt.Sprintf("%s (%s)", in(now, then), clock(now, then))
}

// number writes a number as people read it: 12,345.
func number(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// count is a number of things: "1 request", "2 requests".
func count(n int64, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return number(n) + " " + thing + "s"
}

// printable returns a sentence of a server without what would move the cursor of a terminal: it may quote a
// name that somebody chose.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if !strconv.IsPrint(r) {
			return '\uFFFD'
		}
		return r
	}, s)
}
