package ledger

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"
)

// plug puts faults between l and its files.
func plug(l *Ledger) *faults {
	l.mu.Lock()
	defer l.mu.Unlock()
	disk := &faults{store: l.db, journalFile: l.journal.file}
	l.db, l.journal.file = dbFaults{disk}, journalFaults{disk}
	return disk
}

// TestMixedAppends has callers append alone and together, durably or not, and
// walk away at any moment. No entry that was acknowledged may be missing, and no
// batch may be there in part.
func TestMixedAppends(t *testing.T) {
	const callers, each = 8, 150
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	acked := make([]map[string][]Ref, callers)
	var wg sync.WaitGroup
	for w := range callers {
		acked[w] = map[string][]Ref{}
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 7))
			for i := range each {
				ctx, cancel := context.WithCancel(t.Context())
				steps := rng.IntN(60)
				switch {
				case steps == 0:
					cancel()
				case steps < 30:
					wg.Go(func() {
						for range steps * steps {
							runtime.Gosched()
						}
						cancel()
					})
				}
				id := fmt.Sprintf("%d-%d", w, i)
				refs, err := l.Append(ctx, rng.IntN(4) == 0, batchOf(id, w, 1+rng.IntN(3))...)
				if err == nil {
					acked[w][id] = refs
				} else if !errors.Is(err, context.Canceled) {
					t.Errorf("batch %s: %v", id, err)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	l = mustOpen(t, dir, o)
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Fatalf("%+v, %v", v, err)
	}
	stored := wholeBatches(t, l)
	for _, batches := range acked {
		for id, refs := range batches {
			if fmt.Sprint(stored[id]) != fmt.Sprint(refs) {
				t.Errorf("batch %s was acknowledged as %v, found %v", id, refs, stored[id])
			}
		}
	}
}

// batchOf returns a batch of which each entry says how many there are. Some of
// its entries are in a session of all callers.
func batchOf(id string, caller, size int) (entries []Entry) {
	for n := range size {
		session := "all"
		if n == 1 {
			session = fmt.Sprint("s", caller)
		}
		entries = append(entries, Entry{session, "note", fmt.Appendf(nil, `{"id":%q,"n":%d,"size":%d}`, id, n, size)})
	}
	return entries
}

// wholeBatches returns the batches of batchOf that l holds, and fails if one is
// not whole or not in one piece.
func wholeBatches(t *testing.T, l *Ledger) map[string][]Ref {
	t.Helper()
	stored := map[string][]Ref{}
	for _, r := range all(t, l, Query{Types: []string{"note"}}) {
		var id string
		var n, size int
		if _, err := fmt.Sscanf(string(r.Body), `{"id":%q,"n":%d,"size":%d}`, &id, &n, &size); err != nil {
			t.Fatal(err)
		}
		refs := stored[id]
		if n != len(refs) || n > 0 && refs[n-1].Index != r.Index-1 {
			t.Errorf("entry %d is number %d of batch %s, after %v", r.Index, n, id, refs)
		}
		stored[id] = append(refs, r.Ref)
		defer func() {
			if len(stored[id]) != size {
				t.Errorf("%d of the %d entries of batch %s", len(stored[id]), size, id)
			}
		}()
	}
	return stored
}

// A gate holds up operations on the database, one at a time.
type gate struct {
	arrived chan struct{}
	pass    chan error
}

func newGate() *gate { return &gate{make(chan struct{}), make(chan error)} }

// hold returns a fault for operations of one kind.
func (g *gate) hold(kind string) fault {
	return func(op string, _ int) (before, after error) {
		if op != kind {
			return nil, nil
		}
		g.arrived <- struct{}{}
		return <-g.pass, nil
	}
}

// appendIn appends one entry in a goroutine, and returns when it is in line.
func appendIn(ctx context.Context, t *testing.T, l *Ledger, durable bool, session string) chan error {
	t.Helper()
	inLine := func() int {
		l.queue.mu.Lock()
		defer l.queue.mu.Unlock()
		return len(l.queue.write.waiting)
	}
	before, result := inLine(), make(chan error, 1)
	go func() {
		_, err := l.Append(ctx, durable, Entry{session, "note", []byte("{}")})
		result <- err
	}()
	for inLine() == before {
		runtime.Gosched()
	}
	return result
}

// first begins an append that is held up by the gate, with the turn to write.
func first(t *testing.T, l *Ledger, g *gate) chan error {
	t.Helper()
	result := make(chan error, 1)
	go func() {
		_, err := l.Append(t.Context(), false, Entry{"first", "note", []byte("{}")})
		result <- err
	}()
	<-g.arrived
	return result
}

// known returns an open ledger that has the sessions, so that an append to them
// is one write, and that signs nothing until the test looks at its entries.
func known(t *testing.T, sessions ...string) *Ledger {
	t.Helper()
	l := mustOpen(t, t.TempDir(), testOptions())
	for _, s := range sessions {
		mustAppend(t, l, Entry{s, "note", []byte("{}")})
	}
	if _, err := l.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	uncover(l, -1<<20)
	return l
}

// uncover changes how many entries the ledger takes for uncovered.
func uncover(l *Ledger, by int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.signed.Size -= by
}

