// Copyright The Tierlimit Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/tierlimit/tierlimit/internal/tier"
)

// TestReadyWaitsForEveryReplica holds up one of three replicas, and then lets it go on.
func TestReadyWaitsForEveryReplica(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	a, b, last := f.start("a", false), f.start("b", false), f.start("c", false)
	f.endpoints(a, b, last)
	create(t, c, object("free"))
	eventually(t, "in force everywhere", f.stands("free", "InForce 3/3"))

	last.blocked.Lock()
	update(t, c, "free", perMinute(6))
	eventually(t, "one is held up", f.stands("free", "RollingOut 2/3"))
	if got := readyMessage(t, c, "free"); !strings.Contains(got, "waiting for c.") {
		t.Errorf("the message does not name it: %s", got)
	}
	f.quiet()
	if err := f.stands("free", "RollingOut 2/3")(); err != nil {
		t.Error(err)
	}
	last.blocked.Unlock()
	eventually(t, "in force everywhere", f.stands("free", "InForce 3/3"))
}

// TestKubectlWait changes a tier 20 times. When kubectl says that it is ready, no replica has an earlier
// generation. One replica is slow.
func TestKubectlWait(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	members := []*member{f.start("a", false), f.start("b", false), f.start("c", false)}
	f.endpoints(members...)
	create(t, c, object("free"))
	kubeconfig := cluster.Kubeconfig(t, "admin", "system:masters")
	for n := range int32(20) {
		slow := members[n%3]
		slow.blocked.Lock()
		time.AfterFunc(time.Duration(n%4)*200*time.Millisecond, slow.blocked.Unlock)
		update(t, c, "free", perMinute(10+n))
		cluster.MustKubectl(t, kubeconfig, "", "wait", "--for=condition=Ready", "--timeout=30s", "ratelimittier/free")
		want := fmt.Sprintf("%d per 1m0s", 10+n)
		for _, m := range members {
			if got := m.table.Lookup("free").String(); got != want {
				t.Errorf("change %d: kubectl says that it is ready, but replica %s answers by %s, want %s", n, m.name, got, want)
			}
		}
	}
}

// TestReplicasComeAndGo has the one that lags, a new one and the reporter itself come and go.
func TestReplicasComeAndGo(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	a, b, lagging := f.start("a", false), f.start("b", false), f.start("c", false)
	f.endpoints(a, b, lagging)
	create(t, c, object("free"))
	eventually(t, "in force everywhere", f.stands("free", "InForce 3/3"))

	lagging.blocked.Lock()
	update(t, c, "free", perMinute(6))
	eventually(t, "one lags", f.stands("free", "RollingOut 2/3"))
	f.endpoints(a, b)
	eventually(t, "it counts no more, once it is gone", f.stands("free", "InForce 2/2"))
	f.endpoints(a, b, lagging)
	eventually(t, "nor is a tier ready that a new replica lacks", f.stands("free", "RollingOut 2/3"))
	f.slice.Endpoints[2].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(false)}
	f.update()
	eventually(t, "nor does it count while it is not ready", f.stands("free", "InForce 2/2"))
	lagging.blocked.Unlock()

	fresh := f.start("0", false) // its name is the smallest: it reports
	f.endpoints(a, b, fresh)
	update(t, c, "free", perMinute(7))
	eventually(t, "a new replica reports", f.stands("free", "InForce 3/3"))
	fresh.stop()
	f.endpoints(a, b)
	update(t, c, "free", perMinute(8))
	eventually(t, "when it goes, another does", f.stands("free", "InForce 2/2"))
}

// TestStoppingReplica has a replica that is about to stop, and still serves, by an earlier spec.
func TestStoppingReplica(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	a, b := f.start("a", false), f.start("b", false)
	f.endpoints(a, b)
	create(t, c, object("free"))
	eventually(t, "in force everywhere", f.stands("free", "InForce 2/2"))
	b.blocked.Lock()
	f.slice.Endpoints[1].Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: ptr.To(true), Terminating: ptr.To(true)}
	f.update()
	update(t, c, "free", perMinute(6))
	eventually(t, "it does not count, but is waited for", f.stands("free", "RollingOut 1/1"))
	b.blocked.Unlock()
	b.stop()
	eventually(t, "it is not waited for once it does not answer", f.stands("free", "InForce 1/1"))
}

// TestFrozenReplica has an endpoint that takes connections and does not answer.
func TestFrozenReplica(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	a := f.start("a", false)
	frozen := &member{name: "frozen", address: "198.51.100.99", table: new(tier.Table)}
	listener, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	f.mu.Lock()
	f.dialed[frozen.address+":8081"] = listener.Addr().String()
	f.mu.Unlock()
	f.endpoints(a, frozen)
	create(t, c, object("free"))
	eventually(t, "it holds Ready up", f.stands("free", "ReplicaUnreachable 1/2"))
	if got := readyMessage(t, c, "free"); !strings.Contains(got, "frozen cannot be asked on port 8081") || !strings.Contains(got, "NetworkPolicy") {
		t.Errorf("the message does not say who and what to do: %s", got)
	}
	if got := a.table.Lookup("free"); got == nil {
		t.Error("the others do not answer by the new tier")
	}
	thawed := httptest.NewServer(LoadedHandler(a.table, false))
	defer thawed.Close()
	f.mu.Lock()
	f.dialed[frozen.address+":8081"] = thawed.Listener.Addr().String()
	f.mu.Unlock()
	eventually(t, "it goes on", f.stands("free", "InForce 2/2"))
}

