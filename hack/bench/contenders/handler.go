// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package contenders

import (
	"fmt"
	"log"
	"net/http"
	"runtime/pprof"
	"strconv"
	"sync/atomic"
	"time"
)

// ProfilePath is where Handler answers with a CPU profile of the next seconds: ?seconds=3.
const ProfilePath = "/profile"

// Handler answers GET /check?tier=...&user=... with 200 or 429 and three headers, or with 500 when
// the engine fails; and GET /metrics with the number of each, in Prometheus's format and under the
// name that Tierlimit gives it.
func Handler(engine Engine) http.Handler {
	h := &handler{engine: engine}
	mux := http.NewServeMux()
	if _, bare := engine.(floor); bare {
		mux.HandleFunc("/check", h.bare)
	} else {
		mux.HandleFunc("/check", h.check)
	}
	mux.HandleFunc("/metrics", h.metrics)
	mux.HandleFunc(ProfilePath, profile)
	return mux
}

type handler struct {
	engine                     Engine
	admitted, rejected, failed atomic.Int64
}

// bare reads nothing of the request.
func (h *handler) bare(w http.ResponseWriter, _ *http.Request) {
	h.admitted.Add(1)
	h.answer(w, Verdict{Allowed: true, Remaining: 999_999})
}

func (h *handler) check(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limits, ok := Tiers[query.Get("tier")]
	if !ok {
		h.failed.Add(1)
		http.Error(w, "no such tier", http.StatusBadRequest)
		return
	}
	verdict, err := h.engine.Check(r.Context(), query.Get("user"), limits)
	switch {
	case err != nil:
		if h.failed.Add(1) == 1 { // one is enough to see what is wrong
			log.Printf("the first check that failed: %v", err)
		}
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	case verdict.Allowed:
		h.admitted.Add(1)
	default:
		h.rejected.Add(1)
	}
	h.answer(w, verdict)
}

func (h *handler) answer(w http.ResponseWriter, verdict Verdict) {
	header := w.Header()
	header.Set("X-Ratelimit-Remaining", strconv.FormatInt(verdict.Remaining, 10))
	header.Set("X-Ratelimit-Window", "minute")
	if verdict.Allowed {
		header.Set("X-Ratelimit-Limit", "1000000")
		return
	}
	header.Set("Retry-After", strconv.FormatInt(int64((verdict.RetryAfter+time.Second-1)/time.Second), 10))
	w.WriteHeader(http.StatusTooManyRequests)
}

func (h *handler) metrics(w http.ResponseWriter, _ *http.Request) {
	for outcome, count := range map[string]int64{"admitted": h.admitted.Load(), "rejected": h.rejected.Load(), "failed": h.failed.Load()} {
		fmt.Fprintf(w, "tierlimit_checks_total{outcome=%q} %d\n", outcome, count)
	}
}

func profile(w http.ResponseWriter, r *http.Request) {
	seconds, err := strconv.Atoi(r.URL.Query().Get("seconds"))
	if err == nil {
		err = pprof.StartCPUProfile(w)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	defer pprof.StopCPUProfile()
	select {
	case <-time.After(time.Duration(seconds) * time.Second):
	case <-r.Context().Done():
	}
}
