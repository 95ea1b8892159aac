// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package proxytest

import (
	"net"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/tierlimit/tierlimit/internal/redistest"
	"github.com/tierlimit/tierlimit/internal/tier"
	"github.com/tierlimit/tierlimit/internal/webhookserver"
	"github.com/tierlimit/tierlimit/pkg/limiter"
)

// Check is a check endpoint over a real Redis.
type Check struct {
	*webhookserver.Handler
	Redis *redistest.Server
	Tiers *tier.Table

	server *httptest.Server
	mu     sync.Mutex
	asked  []*http.Request
}

// StartCheck runs a check endpoint with these tiers until the test ends. The default tier is
// "free". The function, unless nil, changes the options.
func StartCheck(t testing.TB, options func(*webhookserver.Options), tiers ...*tier.Tier) *Check {
	t.Helper()
	c := &Check{Redis: redistest.Start(t), Tiers: new(tier.Table)}
	c.Tiers.Replace(tiers)
	client, err := limiter.NewClient(c.Redis.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() })
	window, err := limiter.NewSlidingWindow(client, limiter.Options{Timeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	o := webhookserver.Options{Tiers: c.Tiers, Limiter: window, DefaultTier: "free", Log: logr.Discard(),
		Metrics: webhookserver.NewMetrics(prometheus.NewRegistry(), c.Tiers, false, func() int64 { return 1 })}
	if options != nil {
		options(&o)
	}
	c.Handler = webhookserver.NewHandler(o)
	c.server = httptest.NewUnstartedServer(c)
	c.server.Config = webhookserver.NewHTTPServer(c)
	c.server.Start()
	t.Cleanup(c.server.Close)
	return c
}

// Address is the host:port of the endpoint.
func (c *Check) Address() string { return c.server.Listener.Addr().String() }

// Port is the port of the endpoint.
func (c *Check) Port() int { return c.server.Listener.Addr().(*net.TCPAddr).Port }

// Asked returns the checks that were asked for, and forgets them.
func (c *Check) Asked() []*http.Request {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.asked
	c.asked = nil
	return asked
}

// ServeHTTP answers one check and takes note of it.
func (c *Check) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	c.asked = append(c.asked, r.Clone(r.Context())) // as it came: the handler may change it
	c.mu.Unlock()
	c.Handler.ServeHTTP(w, r)
}

// Tier returns a tier of so many requests in any stretch of this length.
func Tier(name string, requests int64, window time.Duration, change ...func(*tier.Tier)) *tier.Tier {
	t := &tier.Tier{Name: name, Limits: []limiter.Limit{{Requests: requests, Window: window}}}
	for _, c := range change {
		c(t)
	}
	return t
}
