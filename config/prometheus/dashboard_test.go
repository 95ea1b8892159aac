// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package prometheus_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/api"
	apiv1 "github.com/prometheus/client_golang/api/prometheus/v1"

	"github.com/tierlimit/tierlimit/hack/dashboard/panels"
)

// envPicture names a file to draw the dashboard to. The load is then longer, so that there is
// something to see.
const envPicture = "TIERLIMIT_DASHBOARD_PICTURE"

func loadDashboard(t *testing.T) *panels.Dashboard {
	t.Helper()
	raw, err := os.ReadFile("dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	dashboard, err := panels.Load(raw)
	if err != nil {
		t.Fatal(err)
	}
	return dashboard
}

// TestDashboardIsWellFormed checks what Grafana would not complain about.
func TestDashboardIsWellFormed(t *testing.T) {
	t.Parallel()
	dashboard := loadDashboard(t)
	ids, taken, rows := map[int]bool{}, map[[2]int]string{}, []string{}
	for _, p := range dashboard.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: its id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
			for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
				if other, overlaps := taken[[2]int{x, y}]; overlaps || x >= 24 {
					t.Fatalf("panel %q lies over %q or outside", p.Title, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type == "row" {
			rows = append(rows, p.Title)
			continue
		}
		if p.Title == "" || p.Description == "" || p.FieldConfig.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("panel %q lacks a title, a description, a unit or a query", p.Title)
		}
		for _, d := range []panels.Datasource{p.Datasource, p.Targets[0].Datasource} {
			if d.UID != "${datasource}" {
				t.Errorf("panel %q asks data source %q, not that of the variable", p.Title, d.UID)
			}
		}
		for _, target := range p.Targets {
			for _, metric := range strings.Split(target.Expr, "tierlimit_")[1:] {
				if selector := metric[strings.IndexByte(metric, '{')+1:]; !strings.Contains(selector[:strings.IndexByte(selector, '}')], `namespace=~"$namespace", job=~"$job"`) {
					t.Errorf("panel %q: tierlimit_%.30s... is not restricted by the variables", p.Title, metric)
				}
			}
		}
	}
	if want := "Is it enforcing? Who is being limited? What does it cost? Is Redis well?"; strings.Join(rows, " ") != want {
		t.Errorf("the rows ask %q, want %q", rows, want)
	}
}

// TestDashboardAndAlertsOnRealLoad has a real Prometheus scrape two replicas under load, asks it what
// each panel asks, and has it load the alerts.
func TestDashboardAndAlertsOnRealLoad(t *testing.T) {
	dashboard := loadDashboard(t)
	picture := os.Getenv(envPicture)
	phase := 6 * time.Second
	if picture != "" {
		phase = 45 * time.Second
	}
	url, from := scrapedLoad(t, phase)
	view := panels.View{From: from, To: time.Now(), Rate: 4 * time.Second}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for _, p := range dashboard.Panels {
		if p.Type == "row" {
			continue
		}
		series, err := panels.Ask(ctx, url, p, view)
		if err != nil {
			t.Errorf("panel %q: %v", p.Title, err)
		}
		if expected, found := expectations[p.Title]; found {
			expected(t, p.Title, series)
			delete(expectations, p.Title)
		}
	}
	for title := range expectations {
		t.Errorf("there is no panel %q", title)
	}
	alertsAreHealthy(ctx, t, url)
	if picture != "" {
		root, err := filepath.Abs("../..")
		if err != nil {
			t.Fatal(err)
		}
		draw := exec.CommandContext(ctx, "go", "run", "./hack/dashboard", "-prometheus", url, "-out", picture,
			"-from", view.From.Format(time.RFC3339), "-to", view.To.Format(time.RFC3339))
		draw.Dir = root
		if output, err := draw.CombinedOutput(); err != nil {
			t.Errorf("drawing: %v\n%s", err, output)
		}
	}
}

// expectations say what the load must show in some panels, so that a query that answers something else
// is found.
var expectations = map[string]func(*testing.T, string, []panels.Series){
	"Replicas that answer":                      exactly(2),
	"Tiers on trial":                            exactly(1),
	"Tiers that replicas disagree on":           exactly(0),
	"All tiers":                                 exactly(0),
	"Passed uncounted":                          above(0),
	"Rejections from memory":                    above(0),
	"Kill switches":                             reaches("pro", 1),
	"Circuit of each replica":                   reaches("", 1),
	"Would be rejected (DryRun)":                reaches("trial", 0.1),
	"Users rejected in a day, or that would be": reaches("trial", 4),
	"Checks that no budget fits":                reaches("unknown tier", 0.1),
	"Rejections by tier and window":             reaches("free / minute", 0.1),
	"What was answered then":                    reaches("failed_closed", 0.1),
}

func exactly(want float64) func(*testing.T, string, []panels.Series) {
	return func(t *testing.T, title string, series []panels.Series) {
		if len(series) != 1 || series[0].Last() != want {
			t.Errorf("panel %q shows %v, want %v", title, series, want)
		}
	}
}

func above(least float64) func(*testing.T, string, []panels.Series) {
	return func(t *testing.T, title string, series []panels.Series) {
		if len(series) != 1 || !(series[0].Last() > least) {
			t.Errorf("panel %q shows %v, want more than %v", title, series, least)
		}
	}
}

// reaches wants a line of a name, or any if it is "", to reach a value.
func reaches(name string, least float64) func(*testing.T, string, []panels.Series) {
	return func(t *testing.T, title string, series []panels.Series) {
		for _, s := range series {
			for _, point := range s.Points {
				if (name == "" || s.Name == name) && float64(point.Value) >= least {
					return
				}
			}
		}
		t.Errorf("panel %q: no line %q reaches %v", title, name, least)
	}
}

// alertsAreHealthy fails unless Prometheus evaluates every alert without an error.
func alertsAreHealthy(ctx context.Context, t *testing.T, url string) {
	t.Helper()
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		t.Fatal(err)
	}
	loaded, err := apiv1.NewAPI(client).Rules(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	healthy := 0
	for _, group := range loaded.Groups {
		for _, rule := range group.Rules {
			alert, ok := rule.(apiv1.AlertingRule)
			if !ok || alert.Health != apiv1.RuleHealthGood {
				t.Errorf("a rule is not evaluated: %+v", rule)
				continue
			}
			healthy++
		}
	}
	if want := len(alerts(t)); healthy != want {
		t.Errorf("%d alerts are evaluated, want %d", healthy, want)
	}
}
