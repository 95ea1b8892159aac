// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package limiter

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/tierlimit/tierlimit/internal/redistest"
)

// gate is a hook that can hold up batches on their way, as a dead connection does.
type gate struct {
	redis.Hook // nil: what a pipeline does not need panics
	mu         sync.Mutex
	sizes      []int         // of the batches
	hold       int           // so many of the next batches are held up
	open       chan struct{} // lets them go on
}

func (g *gate) DialHook(next redis.DialHook) redis.DialHook          { return next }
func (g *gate) ProcessHook(next redis.ProcessHook) redis.ProcessHook { return next }

func (g *gate) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, commands []redis.Cmder) error {
		if name := commands[0].Name(); name != "evalsha" && name != "eval" {
			return next(ctx, commands) // of the connection's beginning
		}
		g.mu.Lock()
		g.sizes = append(g.sizes, len(commands))
		held := g.hold > 0
		if held {
			g.hold--
		}
		g.mu.Unlock()
		if held {
			select {
			case <-g.open:
			case <-ctx.Done():
			}
		}
		return next(ctx, commands)
	}
}

// startGated returns a limiter that has asked once, and the gate of its client, which holds up the
// next batches.
func startGated(t *testing.T, hold int) (*SlidingWindow, *gate) {
	t.Helper()
	g := &gate{open: make(chan struct{})}
	client := must(NewClient(redistest.Start(t).URL()))(t)
	t.Cleanup(func() { _ = client.Close() })
	client.AddHook(g)
	s := must(NewSlidingWindow(client, Options{Timeout: patience}))(t)
	admit(t, s, 1, Limit{1000, time.Hour})
	g.sizes, g.hold = nil, hold
	return s, g
}

func (g *gate) held() (waiting, batches int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hold, len(g.sizes)
}

func TestCallsThatComeTogetherShareRoundTrips(t *testing.T) {
	const calls = 500
	s, g := startGated(t, maxFlights)
	var answered atomic.Int64
	var wait sync.WaitGroup
	for i := range calls {
		wait.Go(func() {
			if d, err := s.Check(context.Background(), user, MaxRequests, time.Minute); err != nil || !d.Allowed {
				t.Errorf("got %+v, %v", d, err)
			}
			answered.Add(1)
		})
		if i < maxFlights { // each takes off alone
			eventually(t, "the batch is on its way", func() bool { hold, _ := g.held(); return hold == maxFlights-1-i })
		}
	}
	eventually(t, "all others were answered past those that are held up", func() bool { return answered.Load() == calls-maxFlights })
	close(g.open)
	wait.Wait()
	sum, largest := 0, 0
	for _, n := range g.sizes {
		sum, largest = sum+n, max(largest, n)
	}
	if sum != calls || largest > maxBatch || len(g.sizes) > calls/4 {
		t.Errorf("%d calls in %d batches, the largest of %d; want all of %d calls, much fewer batches, none above %d", sum, len(g.sizes), largest, calls, maxBatch)
	}
}

func TestDeadConnectionHoldsUpNobodyElse(t *testing.T) {
	for name, dead := range map[string]int{"One": 1, "AsManyAsFly": maxFlights, "More": 2 * maxFlights} {
		t.Run(name, func(t *testing.T) {
			s, g := startGated(t, dead)
			var wait sync.WaitGroup
			for i := range dead {
				wait.Go(func() { check(t, s, Limit{1000, time.Hour}) })
				eventually(t, "the batch is on its way", func() bool { hold, _ := g.held(); return hold <= dead-1-i })
			}
			for range 20 {
				check(t, s, Limit{1000, time.Minute}) // returns while the others still wait
			}
			close(g.open)
			wait.Wait()
		})
	}
}

// Batches that were late, and alarms that were late themselves, leave no trace.
func TestEveryFlightIsCountedOnce(t *testing.T) {
	s, g := startGated(t, 3*maxFlights)
	p := s.store.(*server).pipeline
	var wait sync.WaitGroup
	for range 300 {
		wait.Go(func() { check(t, s, Limit{1000, time.Hour}) })
	}
	eventually(t, "all batches that are held up are late", func() bool {
		hold, _ := g.held()
		p.mu.Lock()
		defer p.mu.Unlock()
		return hold == 0 && p.flights == 0
	})
	close(g.open)
	wait.Wait()
	over := &flight{}
	p.next(over) // has nothing to go on with
	p.isLate(over, 0)
	p.isLate(over, 1)
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.flights != -1 { // this flight was never counted
		t.Errorf("%d flights are counted while nothing is on its way, want 0", p.flights+1)
	}
}

func TestSlowRedisIsHeard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	proxy := redistest.StartProxy(t, server.Addr())
	s := within(t, proxy.URL(), 1, 6*time.Second)[0]
	limit := Limit{10, time.Hour}
	admit(t, s, 1, limit)
	proxy.Delay(2 * time.Second)
	if got, want := check(t, s, limit), (verdict{Allowed: true, Limit: limit, Remaining: 8}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	proxy.Delay(0)
	if got := card(t, server, key(time.Hour)); got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
}

func TestImpatientCallersDoNotOpenTheCircuit(t *testing.T) {
	server, s, _ := start(t)
	admit(t, s, 1, Limit{1000, time.Hour})
	server.Freeze()
	for range 3 * tripAfter {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := s.Check(ctx, user, 1000, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v, want the caller's deadline", err)
		}
		cancel()
	}
	server.Thaw()
	if s.CircuitOpen() {
		t.Error("the circuit is open, and Redis was given a millisecond each")
	}
	admit(t, s, 1, Limit{1000, time.Hour})
}

