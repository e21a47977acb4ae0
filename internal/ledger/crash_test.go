package ledger

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"ringfence/internal/sys/database"
)

// TestAU03Kill has a child append from several goroutines, kills it at a random
// moment, and checks that everything it acknowledged is there and that the
// ledger verifies. CRASH_ROUNDS sets how often, all on one ledger.
func TestAU03Kill(t *testing.T) {
	if dir := os.Getenv("CRASH_CHILD"); dir != "" {
		crashChild(t, dir)
	}
	rounds := 30
	if s := os.Getenv("CRASH_ROUNDS"); s != "" {
		var err error
		if rounds, err = strconv.Atoi(s); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(uint64(rounds), 1))
	for round := range rounds {
		acks := crash(t, dir, round, rng.IntN(120))
		if round > 0 || len(acks) > 0 {
			if v := verifyDir(t, dir); v.Status == Invalid {
				t.Fatalf("round %d: %+v", round, v)
			}
		}
		l := mustOpen(t, dir, Options{Key: testKey})
		for _, want := range acks {
			r := all(t, l, Query{FromIndex: want.Index, Limit: 1})
			if len(r) != 1 || r[0].Ref != want {
				t.Fatalf("round %d: acknowledged %+v, found %+v", round, want, r)
			}
		}
		if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
			t.Fatalf("round %d: %+v, %v", round, v, err)
		}
		if err := l.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

// crash runs the child until it has acknowledged so many entries, and kills it;
// with none, at once. It returns what was acknowledged.
func crash(t *testing.T, dir string, round, after int) (acks []Ref) {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^TestAU03Kill$")
	cmd.Env = append(os.Environ(), "CRASH_CHILD="+dir, fmt.Sprint("CRASH_ROUND=", round))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for n := 0; ; n++ {
		if n == after {
			cmd.Process.Kill()
		}
		if !lines.Scan() {
			break
		}
		var r Ref
		var hash string
		if _, err := fmt.Sscanf(lines.Text(), "ack %d %s %d %s end", &r.Index, &r.Session, &r.Seq, &hash); err != nil {
			if n < after {
				t.Fatalf("the child says %q", lines.Text())
			}
			break // the line on which it died
		}
		b, err := hex.DecodeString(hash)
		if err != nil {
			t.Fatal(err)
		}
		r.Hash = [32]byte(b)
		acks = append(acks, r)
	}
	cmd.Wait()
	return acks
}

func crashChild(t *testing.T, dir string) {
	l, err := Open(t.Context(), dir, Options{Key: testKey})
	if err != nil {
		t.Fatal(err)
	}
	for w := range 4 {
		go func() {
			session := fmt.Sprintf("r%s-%d", os.Getenv("CRASH_ROUND"), w)
			for i := 0; ; i++ {
				refs, err := l.Append(t.Context(), i%2 == 0,
					Entry{session, "request", fmt.Appendf(nil, `{"n":%d}`, i)},
					Entry{session, "decision", []byte(`{"text":"` + strings.Repeat("x", i*37%3000) + `"}`)})
				if err != nil {
					panic(err)
				}
				for _, r := range refs {
					if _, err := fmt.Fprintf(os.Stdout, "ack %d %s %d %x end\n", r.Index, r.Session, r.Seq, r.Hash); err != nil {
						panic(err)
					}
				}
			}
		}()
	}
	select {}
}

// A fault is what the n-th operation returns instead, before or after it is done.
type fault func(op string, n int) (before, after error)

// faults are files that fail when told to. Operations on the journal are "write" and
// "sync", on the database "move", "look" and "keep".
type faults struct {
	store
	journalFile
	mu    sync.Mutex
	fail  fault
	count int
}

type (
	dbFaults      struct{ *faults }
	journalFaults struct{ *faults }
)

func (f *faults) do(op string, done func() error) error {
	f.mu.Lock()
	f.count++
	fail, n := f.fail, f.count
	f.mu.Unlock()
	if fail == nil {
		return done()
	}
	before, after := fail(op, n)
	if before != nil {
		return before
	}
	return errors.Join(done(), after)
}

// set tells what fails from now on.
func (f *faults) set(fail fault) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f dbFaults) Write(ctx context.Context, fn func(*sql.Tx) error) error {
	return f.do("look", func() error { return f.store.Write(ctx, fn) })
}

func (f dbFaults) Batch(ctx context.Context, fn func(*database.Batch) error) error {
	return f.do("move", func() error { return f.store.Batch(ctx, fn) })
}

