// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"html"
	"strings"

	"github.com/tierlimit/tierlimit/hack/dashboard/panels"
)

// Sizes in pixels.
const (
	columnWidth = 64 // of 24 columns
	rowHeight   = 32
	gap         = 8
	margin      = 12
	inset       = 12 // of a panel's content
	titleHeight = 30
)

// Colours of the page.
const (
	background = "#f4f5f5"
	paper      = "#ffffff"
	border     = "#dcdee0"
	ink        = "#24292e"
	pale       = "#6a737d"
	grid       = "#e8eaec"
)

// palette is the colours of lines; named are those of thresholds.
var (
	palette = []string{"#3b7ddd", "#e8871e", "#2e9e5b", "#d64550", "#8a5cc2", "#12a2b8", "#b58900", "#d6569c", "#6b7b8c"}
	named   = map[string]string{"green": "#2e9e5b", "orange": "#e8871e", "red": "#d64550", "blue": "#3b7ddd"}
)

// picture is the drawing of a dashboard.
type picture struct {
	view   panels.View
	body   bytes.Buffer
	height float64
}

// box is where something is drawn.
type box struct{ x, y, w, h float64 }

func newPicture(d *panels.Dashboard, v panels.View) *picture {
	p := &picture{view: v}
	p.text(margin+2, margin+22, 20, "bold", "start", ink, d.Title)
	p.text(margin+24*columnWidth-2, margin+22, 13, "normal", "end", pale,
		fmt.Sprintf("%s to %s UTC, drawn by hack/dashboard", v.From.UTC().Format("15:04:05"), v.To.UTC().Format("15:04:05")))
	return p
}

// place returns where a panel is.
func (p *picture) place(g panels.GridPos) box {
	b := box{
		x: margin + float64(g.X)*columnWidth, y: margin + 36 + float64(g.Y)*rowHeight,
		w: float64(g.W)*columnWidth - gap, h: float64(g.H)*rowHeight - gap,
	}
	p.height = max(p.height, b.y+b.h+margin)
	return b
}

// row draws the title of a row.
func (p *picture) row(panel panels.Panel) {
	b := p.place(panel.GridPos)
	p.text(b.x+2, b.y+19, 16, "bold", "start", ink, panel.Title)
}

// panel draws a panel with its answers.
func (p *picture) panel(panel panels.Panel, series []panels.Series) {
	b := p.place(panel.GridPos)
	fmt.Fprintf(&p.body, `<rect x="%.0f" y="%.0f" width="%.0f" height="%.0f" rx="3" fill="%s" stroke="%s"/>`+"\n", b.x, b.y, b.w, b.h, paper, border)
	p.text(b.x+inset, b.y+20, 13, "bold", "start", ink, panel.Title)
	inner := box{b.x + inset, b.y + titleHeight, b.w - 2*inset, b.h - titleHeight - inset}
	switch panel.Type {
	case "stat":
		p.stat(panel, series, inner)
	case "timeseries":
		p.lines(panel, series, inner)
	case "state-timeline":
		p.states(panel, series, inner)
	case "bargauge":
		p.bars(panel, series, inner)
	case "table":
		p.table(series, inner)
	default:
		p.text(inner.x, inner.y+20, 12, "normal", "start", pale, "a panel of type "+panel.Type+" cannot be drawn")
	}
}

// stat draws a value on the colour of its threshold.
func (p *picture) stat(panel panels.Panel, series []panels.Series, b box) {
	value := series[0].Last()
	p.rect(b, colorOf(panel, value))
	text := mapped(panel, value)
	if panel.Options.TextMode == "name" {
		text = series[0].Name
	}
	p.text(b.x+b.w/2, b.y+b.h/2+10, 28, "bold", "middle", paper, text)
}

// bars draws a bar for each value.
func (p *picture) bars(panel panels.Panel, series []panels.Series, b box) {
	most := 0.0
	for _, s := range series {
		most = max(most, s.Last())
	}
	const height = 44
	for i, s := range series {
		y := b.y + float64(i)*height
		if y+height > b.y+b.h {
			break
		}
		p.text(b.x, y+13, 12, "normal", "start", ink, s.Name)
		p.text(b.x+b.w, y+13, 12, "bold", "end", ink, mapped(panel, s.Last()))
		p.rect(box{b.x, y + 19, b.w, 12}, grid)
		if most > 0 {
			p.rect(box{b.x, y + 19, b.w * s.Last() / most, 12}, palette[i%len(palette)])
		}
	}
}

// table draws labels and values.
func (p *picture) table(series []panels.Series, b box) {
	columns := []struct{ label, title string }{{"tier", "tier"}, {"window", "window"}, {"", "requests"}, {"mode", "mode"}, {"failure_policy", "without Redis"}}
	width := b.w / float64(len(columns))
	for i, column := range columns {
		p.text(b.x+float64(i)*width, b.y+13, 12, "bold", "start", pale, column.title)
	}
	sortByLabels(series)
	for row, s := range series {
		y := b.y + 36 + float64(row)*22
		if y > b.y+b.h {
			break
		}
		fmt.Fprintf(&p.body, `<path d="M%.0f %.1fh%.0f" stroke="%s"/>`+"\n", b.x, y-15, b.w, grid)
		for i, column := range columns {
			text := s.Labels[column.label]
			if column.label == "" {
				text = number(s.Last(), nil)
			}
			p.text(b.x+float64(i)*width, y, 12, "normal", "start", ink, text)
		}
	}
}

func (p *picture) rect(b box, fill string) {
	fmt.Fprintf(&p.body, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="2" fill="%s"/>`+"\n", b.x, b.y, max(b.w, 0), b.h, fill)
}

func (p *picture) text(x, y, size float64, weight, anchor, fill, text string) {
	fmt.Fprintf(&p.body, `<text x="%.1f" y="%.1f" font-size="%.0f" font-weight="%s" text-anchor="%s" fill="%s">%s</text>`+"\n",
		x, y, size, weight, anchor, fill, html.EscapeString(text))
}

// svg returns the whole picture.
func (p *picture) svg() []byte {
	var all strings.Builder
	width := float64(2*margin + 24*columnWidth - gap)
	fmt.Fprintf(&all, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %.0f" width="%.0f" height="%.0f" font-family="Helvetica, Arial, sans-serif">`+"\n", width, p.height, width, p.height)
	fmt.Fprintf(&all, `<rect width="100%%" height="100%%" fill="%s"/>`+"\n", background)
	all.WriteString(p.body.String())
	all.WriteString("</svg>\n")
	return []byte(all.String())
}
