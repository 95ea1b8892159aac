// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"

	"github.com/tierlimit/tierlimit/hack/dashboard/panels"
)

// colorOf is the colour of the highest threshold that a value reaches.
func colorOf(panel panels.Panel, value float64) string {
	color := named["blue"]
	for _, step := range panel.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			color = cmp.Or(named[step.Color], step.Color)
		}
	}
	return color
}

// mapped is a value in words, if there are words for it, or with its unit.
func mapped(panel panels.Panel, value float64) string {
	d := panel.FieldConfig.Defaults
	for _, mapping := range d.Mappings {
		if option, found := mapping.Options[strconv.FormatFloat(value, 'g', -1, 64)]; found {
			return option.Text
		}
	}
	if math.IsNaN(value) {
		return cmp.Or(d.NoValue, "no value")
	}
	return withUnit(d.Unit, value, d.Decimals)
}

// withUnit is a value as Grafana would write it, for the units that this dashboard has.
func withUnit(unit string, value float64, decimals *int) string {
	switch unit {
	case "percentunit":
		return number(100*value, decimals) + " %"
	case "s":
		return duration(value)
	case "bytes":
		return number(value/(1<<20), nil) + " MiB"
	case "reqps":
		return number(value, decimals) + " req/s"
	}
	return number(value, decimals)
}

// duration is a time in the unit that suits it.
func duration(seconds float64) string {
	switch {
	case seconds == 0:
		return "0 s"
	case seconds < 1e-3:
		return number(seconds*1e6, nil) + " µs"
	case seconds < 1:
		return number(seconds*1e3, nil) + " ms"
	}
	return number(seconds, nil) + " s"
}

// number is a number with so many decimals, or three digits.
func number(value float64, decimals *int) string {
	if decimals != nil {
		return strconv.FormatFloat(value, 'f', *decimals, 64)
	}
	if value >= 1000 || value == math.Trunc(value) {
		return strconv.FormatFloat(math.Round(value), 'f', 0, 64)
	}
	return fmt.Sprintf("%.3g", value)
}

// axisValue is a value beside an axis that ends at top.
func axisValue(unit string, value, top float64) string {
	if unit == "s" && value > 0 && top < 1 {
		return number(value*1e3, nil) + " ms"
	}
	return withUnit(unit, value, nil)
}

// scale is a round end of an axis for values up to most, and the step between its lines.
func scale(most float64) (top, step float64) {
	if most <= 0 {
		return 1, 0.25
	}
	magnitude := math.Pow(10, math.Floor(math.Log10(most/4)))
	step = magnitude
	for _, factor := range []float64{1, 2, 2.5, 5, 10} {
		if step = factor * magnitude; step*5 >= most {
			break
		}
	}
	return step * math.Ceil(most*1.02/step), step
}

// sortByLabels puts tiers in order, and the minute before the day.
func sortByLabels(series []panels.Series) {
	slices.SortFunc(series, func(a, b panels.Series) int {
		return cmp.Or(cmp.Compare(a.Labels["tier"], b.Labels["tier"]), cmp.Compare(b.Labels["window"], a.Labels["window"]))
	})
}
