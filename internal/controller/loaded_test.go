// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// loadedTable has generation 3 of free in force.
func loadedTable() *tier.Table {
	var table tier.Table
	table.Replace([]*tier.Tier{{Name: "free", UID: "u1", Generation: 3}})
	return &table
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
		"Has":          {reason: "that generation", body: `{"tiers":[{"name":"free","uid":"u1","generation":3}]}`, code: 200, want: `{}`},
		"HasLater":     {reason: "whoever asks is late", body: `{"tiers":[{"name":"free","uid":"u1","generation":2}]}`, code: 200, want: `{}`},
		"Earlier":      {reason: "it answers by an earlier spec", body: `{"tiers":[{"name":"free","uid":"u1","generation":4}]}`, code: 200, want: `{"lacking":["free"]}`},
		"Recreated":    {reason: "a tier of the same name that is another", body: `{"tiers":[{"name":"free","uid":"u2","generation":1}]}`, code: 200, want: `{"lacking":["free"]}`},
		"Unknown":      {reason: "it has never seen it", body: `{"tiers":[{"name":"pro","uid":"u3","generation":1},{"name":"free","uid":"u1","generation":3}]}`, code: 200, want: `{"lacking":["pro"]}`},
		"Nothing":      {reason: "a question about nothing", body: `{}`, code: 200, want: `{}`},
		"Disabled":     {reason: "whatever is in force lets everything pass", body: `{}`, disabled: true, code: 200, want: `{"disabled":true}`},
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
