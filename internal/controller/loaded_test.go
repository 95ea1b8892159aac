// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// loadedTable has generation 3 of free in force.
func loadedTable() *tier.Table {
	var table tier.Table
	table.Replace([]*tier.Tier{{Name: "free", UID: "u1", Generation: 3}})
	return &table
}

// TestOnlyAnAnswerCounts has something else answer, on the address of a Pod that is gone for example: it must
// not pass for a replica that has everything.
func TestOnlyAnAnswerCounts(t *testing.T) {
	question := loadedQuestion{Tiers: []tierRef{{Name: "free"}, {Name: "pro"}}}
	for name, tc := range map[string]struct {
		reason, body string
		lacking      []string
		refused      bool
	}{
		"All":        {reason: "it has both", body: `{"asked":2}`},
		"Lacking":    {reason: "it has one", body: `{"asked":2,"lacking":["pro"]}`, lacking: []string{"pro"}},
		"Newer":      {reason: "a later version may say more", body: `{"asked":2,"since":"x"}`},
		"Null":       {reason: "nobody says so", body: `null`, refused: true},
		"Other":      {reason: "the health of something else", body: `{"status":"ok"}`, refused: true},
		"Fewer":      {reason: "an answer to another question", body: `{"asked":1}`, refused: true},
		"NotAsked":   {reason: "an answer to another question", body: `{"asked":2,"lacking":["other"]}`, refused: true},
		"More":       {reason: "two answers", body: `{"asked":2}{"asked":2}`, refused: true},
		"Unfinished": {reason: "cut off", body: `{"asked":2,`, refused: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := readAnswer(strings.NewReader(tc.body), question)
			var lacking []string
			for name, lacks := range got.lacks {
				if lacks {
					lacking = append(lacking, name)
				}
			}
			if (err != nil) != tc.refused || !slices.Equal(lacking, tc.lacking) {
				t.Errorf("%s: %+v, %v", tc.reason, got, err)
			}
		})
	}
}

func TestLoadedHandler(t *testing.T) {
	large := `{"tiers":[` + strings.Repeat(`{"name":"free","uid":"u1","generation":3},`, 30_000) + `{}]}`
	for name, tc := range map[string]struct {
		reason       string
		method, body string
		table        *tier.Table
		disabled     bool
		code         int
		want         string
	}{
		"Has":          {reason: "that generation", body: `{"tiers":[{"name":"free","uid":"u1","generation":3}]}`, code: 200, want: `{"asked":1}`},
		"HasLater":     {reason: "whoever asks is late", body: `{"tiers":[{"name":"free","uid":"u1","generation":2}]}`, code: 200, want: `{"asked":1}`},
		"Earlier":      {reason: "it answers by an earlier spec", body: `{"tiers":[{"name":"free","uid":"u1","generation":4}]}`, code: 200, want: `{"asked":1,"lacking":["free"]}`},
		"Recreated":    {reason: "a tier of the same name that is another", body: `{"tiers":[{"name":"free","uid":"u2","generation":1}]}`, code: 200, want: `{"asked":1,"lacking":["free"]}`},
		"Unknown":      {reason: "it has never seen it", body: `{"tiers":[{"name":"pro","uid":"u3","generation":1},{"name":"free","uid":"u1","generation":3}]}`, code: 200, want: `{"asked":2,"lacking":["pro"]}`},
		"Nothing":      {reason: "a question about nothing", body: `{}`, code: 200, want: `{"asked":0}`},
		"Disabled":     {reason: "whatever is in force lets everything pass", body: `{}`, disabled: true, code: 200, want: `{"asked":0,"disabled":true}`},
		"NotYet":       {reason: "it would have everything lacking", body: `{}`, table: new(tier.Table), code: 503, want: "the tiers have not been loaded yet"},
		"GET":          {reason: "a question has a body", method: http.MethodGet, code: 405, want: "use POST"},
		"Empty":        {reason: "no question", body: ``, code: 400, want: "the question cannot be read: EOF"},
		"UnknownField": {reason: "it would be answered wrongly", body: `{"tiers":[{"name":"free","hash":"x"}]}`, code: 400, want: `the question cannot be read: json: unknown field "hash"`},
		"More":         {reason: "only the first would be answered", body: `{} {}`, code: 400, want: "the question cannot be read: there is more behind it"},
		"Garbage":      {reason: "no JSON", body: `tiers`, code: 400, want: "the question cannot be read: invalid character 'i' in literal true (expecting 'r')"},
		"TooLarge":     {reason: "bounded", body: large, code: 413, want: "the question cannot be read: http: request body too large"},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.method == "" {
				tc.method = http.MethodPost
			}
			if tc.table == nil {
				tc.table = loadedTable()
			}
			w := httptest.NewRecorder()
			LoadedHandler(tc.table, tc.disabled).ServeHTTP(w, httptest.NewRequest(tc.method, LoadedPath, strings.NewReader(tc.body)))
			if got := strings.TrimSpace(w.Body.String()); w.Code != tc.code || got != tc.want {
				t.Errorf("%s: %d %s, want %d %s", tc.reason, w.Code, got, tc.code, tc.want)
			}
		})
	}
}

