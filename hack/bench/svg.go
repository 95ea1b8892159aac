// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"fmt"
	"html"
	"strings"
	"text/template"
)

//go:embed performance.svg.tmpl
var pictureSource string

var pictureTemplate = template.Must(template.New("performance.svg").Parse(pictureSource))

// bar is a contender in the picture.
type bar struct {
	name               string
	admitted, rejected float64 // checks per second
	over               int
	hasOver            bool
}

// bars are the contenders that were measured on both paths; rejected are repeat offenders.
func (r *results) bars() []bar {
	var bars []bar
	admitted, rejected := r.group("admitted"), r.group("offender")
	if admitted == nil || rejected == nil {
		return nil
	}
	for _, a := range admitted.rows {
		if other := rejected.row(a.name); other != nil {
			over, measured := r.over(a.name)
			bars = append(bars, bar{a.name, a.rate(), other.rate(), over, measured})
		}
	}
	return bars
}

// Where things are in the picture, in pixels.
const (
	pictureWidth = 860
	rateX        = 215 // names end before it
	rateWidth    = 375 // of the longest bar; its number comes after it
	overX        = 680
	overWidth    = 110
	firstRowY    = 66
	rowHeight    = 42
)

// pictureRow is a bar's place in the template.
type pictureRow struct {
	Name, Admitted, Rejected                                   string
	Over                                                       int
	HasOver                                                    bool
	NameX, NameY, RateX, AdmittedY, AdmittedWidth, RejectedY   int
	RejectedWidth, AdmittedTextX, AdmittedTextY, RejectedTextX int
	RejectedTextY, OverX, OverY, OverWidth, OverTextX          int
}

// draw makes the picture.
func draw(bars []bar) (string, error) {
	fastest, worst := 1.0, 1
	var said []string
	for _, b := range bars {
		fastest, worst = max(fastest, b.admitted, b.rejected), max(worst, b.over)
		said = append(said, fmt.Sprintf("%s: %s admitted, %s rejected (repeat offender)", b.name, number(b.admitted, 0), number(b.rejected, 0)))
	}
	var rows []pictureRow
	for i, b := range bars {
		y := firstRowY + i*rowHeight
		admitted, rejected := int(rateWidth*b.admitted/fastest), int(rateWidth*b.rejected/fastest)
		over := overWidth * b.over / worst
		rows = append(rows, pictureRow{
			Name: html.EscapeString(b.name), Admitted: number(b.admitted, 0), Rejected: number(b.rejected, 0), Over: b.over, HasOver: b.hasOver,
			NameX: rateX - 12, NameY: y + 18, RateX: rateX,
			AdmittedY: y, AdmittedWidth: admitted, AdmittedTextX: rateX + admitted + 6, AdmittedTextY: y + 11,
			RejectedY: y + 14, RejectedWidth: rejected, RejectedTextX: rateX + rejected + 6, RejectedTextY: y + 25,
			OverX: overX, OverY: y + 7, OverWidth: over, OverTextX: overX + max(over, 0) + 6,
		})
	}
	var w strings.Builder
	err := pictureTemplate.Execute(&w, map[string]any{
		"Width": pictureWidth, "Height": firstRowY + len(bars)*rowHeight, "Description": html.EscapeString(strings.Join(said, "; ") + "."),
		"RateX": rateX, "AdmittedKeyX": rateX + 17, "RejectedKeyX": rateX + 90, "RejectedKeyTextX": rateX + 107,
		"OverX": overX, "Limit": burstLimit(), "Rows": rows,
	})
	return w.String(), err
}
