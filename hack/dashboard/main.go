// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Command dashboard draws config/prometheus/dashboard.json as a picture, with what a Prometheus answers
// to its queries. It knows the kinds of panels and the units that this dashboard has, and is no
// Grafana.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/tierlimit/tierlimit/hack/dashboard/panels"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "dashboard:", err)
		os.Exit(1)
	}
}

func run() error {
	file := flag.String("dashboard", "config/prometheus/dashboard.json", "`file` with the dashboard")
	url := flag.String("prometheus", "http://localhost:9090", "`URL` of a Prometheus")
	out := flag.String("out", "dashboard.svg", "`file` to write the picture to")
	from := flag.String("from", "", "first `time` to show, in RFC 3339; an hour before -to without it")
	to := flag.String("to", "", "last `time` to show, in RFC 3339; now without it")
	rate := flag.Duration("rate-interval", 4*time.Second, "four `times` the scrape interval, which is what Grafana uses for rates")
	flag.Parse()
	view := panels.View{To: time.Now(), Rate: *rate}
	var err error
	if *to != "" {
		view.To, err = time.Parse(time.RFC3339, *to)
	}
	view.From = view.To.Add(-time.Hour)
	if *from != "" && err == nil {
		view.From, err = time.Parse(time.RFC3339, *from)
	}
	if err != nil {
		return err
	}
	raw, err := os.ReadFile(*file)
	if err != nil {
		return err
	}
	dashboard, err := panels.Load(raw)
	if err != nil {
		return err
	}
	picture := newPicture(dashboard, view)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var failed []error
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			picture.row(p)
			continue
		}
		series, err := panels.Ask(ctx, *url, p, view)
		if err != nil {
			failed = append(failed, fmt.Errorf("panel %q: %w", p.Title, err))
			continue
		}
		picture.panel(p, series)
	}
	return errors.Join(errors.Join(failed...), os.WriteFile(*out, picture.svg(), 0o644)) //nolint:gosec // G306: a picture for everybody
}