func TestCallerLeavesAtItsOwnDeadline(t *testing.T) {
	s, g := startGated(t, 1)
	patient := make(chan error, 1)
	go func() {
		_, err := s.Check(context.Background(), user, 1000, time.Hour)
		patient <- err
	}()
	eventually(t, "the batch is on its way", func() bool { hold, _ := g.held(); return hold == 0 })
	g.mu.Lock()
	g.hold = 1
	g.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Millisecond)
	defer cancel()
	if _, err := s.Check(ctx, user, 1000, time.Hour); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want the caller's deadline", err)
	}
	select {
	case err := <-patient:
		t.Errorf("a caller with a longer deadline was answered as well: %v", err)
	default:
	}
	close(g.open)
	if err := <-patient; err != nil {
		t.Error(err)
	}
}

// A connection obeys deadlines only, but a caller that may cancel does not wait on one itself.
func TestCallerThatCancelsLeavesAtOnce(t *testing.T) {
	s, g := startGated(t, 1)
	ctx, cancel := context.WithCancel(context.Background())
	left := make(chan error, 1)
	go func() {
		_, err := s.Check(ctx, user, 1000, time.Hour)
		left <- err
	}()
	eventually(t, "the batch is on its way", func() bool { hold, _ := g.held(); return hold == 0 })
	cancel()
	if err := <-left; !errors.Is(err, context.Canceled) { // while the batch is still held up
		t.Errorf("got %v, want that the caller has left", err)
	}
	close(g.open)
}

// droppable is a connection that a firewall can drop without a word.
type droppable struct {
	net.Conn
	dropped *atomic.Bool
	once    sync.Once
	mine    bool
}

func (d *droppable) isDropped() bool {
	d.once.Do(func() { d.mine = d.dropped.Load() }) // one that is made after the drop is another
	return d.dropped.Load() && !d.mine
}

func (d *droppable) Write(b []byte) (int, error) {
	if d.isDropped() {
		return len(b), nil
	}
	return d.Conn.Write(b)
}

func TestSilentlyDroppedConnectionCostsNoCheck(t *testing.T) {
	server := redistest.Start(t)
	var dropped atomic.Bool
	client := redis.NewClient(&redis.Options{
		Addr: server.Addr(), ContextTimeoutEnabled: true, MaxRetries: -1,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, addr)
			if err != nil {
				return nil, err
			}
			d := &droppable{Conn: conn, dropped: &dropped}
			d.isDropped()
			return d, nil
		},
	})
	t.Cleanup(func() { _ = client.Close() })
	s := must(NewSlidingWindow(client, Options{Timeout: 8 * time.Second}))(t)
	limit := Limit{10, time.Hour}
	admit(t, s, 1, limit)
	dropped.Store(true)
	if got, want := check(t, s, limit), (verdict{Allowed: true, Limit: limit, Remaining: 8}); got != want {
		t.Errorf("got %+v, want %+v over another connection", got, want)
	}
	if got := card(t, server, key(time.Hour)); got != 2 {
		t.Errorf("%d entries, want 2", got)
	}
}

func TestCircuit(t *testing.T) {
	fails := map[string]struct {
		reason string
		err    error
		opens  bool
	}{
		"NoConnection": {"Nobody is there.", &net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		"Deadline":     {"Nobody answers.", context.DeadlineExceeded, true},
		"ClientClosed": {"Nobody can be asked.", redis.ErrClosed, true},
		"Canceled":     {"The caller has left; that says nothing about Redis.", callerLeft{context.Canceled}, false},
		"NoError":      {"All is well.", nil, false},
	}
	for name, tc := range fails {
		t.Run(name, func(t *testing.T) {
			b := newBreaker()
			for range tripAfter {
				_, _ = b.do(func() (any, error) { return nil, tc.err })
			}
			_, err := b.do(func() (any, error) { return nil, nil })
			if got := errors.Is(err, ErrCircuitOpen); got != tc.opens || b.open() != tc.opens {
				t.Errorf("%s open: %v, %v; want %v", tc.reason, got, b.open(), tc.opens)
			}
		})
	}
}

// Errors that Redis answers with, from a real one.
func TestCircuitStaysClosedWhileRedisAnswers(t *testing.T) {
	server, s, _ := start(t)
	server.Client.Set(context.Background(), key(time.Minute), "x", 0)
	for range 2 * tripAfter {
		if _, err := s.Check(context.Background(), user, 5, time.Minute); err == nil || errors.Is(err, ErrCircuitOpen) {
			t.Fatalf("got %v, want WRONGTYPE", err)
		}
	}
	if d, err := s.Check(context.Background(), "other", 5, time.Minute); err != nil || !d.Allowed {
		t.Errorf("another user: %+v, %v", d, err)
	}
}

func TestCircuitOpensWhileRedisHasNoData(t *testing.T) {
	server, s, _ := start(t)
	server.Client.ConfigSet(context.Background(), "replica-serve-stale-data", "no")
	server.Client.Do(context.Background(), "REPLICAOF", "127.0.0.1", "1") // MASTERDOWN
	var err error
	for range 2 * tripAfter {
		_, err = s.Check(context.Background(), user, 5, time.Minute)
	}
	if !errors.Is(err, ErrCircuitOpen) || !s.CircuitOpen() {
		t.Errorf("got %v, want that the circuit is open", err)
	}
	server.Client.Do(context.Background(), "REPLICAOF", "NO", "ONE")
	eventually(t, "checks are answered again", func() bool {
		_, err := s.Check(context.Background(), user, 5, time.Minute)
		return err == nil
	})
	if s.CircuitOpen() {
		t.Error("the circuit is still open")
	}
}