func (f dbFaults) Sync() error  { return f.do("keep", f.store.Sync) }
func (f dbFaults) Close() error { return f.store.Close() }

func (f journalFaults) WriteAt(b []byte, at int64) (n int, err error) {
	err = f.do("write", func() (err error) { n, err = f.journalFile.WriteAt(b, at); return err })
	if errors.Is(err, errShort) {
		n, err = f.journalFile.WriteAt(b[:len(b)/2], at)
		err = errors.Join(err, errShort)
	}
	return n, err
}

func (f journalFaults) Sync() error  { return f.do("sync", f.journalFile.Sync) }
func (f journalFaults) Close() error { return f.journalFile.Close() }

var (
	errDisk  = errors.New("disk on fire")
	errShort = errors.New("a part was written") // and of the journal it was
)

// TestR12EveryWrite lets each operation on the files fail in turn, before or after it
// was done, or half of it, and checks that no effect happens without its entry.
func TestR12EveryWrite(t *testing.T) {
	for _, c := range []struct{ before, after error }{{errDisk, nil}, {errShort, nil}, {nil, errDisk}} {
		for n := 1; ; n++ {
			if !faultAt(t, n, c.before, c.after) {
				if n < 12 {
					t.Errorf("only %d operations were seen", n)
				}
				break
			}
		}
	}
}

// faultAt runs ten calls, with the n-th operation failing, and reports whether
// there was one.
func faultAt(t *testing.T, n int, before, after error) (hit bool) {
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	disk := plug(l)
	flush := false // the operation was one after which nothing is appended (L6)
	disk.set(func(op string, count int) (error, error) {
		if count != n {
			return nil, nil
		}
		hit, flush = true, op == "sync"
		return before, after
	})
	var effects []Ref
	for i := range 10 {
		refs, err := l.Append(t.Context(), i%2 == 0, Entry{"s", "request", fmt.Appendf(nil, `{"call":%d}`, i)})
		if err == nil {
			effects = append(effects, refs...) // here the call would be sent
		} else if !errors.Is(err, ErrUnwritable) {
			t.Errorf("operation %d: %v, want ErrUnwritable", n, err)
		}
	}
	if err := l.Close(t.Context()); err != nil && !hit {
		t.Error(err)
	}
	if hit && after == nil && !flush && len(effects) < 9 {
		t.Errorf("operation %d: only %d of 10 appends went through", n, len(effects))
	}
	if _, err := l.Append(t.Context(), false, Entry{"s", "request", []byte("{}")}); !errors.Is(err, ErrClosed) {
		t.Errorf("append after Close: %v, want ErrClosed", err)
	}
	l = mustOpen(t, dir, o)
	for _, want := range effects {
		if r := all(t, l, Query{FromIndex: want.Index, Limit: 1}); len(r) != 1 || r[0].Ref != want {
			t.Errorf("operation %d: effect without its entry: %+v, found %+v", n, want, r)
		}
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Errorf("operation %d: %+v, %v", n, v, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Error(err)
	}
	return hit
}

// TestAU04DiskFull fills the database up, and then makes room again.
func TestAU04DiskFull(t *testing.T) {
	l := mustOpen(t, t.TempDir(), testOptions())
	limit := func(pages string) {
		t.Helper()
		if err := l.db.Write(t.Context(), func(tx *sql.Tx) error {
			_, err := tx.Exec("PRAGMA max_page_count = " + pages)
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	limit("40")
	big := []byte(`{"x":"` + strings.Repeat("x", 10_000) + `"}`)
	var err error
	written := 0
	for ; written < 100 && err == nil; written++ {
		mustAppend(t, l, Entry{"s", "note", big})
		_, err = l.Checkpoint(t.Context())
	}
	if !errors.Is(err, ErrUnwritable) {
		t.Fatalf("disk full: %v, want ErrUnwritable", err)
	}
	if _, err := l.Append(t.Context(), false, Entry{"s", "note", big}); !errors.Is(err, ErrUnwritable) {
		t.Errorf("still full: %v, want ErrUnwritable", err)
	}
	if err := l.Entries(t.Context(), Query{}, func(Record) error { return nil }); !errors.Is(err, ErrUnwritable) {
		t.Errorf("reading what the database has no room for: %v, want ErrUnwritable", err)
	}
	limit("100000")
	refs, err := l.Append(t.Context(), true, Entry{"s", "note", big})
	if err != nil || refs[0].Seq != int64(written) {
		t.Errorf("with room again: %+v, %v; want seq %d", refs, err, written)
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Errorf("%+v, %v", v, err)
	}
}
