// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

// Package panels reads a Grafana dashboard and asks a Prometheus what its panels ask.
package panels

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	apiv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"
)

// Dashboard is as much of a Grafana dashboard as is looked at.
type Dashboard struct {
	Title         string  `json:"title"`
	SchemaVersion int     `json:"schemaVersion"`
	Panels        []Panel `json:"panels"`
	Templating    struct {
		List []Variable `json:"list"`
	} `json:"templating"`
}

// Variable is a variable that whoever looks at the dashboard chooses.
type Variable struct {
	Name  string          `json:"name"`
	Type  string          `json:"type"`
	Query json.RawMessage `json:"query"`
}

// Panel is one panel, or the title of a row of them (Type "row").
type Panel struct {
	ID          int        `json:"id"`
	Type        string     `json:"type"`
	Title       string     `json:"title"`
	Description string     `json:"description"`
	Datasource  Datasource `json:"datasource"`
	GridPos     GridPos    `json:"gridPos"`
	FieldConfig struct {
		Defaults Defaults `json:"defaults"`
	} `json:"fieldConfig"`
	Options struct {
		TextMode string `json:"textMode"`
	} `json:"options"`
	Targets []Target `json:"targets"`
}

// Datasource is where a panel's answers come from.
type Datasource struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

// GridPos is where a panel is, in 24 columns.
type GridPos struct {
	H int `json:"h"`
	W int `json:"w"`
	X int `json:"x"`
	Y int `json:"y"`
}

// Defaults are how values are shown.
type Defaults struct {
	Unit       string   `json:"unit"`
	Min        *float64 `json:"min"`
	Max        *float64 `json:"max"`
	Decimals   *int     `json:"decimals"`
	NoValue    string   `json:"noValue"`
	Thresholds struct {
		Steps []Step `json:"steps"`
	} `json:"thresholds"`
	Mappings []struct {
		Options map[string]struct {
			Text string `json:"text"`
		} `json:"options"`
	} `json:"mappings"`
	Custom struct {
		Stacking struct {
			Mode string `json:"mode"`
		} `json:"stacking"`
	} `json:"custom"`
}

// Step is the colour of values from Value on; nil is from the least on.
type Step struct {
	Color string   `json:"color"`
	Value *float64 `json:"value"`
}

// Target is one query.
type Target struct {
	Expr         string     `json:"expr"`
	LegendFormat string     `json:"legendFormat"`
	Instant      bool       `json:"instant"`
	Datasource   Datasource `json:"datasource"`
}

// Load reads a dashboard.
func Load(raw []byte) (*Dashboard, error) {
	var d Dashboard
	if err := json.Unmarshal(raw, &d); err != nil {
		return nil, fmt.Errorf("the dashboard: %w", err)
	}
	return &d, nil
}

// View is what Grafana is asked to show: a stretch of time, of all namespaces and jobs.
type View struct {
	From, To time.Time
	// Rate is Grafana's $__rate_interval, four scrapes of Prometheus.
	Rate time.Duration
}

// Expression is a query with the dashboard's variables replaced. The error names one that is not known.
func (v View) Expression(query string) (string, error) {
	for name, value := range map[string]string{
		"$__rate_interval": seconds(v.Rate), "$__range": seconds(v.To.Sub(v.From)), "$namespace": ".*", "$job": ".*",
	} {
		query = strings.ReplaceAll(query, name, value)
	}
	if i := strings.IndexByte(query, '$'); i >= 0 {
		return "", fmt.Errorf("an unknown variable: %s", query[i:])
	}
	return query, nil
}

func seconds(d time.Duration) string { return fmt.Sprintf("%ds", int(d.Seconds())) }

// Series is one line of a panel, or one value.
type Series struct {
	Name   string
	Labels map[string]string
	Points []model.SamplePair
}

// Last is the newest value.
func (s Series) Last() float64 { return float64(s.Points[len(s.Points)-1].Value) }

// points is how many points of a line there are at the most.
const points = 150

// Ask asks the Prometheus at a URL what a panel asks.
func Ask(ctx context.Context, url string, p Panel, v View) ([]Series, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	var all []Series
	for _, target := range p.Targets {
		query, err := v.Expression(target.Expr)
		if err != nil {
			return nil, err
		}
		series, err := ask(ctx, apiv1.NewAPI(client), query, target.Instant, v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", query, err)
		}
		if len(series) == 0 {
			return nil, fmt.Errorf("%s: no data", query)
		}
		for i := range series {
			series[i].Name = legend(target.LegendFormat, series[i].Labels)
		}
		all = append(all, series...)
	}
	return all, nil
}

func ask(ctx context.Context, prometheus apiv1.API, query string, instant bool, v View) ([]Series, error) {
	var (
		value    model.Value
		warnings apiv1.Warnings
		err      error
	)
	if instant {
		value, warnings, _, err = prometheus.Query(ctx, query, v.To)
	} else {
		step := max(v.To.Sub(v.From)/points, time.Second)
		value, warnings, _, err = prometheus.QueryRange(ctx, query, apiv1.Range{Start: v.From, End: v.To, Step: step})
	}
	if err != nil {
		return nil, err
	}
	if len(warnings) > 0 {
		return nil, fmt.Errorf("warnings: %v", warnings)
	}
	var all []Series
	switch value := value.(type) {
	case model.Vector:
		for _, s := range value {
			all = append(all, Series{Labels: texts(s.Metric), Points: []model.SamplePair{{Timestamp: s.Timestamp, Value: s.Value}}})
		}
	case model.Matrix:
		for _, s := range value {
			all = append(all, Series{Labels: texts(s.Metric), Points: s.Values})
		}
	default:
		return nil, fmt.Errorf("an answer of type %s", value.Type())
	}
	return all, nil
}

func texts(metric model.Metric) map[string]string {
	all := map[string]string{}
	for name, value := range metric {
		all[string(name)] = string(value)
	}
	return all
}

var label = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

// legend is the name of a series.
func legend(format string, labels map[string]string) string {
	name := label.ReplaceAllStringFunc(format, func(match string) string { return labels[label.FindStringSubmatch(match)[1]] })
	return strings.Trim(name, " /")
}