// TestManyReplicas has 50 replicas, most of which only answer questions, some of them late.
func TestManyReplicas(t *testing.T) {
	const replicas = 50
	f, c := newFleet(t), newClient(t)
	reporter := f.start("a", false)
	members := []*member{reporter}
	for i := range replicas - 1 {
		m := f.serve(fmt.Sprintf("b-%02d", i), false)
		t.Cleanup(m.server.Close)
		members = append(members, m)
	}
	follow := func(ms []*member) { // they have what the reporter has
		for _, m := range ms {
			m.table.Replace(reporter.table.All())
		}
	}
	follow(members[1:])
	f.endpoints(members...)
	create(t, c, object("free"))
	eventually(t, "in the reporter's table", inTables([]*replica{{table: reporter.table}}, "free", "5 per 1m0s"))
	follow(members[1:])
	eventually(t, "in force everywhere", f.stands("free", "InForce 50/50"))
	f.quiet()

	for name, tc := range map[string]struct {
		reason string
		late   int // replicas that follow one after the other
		writes int64
	}{
		"Together":        {"one write is enough", 0, 1},
		"OneAfterAnother": {"not one for each", 20, 2},
	} {
		writes, asked := f.writes.Load(), f.asked.Load()
		limit := int32(len(name))
		start := time.Now()
		update(t, c, "free", perMinute(limit))
		eventually(t, "in the reporter's table", inTables([]*replica{{table: reporter.table}}, "free", fmt.Sprintf("%d per 1m0s", limit)))
		follow(members[1 : replicas-tc.late])
		for _, m := range members[replicas-tc.late:] {
			time.Sleep(50 * time.Millisecond)
			follow([]*member{m})
		}
		eventually(t, "in force everywhere", f.stands("free", "InForce 50/50"))
		took := time.Since(start)
		f.quiet()
		writes, asked = f.writes.Load()-writes, f.asked.Load()-asked
		t.Logf("%s: ready after %v, %d writes, %d questions", name, took, writes, asked)
		if writes > tc.writes {
			t.Errorf("%s: %d writes of status, want at most %d: %s", name, writes, tc.writes, tc.reason)
		}
		// Those that follow at once are asked twice or three times, the others until they do.
		if most := int64(replicas * 12); asked > most {
			t.Errorf("%s: %d questions, want at most %d", name, asked, most)
		}
	}
	before := f.asked.Load()
	time.Sleep(3 * time.Second)
	if n := f.asked.Load() - before; n != 0 {
		t.Errorf("%d questions while nothing changed", n)
	}
}

// TestDisabledOnOne has RATE_LIMIT_DISABLED set in one of three replicas that does not report.
func TestDisabledOnOne(t *testing.T) {
	f, c := newFleet(t), newClient(t)
	a, b, off := f.start("a", false), f.start("b", false), f.start("c", true)
	f.endpoints(a, b, off)
	create(t, c, object("off"))
	eventually(t, "in force, and not enforced", hasReasons(t, c, "off", "InForce/GloballyDisabled"))
	if got := get(t, c, "off").Status.Conditions[1].Message; !strings.Contains(got, "on 1 of 3 replicas") {
		t.Errorf("the message does not say where: %s", got)
	}
	f.endpoints(a, b)
	eventually(t, "it is gone", hasReasons(t, c, "off", "InForce/Enforcing"))
	exactly(t, "off", map[string]int{"Warning GloballyDisabled": 1, "Normal Enforcing": 1})
}

// TestOtherNumbersAreWrittenSlowly changes the number of replicas back and forth, and then for good.
func TestOtherNumbersAreWrittenSlowly(t *testing.T) {
	const tiers = 30
	f, c := newFleet(t), newClient(t)
	a, b := f.start("a", false), f.start("b", false)
	f.endpoints(a, b)
	createMany(t, c, tiers)
	eventually(t, "all are reported", allReported(t, c))
	f.quiet()
	writes := f.writes.Load()
	for range 3 {
		f.endpoints(a)
		time.Sleep(200 * time.Millisecond)
		f.endpoints(a, b)
		time.Sleep(200 * time.Millisecond)
	}
	f.endpoints(a)
	if n := f.writes.Load() - writes; n != 0 {
		t.Errorf("%d writes while the number changed", n)
	}
	eventually(t, "the last number is written", func() error {
		for i := range tiers {
			if err := f.stands(tierNumber(i), "InForce 1/1")(); err != nil {
				return err
			}
		}
		return nil
	})
	f.quiet()
	if n := f.writes.Load() - writes; n != tiers {
		t.Errorf("%d writes for another number in %d tiers, want one for each", n, tiers)
	}
}