func wantEntries(t *testing.T, l *Ledger, want map[string]int) {
	t.Helper()
	uncover(l, 1<<20)
	for session, n := range want {
		if got := len(all(t, l, Query{Session: session})); got != n {
			t.Errorf("session %s has %d entries, want %d", session, got, n)
		}
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Errorf("%+v, %v", v, err)
	}
}

// leaves ends a context and expects that an append notices.
func leaves(t *testing.T, cancel func(), result chan error) {
	t.Helper()
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want Canceled", err)
	}
}

// TestCallerLeaves ends the contexts of callers that wait for others to write.
func TestCallerLeaves(t *testing.T) {
	l := known(t, "first", "turn", "line", "stays", "taken")
	disk, g := plug(l), newGate()
	disk.set(g.hold("write"))
	lineCtx, leaveLine := context.WithCancel(t.Context())
	takenCtx, leaveTaken := context.WithCancel(t.Context())
	held := first(t, l, g)
	line := appendIn(lineCtx, t, l, false, "line")
	stays := appendIn(t.Context(), t, l, false, "stays")
	taken := appendIn(takenCtx, t, l, false, "taken")
	leaves(t, leaveLine, line)
	g.pass <- nil
	<-g.arrived // the others are being written, by the one that stays
	leaves(t, leaveTaken, taken)
	g.pass <- nil
	if err := errors.Join(<-held, <-stays); err != nil {
		t.Error(err)
	}

	// Whoever has the turn may leave before it has begun; then the next has it.
	turn := &request{entries: []Entry{{"turn", "note", []byte("{}")}}, notices: make(chan notice, 1)}
	if err := l.queue.enter(turn); err != nil {
		t.Fatal(err)
	}
	stays = appendIn(t.Context(), t, l, false, "stays")
	l.queue.withdraw(turn)
	<-g.arrived
	disk.set(nil)
	g.pass <- nil
	if err := <-stays; err != nil {
		t.Error(err)
	}
	wantEntries(t, l, map[string]int{"first": 2, "turn": 1, "line": 1, "stays": 3, "taken": 2})
}

// TestCallerLeavesFlush ends the context of a caller whose entry has been written
// and waits to be flushed.
func TestCallerLeavesFlush(t *testing.T) {
	l := known(t, "stays", "flush")
	disk, g := plug(l), newGate()
	disk.set(g.hold("sync"))
	ctx, leave := context.WithCancel(t.Context())
	stays := make(chan error, 1)
	go func() {
		_, err := l.Append(t.Context(), true, Entry{"stays", "note", []byte("{}")})
		stays <- err
	}()
	<-g.arrived
	flush := make(chan error, 1)
	go func() {
		_, err := l.Append(ctx, true, Entry{"flush", "note", []byte("{}")})
		flush <- err
	}()
	for waits := 0; waits == 0; runtime.Gosched() {
		l.queue.mu.Lock()
		waits = len(l.queue.flush.waiting)
		l.queue.mu.Unlock()
	}
	leaves(t, leave, flush)
	disk.set(nil)
	g.pass <- nil
	if err := <-stays; err != nil {
		t.Error(err)
	}
	wantEntries(t, l, map[string]int{"stays": 2, "flush": 2})
}

// TestR12Group lets the transaction of a group fail: all of it fails, and nothing
// before or after.
func TestR12Group(t *testing.T) {
	l := known(t, "first", "a", "b", "c")
	disk, g := plug(l), newGate()
	disk.set(g.hold("write"))
	held := first(t, l, g)
	group := map[string]chan error{}
	for _, s := range []string{"a", "b", "c"} {
		group[s] = appendIn(t.Context(), t, l, s == "b", s)
	}
	g.pass <- nil
	<-g.arrived
	disk.set(nil)
	g.pass <- errDisk
	if err := <-held; err != nil {
		t.Errorf("before the group: %v", err)
	}
	for s, result := range group {
		if err := <-result; !errors.Is(err, ErrUnwritable) || !errors.Is(err, errDisk) {
			t.Errorf("session %s: %v, want ErrUnwritable", s, err)
		}
	}
	mustAppend(t, l, Entry{"a", "note", []byte("{}")})
	wantEntries(t, l, map[string]int{"first": 2, "a": 2, "b": 1, "c": 1})
}

// TestPanicOfWriter has a caller panic while it writes for another. Nobody waits
// for ever, and nothing more is appended (L6).
func TestPanicOfWriter(t *testing.T) {
	clock, broken := newClock(), make(chan bool, 1)
	o := testOptions()
	o.Now = func() time.Time {
		select {
		case <-broken:
			panic("no time")
		default:
			return clock.Now()
		}
	}
	l := mustOpen(t, t.TempDir(), o)
	mustAppend(t, l, Entry{"s", "note", []byte("{}")})
	broken <- true
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic")
			}
		}()
		_, _ = l.Append(t.Context(), false, Entry{"s", "note", []byte("{}")})
	}()
	if _, err := l.Append(t.Context(), true, Entry{"s", "note", []byte("{}")}); !errors.Is(err, ErrUnwritable) {
		t.Errorf("after a panic: %v, want ErrUnwritable", err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, ErrUnwritable) || !strings.Contains(err.Error(), "half-way") {
		t.Errorf("closing after a panic: %v, want ErrUnwritable", err)
	}
}
