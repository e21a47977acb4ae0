package policy

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// naive counts by looking at every event again.
type naive struct {
	clause, principal, session string
	at                         time.Time
}

// TestMonitors is R11: monitors equal a naive re-evaluation over all events.
func TestMonitors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := map[string]Limit{}
		for i := range 3 {
			limits[fmt.Sprint("c", i)] = Limit{
				Count:      rapid.Int64Range(0, 20).Draw(t, "count"),
				Window:     time.Duration(rapid.IntRange(0, 5).Draw(t, "window")) * time.Minute,
				PerSession: rapid.Bool().Draw(t, "per session"),
			}
		}
		m, again := NewMonitors(limits), NewMonitors(limits)
		var events []naive
		count := func(e naive) int64 {
			l, n := limits[e.clause], int64(0)
			for _, o := range events {
				same := o.clause == e.clause && o.principal == e.principal
				if l.PerSession || l.Window == 0 {
					same = same && o.session == e.session
				}
				if same && (l.Window == 0 || o.at.After(e.at.Add(-l.Window))) {
					n++
				}
			}
			return n
		}
		now := time.Unix(1000, 0)
		for range rapid.IntRange(0, 100).Draw(t, "events") {
			now = now.Add(time.Duration(rapid.IntRange(0, 90).Draw(t, "gap")) * time.Second)
			e := naive{
				clause:    fmt.Sprint("c", rapid.IntRange(0, 3).Draw(t, "clause")),
				principal: rapid.SampledFrom([]string{"p/a", "p/b"}).Draw(t, "principal"),
				session:   rapid.SampledFrom([]string{"s1", "s2"}).Draw(t, "session"),
				at:        now,
			}
			times := rapid.IntRange(1, 2).Draw(t, "times")
			room := count(e)+int64(times) <= limits[e.clause].Count
			took := m.Take([]string{e.clause, e.clause}[:times], e.principal, e.session, now)
			if took != room {
				t.Fatalf("%v: took %t, want %t", e, took, room)
			}
			for range times {
				if took {
					events = append(events, e)
					again.Replay(e.clause, e.principal, e.session, now)
				}
			}
			for _, m := range []*Monitors{m, again} {
				if got := m.Counts(e.principal, e.session, now)(e.clause); got != count(e) {
					t.Fatalf("%v: count %d, want %d", e, got, count(e))
				}
			}
		}
	})
}

func TestMonitorsReplayPastTheLimit(t *testing.T) {
	m := NewMonitors(map[string]Limit{"c1": {Count: 2, Window: time.Hour}})
	for i := range 5 {
		m.Replay("c1", "p/a", "s", time.Unix(int64(i), 0))
	}
	m.Replay("c2", "p/a", "s", time.Unix(0, 0))
	if n := m.Counts("p/a", "s", time.Unix(5, 0))("c1"); n != 2 {
		t.Errorf("count %d, want 2", n)
	}
	if n := m.Counts("p/a", "s", time.Unix(3603, 0))("c1"); n != 1 {
		t.Errorf("count an hour after the last but one: %d, want 1", n)
	}
}

func TestMonitorsClockSetBack(t *testing.T) {
	m := NewMonitors(map[string]Limit{"c1": {Count: 2, Window: time.Minute}})
	for _, sec := range []int64{1000, 10} {
		if !m.Take([]string{"c1"}, "p/a", "s", time.Unix(sec, 0)) {
			t.Fatal("no room")
		}
	}
	if m.Take([]string{"c1"}, "p/a", "s", time.Unix(500, 0)) {
		t.Error("setting the clock back made room")
	}
}

func TestMonitorsEnd(t *testing.T) {
	m := NewMonitors(map[string]Limit{"c1": {Count: 1}, "c2": {Count: 1, Window: time.Hour}})
	now := time.Unix(0, 0)
	m.Take([]string{"c1", "c2"}, "p/a", "s", now)
	m.End("")
	m.End("other")
	m.End("s")
	count := m.Counts("p/a", "s", now)
	if count("c1") != 0 || count("c2") != 1 {
		t.Errorf("counts %d, %d, want 0, 1", count("c1"), count("c2"))
	}
}

func BenchmarkMonitors(b *testing.B) {
	m := NewMonitors(map[string]Limit{"c1": {Count: 1000, Window: time.Minute}})
	now := time.Unix(0, 0)
	limited := []string{"c1"}
	b.ReportAllocs()
	for b.Loop() {
		now = now.Add(61 * time.Millisecond)
		if !m.Take(limited, "p/a", "s", now) {
			b.Fatal("no room")
		}
	}
}
