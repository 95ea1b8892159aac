// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"

	"github.com/tierlimit/tierlimit/hack/dashboard/panels"
)

const (
	legendLine = 18 // height of a line of the legend
	axisWidth  = 62
)

// lines draws lines over time, or areas on top of each other.
func (p *picture) lines(panel panels.Panel, series []panels.Series, b box) {
	b.h -= p.legend(series, b)
	plot := box{b.x + axisWidth, b.y + 4, b.w - axisWidth, b.h - 24}
	stacked := panel.FieldConfig.Defaults.Custom.Stacking.Mode == "normal"
	below := map[model.Time]float64{}
	most := 0.0
	for _, s := range series {
		for _, point := range s.Points {
			value := finite(point.Value)
			if stacked {
				below[point.Timestamp] += value
				value = below[point.Timestamp]
			}
			most = max(most, value)
		}
	}
	unit := 1.0
	if panel.FieldConfig.Defaults.Unit == "bytes" {
		unit = 1 << 20
	}
	top, step := scale(most / unit)
	top, step = top*unit, step*unit
	if limit := panel.FieldConfig.Defaults.Max; limit != nil {
		top, step = *limit, *limit/4
	}
	p.axes(panel, plot, top, step)
	y := func(value float64) float64 { return plot.y + plot.h*(1-min(value/top, 1)) }
	if stacked {
		series = complete(series)
	}
	clear(below)
	for i, s := range series {
		color := palette[i%len(palette)]
		if !stacked {
			fmt.Fprintf(&p.body, `<path d="%s" fill="none" stroke="%s" stroke-width="1.6" stroke-linejoin="round"/>`+"\n", p.path(s, plot, y), color)
			continue
		}
		p.area(s, plot, y, below, color)
	}
}

