package ledger

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"
)

// testKey is the key of every ledger in these tests.
var testKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))

// fakeClock ticks a millisecond for each reading.
type fakeClock struct {
	mu  sync.Mutex
	now time.Time
}

func newClock() *fakeClock { return &fakeClock{now: time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)} }

func (c *fakeClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(time.Millisecond)
	return c.now
}

func (c *fakeClock) set(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = t
}

func testOptions() Options {
	return Options{Key: testKey, Origin: "example.com/test", Now: newClock().Now, Version: "test"}
}

func mustOpen(t testing.TB, dir string, o Options) *Ledger {
	t.Helper()
	l, err := Open(t.Context(), dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(context.WithoutCancel(t.Context())); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err)
		}
	})
	return l
}

func mustAppend(t testing.TB, l *Ledger, entries ...Entry) []Ref {
	t.Helper()
	refs, err := l.Append(t.Context(), false, entries...)
	if err != nil {
		t.Fatal(err)
	}
	return refs
}

func all(t testing.TB, l *Ledger, q Query) (records []Record) {
	t.Helper()
	if err := l.Entries(t.Context(), q, func(r Record) error { records = append(records, r); return nil }); err != nil {
		t.Fatal(err)
	}
	return records
}

func TestAppendAndRead(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	want := map[string][]Ref{}
	for i := range 1000 {
		a, b := fmt.Sprint("s", i%7), fmt.Sprint("s", i%3)
		body := fmt.Appendf(nil, `{ "n": %d, "a": 1 }`, i)
		refs := mustAppend(t, l, Entry{a, "request", body}, Entry{b, "decision", body}, Entry{a, "result", body})
		for _, r := range refs {
			want[r.Session] = append(want[r.Session], r)
		}
	}
	for reopened := range 2 {
		for session, refs := range want {
			records := all(t, l, Query{Session: session})
			if len(records) != len(refs) {
				t.Fatalf("session %s has %d entries, want %d", session, len(records), len(refs))
			}
			for i, r := range records {
				if r.Ref != refs[i] || r.Seq != int64(i) || r.Hash != leafHash(r.Raw) || i > 0 && r.Prev != refs[i-1].Hash {
					t.Fatalf("entry %d of %s is %+v, want %+v", i, session, r.Ref, refs[i])
				}
			}
		}
		if n := len(all(t, l, Query{})); n != 3001+2*reopened {
			t.Errorf("%d entries in all", n)
		}
		if reopened == 0 {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, dir, o)
		}
	}
	got := all(t, l, Query{Session: "s1", Types: []string{"result"}, FromIndex: 500, Limit: 3})
	if len(got) != 3 || got[0].Index < 500 || string(got[0].Body[:5]) != `{"a":` {
		t.Errorf("query: %d records, the first %+v %s", len(got), got[0].Ref, got[0].Body)
	}
}
