// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package drills

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tierlimit/tierlimit/internal/processtest"
)

// hang is when a check counts as never answered.
const hang = time.Minute

var (
	// errRefused says that there was no connection, so that nothing was sent: a proxy asks another replica.
	errRefused = errors.New("the connection was refused")
	// errNeverTaken says that the kernel had taken a connection which the process never did, and reset it:
	// the check was not seen by anybody.
	errNeverTaken = errors.New("the connection was never taken")
	// errNobody says that the balancer had no replica to ask.
	errNobody = errors.New("no replica")
)

// answer is what became of one check.
type answer struct {
	user           string
	replica        *processtest.Process
	sent, received time.Time
	status         int // 0 if err is set
	header         http.Header
	err            error
}

// took is how long it took.
func (a answer) took() time.Duration { return a.received.Sub(a.sent) }

// enforcement is why no budget in Redis decided; "" is that one did.
func (a answer) enforcement() string { return a.header.Get("X-Tierlimit-Enforcement") }

// decided returns whether Redis has decided.
func (a answer) decided() bool {
	return (a.status == http.StatusOK || a.status == http.StatusTooManyRequests) && a.enforcement() == ""
}

func (a answer) admitted() bool { return a.decided() && a.status == http.StatusOK }

// load is clients that make checks one after the other, over connections that they keep, as a proxy's
// workers do. Nothing is asked again but what was refused before it was sent.
type load struct {
	t        *testing.T
	balancer *balancer
	// stubborn clients go on asking a replica that asks to close the connection, over another.
	stubborn bool

	stop context.CancelFunc
	wait sync.WaitGroup

	mu      sync.Mutex
	answers []answer
}

// begin starts clients that each make a check every so often, or as soon as the last one is answered if
// that takes longer: the queries in turn. They end with the test at the latest.
func (b *balancer) begin(t *testing.T, clients int, every time.Duration, queries ...string) *load {
	t.Helper()
	return (&load{t: t, balancer: b}).begin(clients, every, queries...)
}

func (l *load) begin(clients int, every time.Duration, queries ...string) *load {
	l.t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	l.t.Cleanup(func() { l.end() })
	for i := range clients {
		l.wait.Go(func() {
			connections := map[*target]*connection{}
			defer func() {
				for _, c := range connections {
					_ = c.Close()
				}
			}()
			for n := i; ctx.Err() == nil; n++ {
				next := time.Now().Add(every)
				l.check(connections, queries[n%len(queries)])
				time.Sleep(time.Until(next))
			}
		})
	}
	return l
}

// check makes one check, of as many replicas as refuse it.
func (l *load) check(connections map[*target]*connection, query string) {
	for range 10 {
		of := l.balancer.pick()
		if of == nil {
			l.record(answer{user: userOf(query), sent: time.Now(), received: time.Now(), err: errNobody})
			time.Sleep(10 * time.Millisecond)
			return
		}
		c := connections[of]
		var a answer
		if c == nil {
			if c, a = dial(of.process, query); a.err != nil {
				l.balancer.mark(of, true, false)
				l.record(a)
				continue
			}
			connections[of] = c
		}
		a = c.ask(query)
		l.record(a)
		if a.err != nil || a.header.Get("Connection") == "close" {
			_ = c.Close()
			delete(connections, of)
			l.balancer.mark(of, false, !l.stubborn)
		}
		if !errors.Is(a.err, errNeverTaken) {
			return
		}
	}
}

func (l *load) record(a answer) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.answers = append(l.answers, a)
}

// all returns the answers until now for which a condition is true.
func (l *load) all(is func(answer) bool) answers {
	l.mu.Lock()
	defer l.mu.Unlock()
	return answers(l.answers).all(is)
}

// end ends the clients and returns all answers.
func (l *load) end() answers {
	l.stop()
	l.wait.Wait()
	return l.answers
}

// connection is one to a replica.
type connection struct {
	net.Conn
	process *processtest.Process
	reader  *bufio.Reader
	used    bool // it has had an answer
}

// dial opens a connection. If there is none, that is the answer to the query.
func dial(p *processtest.Process, query string) (*connection, answer) {
	a := answer{user: userOf(query), replica: p, sent: time.Now()}
	c, err := net.DialTimeout("tcp", p.Check, hang)
	if err != nil {
		a.received, a.err = time.Now(), fmt.Errorf("%w: %w", errRefused, err)
		return nil, a
	}
	return &connection{Conn: c, process: p, reader: bufio.NewReader(c)}, a
}

// ask makes a check. It does not repeat what fails.
func (c *connection) ask(query string, headers ...string) answer {
	a := answer{user: userOf(query), replica: c.process, sent: time.Now()}
	_ = c.SetDeadline(a.sent.Add(hang))
	response, err := c.exchange(query, headers)
	a.received = time.Now()
	switch {
	case err == nil:
		a.status, a.header = response.StatusCode, response.Header
		if response.Close { // net/http takes it out of the header
			a.header.Set("Connection", "close")
		}
		c.used = true
	case !c.used && (errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)):
		a.err = errNeverTaken
	default:
		a.err = fmt.Errorf("a check was cut off: %w", err)
	}
	return a
}

func (c *connection) exchange(query string, headers []string) (*http.Response, error) {
	request := "GET /check?" + query + " HTTP/1.1\r\nHost: tierlimit\r\n"
	for i := 0; i+1 < len(headers); i += 2 {
		request += headers[i] + ": " + headers[i+1] + "\r\n"
	}
	if _, err := io.WriteString(c, request+"\r\n"); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(c.reader, nil)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return response, err
}

// ask makes one check of a replica, with headers: name, value, name, value.
func ask(t *testing.T, p *processtest.Process, query string, headers ...string) answer {
	t.Helper()
	c, a := dial(p, query)
	if a.err == nil {
		defer c.Close()
		a = c.ask(query, headers...)
	}
	if a.err != nil {
		t.Fatalf("%s: %v", query, a.err)
	}
	return a
}

func userOf(query string) string {
	values, _ := url.ParseQuery(query)
	return values.Get("user")
}