// TestChunkFits writes the largest question that is asked.
func TestChunkFits(t *testing.T) {
	question := loadedQuestion{Tiers: make([]tierRef, chunk)}
	for i := range question.Tiers {
		question.Tiers[i] = tierRef{strings.Repeat("n", 253), strings.Repeat("u", 36), 1 << 62}
	}
	body, err := json.Marshal(question)
	if err != nil || len(body) > maxLoadedBytes {
		t.Errorf("%d bytes, %v; want at most %d", len(body), err, maxLoadedBytes)
	}
}

// FuzzLoaded asks anything. The answer is one of a few, and names only what was asked for.
func FuzzLoaded(f *testing.F) {
	for _, body := range []string{`{"tiers":[{"name":"free","uid":"u1","generation":4}]}`, `{}`, `{} {}`, `null`, `{"tiers":null}`, `{"tiers":[{}]}`,
		`{"tiers":[{"name":"\u0000","uid":"","generation":-1}]}`, `{"Tiers":[{"NAME":"x"}]}`} {
		f.Add(body)
	}
	handler := LoadedHandler(loadedTable(), false)
	f.Fuzz(func(t *testing.T, body string) {
		w := httptest.NewRecorder()
		handler.ServeHTTP(w, httptest.NewRequest(http.MethodPost, LoadedPath, strings.NewReader(body)))
		question, err := readQuestion(strings.NewReader(body))
		if (err == nil) != (w.Code == http.StatusOK) && len(body) <= maxLoadedBytes {
			t.Fatalf("%q is answered %d, read with %v", body, w.Code, err)
		}
		if w.Code != http.StatusOK {
			return
		}
		var answer loadedAnswer
		if err := json.Unmarshal(w.Body.Bytes(), &answer); err != nil {
			t.Fatalf("%q is answered %q: %v", body, w.Body, err)
		}
		if len(answer.Lacking) > len(question.Tiers) {
			t.Errorf("%q: %d tiers of %d are lacking", body, len(answer.Lacking), len(question.Tiers))
		}
	})
}

// TestAsksInChunks asks a replica for 10,000 tiers, then for one that has changed, and then for those
// that it lacks.
func TestAsksInChunks(t *testing.T) {
	const n = 10_000
	ctx, cancel := context.WithCancel(t.Context())
	tiers, wants := make([]*tier.Tier, n), make([]want, n)
	for i := range wants {
		tiers[i] = &tier.Tier{Name: tierNumber(i), UID: strconv.Itoa(i), Generation: 1}
		wants[i] = want{tierRef{tierNumber(i), strconv.Itoa(i), 1}, uint64(i + 1)}
	}
	var table tier.Table
	table.Replace(tiers)
	var questions atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		questions.Add(1)
		LoadedHandler(&table, false).ServeHTTP(w, r)
	}))
	defer server.Close()
	dial := func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, server.Listener.Addr().String())
	}
	d := &Discovery{Pod: "a", Port: "8081", Replicas: new(atomic.Int64), Log: logr.Discard(),
		running: ctx, slots: make(chan struct{}, maxAsked), client: newAskClient(dial)}
	defer d.followers.Wait()
	defer cancel()
	d.update([]endpoint{{key: "a", pod: "a"}, {key: "b", pod: "b", addresses: []string{"198.51.100.1"}}})
	ask := func(what string, latest uint64, updated int, most int64) {
		t.Helper()
		before := questions.Load()
		d.want(1, wants, latest)
		eventually(t, what, func() error {
			v, behind := d.view(), 0
			for i := range wants {
				if p := v.progress(wants[i].uid(), wants[i].number); !p.everywhere() {
					behind++
				}
			}
			if n-behind != updated || v.others[0].asked != latest {
				return fmt.Errorf("%d are in force everywhere, asked up to %d; want %d, %d", n-behind, v.others[0].asked, updated, latest)
			}
			return nil
		})
		if got := questions.Load() - before; got > most {
			t.Errorf("%s: %d questions, want at most %d", what, got, most)
		}
	}
	ask("all", n, n, n/chunk)
	wants = slices.Clone(wants)
	wants[7].Generation, wants[7].number = 2, n+1
	ask("one changed, which it lacks", n+1, n-1, 10)
	tiers = slices.Clone(tiers)
	tiers[7] = &tier.Tier{Name: tierNumber(7), UID: "7", Generation: 2}
	table.Replace(tiers)
	ask("it has it", n+1, n, 10)
	wants = slices.Clone(wants[:n-1])
	before := questions.Load()
	d.want(1, wants, n+1)
	time.Sleep(200 * time.Millisecond)
	if got := questions.Load() - before; got != 0 {
		t.Errorf("%d questions after one was deleted, want none", got)
	}
}