// path is a line, with a gap where there is no value.
func (p *picture) path(s panels.Series, plot box, y func(float64) float64) string {
	var d strings.Builder
	move := true
	for i, point := range s.Points {
		if math.IsNaN(float64(point.Value)) || i > 0 && point.Timestamp.Sub(s.Points[i-1].Timestamp) > p.gap() {
			move = true
		}
		if math.IsNaN(float64(point.Value)) {
			continue
		}
		command := "L"
		if move {
			command = "M"
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", command, p.x(point.Timestamp, plot), y(finite(point.Value)))
		move = false
	}
	return d.String()
}

// complete returns the series with a value for every time that one of them has, so that they can stand on
// each other.
func complete(series []panels.Series) []panels.Series {
	at := map[model.Time]bool{}
	for _, s := range series {
		for _, point := range s.Points {
			at[point.Timestamp] = true
		}
	}
	times := slices.Sorted(maps.Keys(at))
	all := make([]panels.Series, len(series))
	for i, s := range series {
		values := map[model.Time]model.SampleValue{}
		for _, point := range s.Points {
			values[point.Timestamp] = point.Value
		}
		all[i] = panels.Series{Name: s.Name}
		for _, t := range times {
			all[i].Points = append(all[i].Points, model.SamplePair{Timestamp: t, Value: values[t]})
		}
	}
	return all
}

// area draws a series on top of what is below, and adds it to that.
func (p *picture) area(s panels.Series, plot box, y func(float64) float64, below map[model.Time]float64, color string) {
	if len(s.Points) == 0 {
		return
	}
	var d strings.Builder
	for i, point := range s.Points {
		command := "L"
		if i == 0 {
			command = "M"
		}
		fmt.Fprintf(&d, "%s%.1f %.1f", command, p.x(point.Timestamp, plot), y(below[point.Timestamp]+finite(point.Value)))
	}
	for _, point := range slices.Backward(s.Points) {
		fmt.Fprintf(&d, "L%.1f %.1f", p.x(point.Timestamp, plot), y(below[point.Timestamp]))
		below[point.Timestamp] += finite(point.Value)
	}
	fmt.Fprintf(&p.body, `<path d="%sZ" fill="%s" fill-opacity="0.75"/>`+"\n", d.String(), color)
}

// states draws a bar over time for each series, in the colour of its value.
func (p *picture) states(panel panels.Panel, series []panels.Series, b box) {
	b.h -= p.key(panel, b)
	width := 0.0
	for _, s := range series {
		width = max(width, 7.2*float64(len(s.Name)))
	}
	plot := box{b.x + width + 10, b.y + 2, b.w - width - 10, b.h - 22}
	height := plot.h / float64(len(series))
	for i, s := range series {
		top := plot.y + float64(i)*height
		p.text(b.x+width+4, top+height/2+4, 12, "normal", "end", ink, s.Name)
		for j := 0; j < len(s.Points); {
			last := j
			for last+1 < len(s.Points) && s.Points[last+1].Value == s.Points[j].Value && s.Points[last+1].Timestamp.Sub(s.Points[last].Timestamp) <= p.gap() {
				last++
			}
			from, to := p.x(s.Points[j].Timestamp, plot), p.x(s.Points[min(last+1, len(s.Points)-1)].Timestamp, plot)
			p.rect(box{from, top + height*0.1, to - from, height * 0.8}, colorOf(panel, float64(s.Points[j].Value)))
			j = last + 1
		}
	}
	p.times(plot)
}

// key names the colours of states below a box and returns its height.
func (p *picture) key(panel panels.Panel, b box) float64 {
	x := b.x
	for value, name := range []string{mapped(panel, 0), mapped(panel, 1)} {
		p.rect(box{x, b.y + b.h - 11, 11, 11}, colorOf(panel, float64(value)))
		p.text(x+16, b.y+b.h-1, 12, "normal", "start", ink, name)
		x += 30 + 7*float64(len(name))
	}
	return legendLine
}

// legend names the lines below a box and returns its height.
func (p *picture) legend(series []panels.Series, b box) float64 {
	type item struct {
		x    float64
		line int
	}
	items := make([]item, len(series))
	x, line := 0.0, 0
	for i, s := range series {
		width := 26 + 6.6*float64(len(s.Name))
		if x > 0 && x+width > b.w {
			x, line = 0, line+1
		}
		items[i] = item{x, line}
		x += width
	}
	height := float64(line+1) * legendLine
	for i, s := range series {
		x, y := b.x+items[i].x, b.y+b.h-height+float64(items[i].line+1)*legendLine
		p.rect(box{x, y - 6, 12, 4}, palette[i%len(palette)])
		p.text(x+16, y-1, 12, "normal", "start", ink, s.Name)
	}
	return height + 2
}

// axes draws the lines of the values and the times.
func (p *picture) axes(panel panels.Panel, plot box, top, step float64) {
	for value := 0.0; value <= top*1.0001; value += step {
		y := plot.y + plot.h*(1-value/top)
		fmt.Fprintf(&p.body, `<path d="M%.1f %.1fh%.1f" stroke="%s"/>`+"\n", plot.x, y, plot.w, grid)
		p.text(plot.x-6, y+4, 11, "normal", "end", pale, axisValue(panel.FieldConfig.Defaults.Unit, value, top))
	}
	p.times(plot)
}

// times draws the time below a plot.
func (p *picture) times(plot box) {
	span := p.view.To.Sub(p.view.From)
	step := time.Second
	for _, step = range []time.Duration{5 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 6 * time.Hour} {
		if float64(span/step) <= plot.w/70 {
			break
		}
	}
	for at := p.view.From.Truncate(step).Add(step); at.Before(p.view.To); at = at.Add(step) {
		x := p.x(model.TimeFromUnixNano(at.UnixNano()), plot)
		fmt.Fprintf(&p.body, `<path d="M%.1f %.1fv%.1f" stroke="%s"/>`+"\n", x, plot.y, plot.h, grid)
		anchor := "middle"
		if x+26 > plot.x+plot.w { // it would stick out
			x, anchor = plot.x+plot.w, "end"
		}
		p.text(x, plot.y+plot.h+15, 11, "normal", anchor, pale, at.UTC().Format("15:04:05"))
	}
}

func (p *picture) x(at model.Time, plot box) float64 {
	return plot.x + plot.w*float64(at.Time().Sub(p.view.From))/float64(p.view.To.Sub(p.view.From))
}

// gap is how far apart two values are that no line joins.
func (p *picture) gap() time.Duration { return p.view.To.Sub(p.view.From)/50 + time.Second }

func finite(v model.SampleValue) float64 {
	if f := float64(v); !math.IsNaN(f) && !math.IsInf(f, 0) {
		return f
	}
	return 0
}
