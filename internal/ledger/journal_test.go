package ledger

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
)

// A disk is a journal's file that can lose power: what was written since the last flush
// is there in any part.
type disk struct {
	journalFile
	mu     sync.Mutex
	stable []byte
	later  []write
}

type write struct {
	b  []byte
	at int64
}

func (d *disk) WriteAt(b []byte, at int64) (int, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.later = append(d.later, write{bytes.Clone(b), at})
	return d.journalFile.WriteAt(b, at)
}

func (d *disk) Sync() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range d.later {
		copy(d.stable[w.at:], w.b)
	}
	d.later = nil
	return nil
}

// cut returns what may be there after a loss of power: of each write that was not
// flushed all, nothing, its beginning, or some of its sectors.
func (d *disk) cut(rng *rand.Rand) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	b := bytes.Clone(d.stable)
	for _, w := range d.later {
		switch rng.IntN(4) {
		case 0:
			copy(b[w.at:], w.b)
		case 1:
			copy(b[w.at:], w.b[:rng.IntN(len(w.b)+1)])
		case 2:
			for from := 0; from < len(w.b); {
				to := min(len(w.b), from+512-int(w.at+int64(from))%512)
				if rng.IntN(2) == 0 {
					copy(b[w.at+int64(from):], w.b[from:to])
				}
				from = to
			}
		}
	}
	return b
}

// A wreck is a ledger that is going to crash, and what was acknowledged.
type wreck struct {
	*Ledger
	disk *disk
	log  int // bytes of the log of the database that are on disk

	written, durable map[int64]Ref
}

// fragile opens a ledger whose power can fail, and that signs nothing by itself: a copy
// of its directory is then of one moment.
func fragile(t *testing.T, dir string, segment int) *wreck {
	t.Helper()
	o := testOptions()
	o.segment = segment
	w := &wreck{Ledger: mustOpen(t, dir, o), written: map[int64]Ref{}, durable: map[int64]Ref{}}
	stable, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	fi, err := os.Stat(filepath.Join(dir, databaseFile+"-wal"))
	if err != nil {
		t.Fatal(err)
	}
	w.log = int(fi.Size()) // most of it has been flushed
	w.settling.Lock()
	defer w.settling.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.disk = &disk{journalFile: w.journal.file, stable: stable}
	w.journal.file = w.disk
	w.db = keeping{w.db, w}
	w.signed.Size += 1 << 20 // as uncover does
	return w
}

// keeping notes how much of the log of the database has been flushed.
type keeping struct {
	store
	w *wreck
}

func (k keeping) Sync() error {
	fi, err := os.Stat(filepath.Join(k.w.dir, databaseFile+"-wal"))
	if err == nil {
		err = k.store.Sync()
	}
	if err == nil {
		k.w.log = int(fi.Size())
	}
	return err
}

// append appends one batch, and notes what may be lost when.
func (w *wreck) append(t *testing.T, durable bool, entries ...Entry) {
	t.Helper()
	refs, err := w.Append(t.Context(), durable, entries...)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range refs {
		w.written[r.Index] = r
	}
	if durable {
		w.durable = maps.Clone(w.written)
	}
}

// crash returns the directory as it is after the process was killed or, with rng, after
// a loss of power.
func (w *wreck) crash(t *testing.T, rng *rand.Rand) string {
	t.Helper()
	w.settling.Lock()
	defer w.settling.Unlock()
	dir := copyDir(t, w.dir)
	if rng == nil {
		return dir
	}
	wal := filepath.Join(dir, databaseFile+"-wal")
	fi, err := os.Stat(wal)
	if err != nil {
		t.Fatal(err)
	}
	err = errors.Join(os.RemoveAll(filepath.Join(dir, databaseFile+"-shm")), os.Truncate(wal, int64(w.log+rng.IntN(int(fi.Size())-w.log+1))),
		os.WriteFile(filepath.Join(dir, journalName), w.disk.cut(rng), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// intact checks that a directory verifies, with and without opening it, and holds what
// it must.
func intact(t *testing.T, dir string, must map[int64]Ref) {
	t.Helper()
	v := verifyDir(t, dir)
	if v.Status == Invalid {
		t.Fatalf("after a crash: %+v", v)
	}
	l := mustOpen(t, dir, testOptions())
	records := all(t, l, Query{})
	if n := slices.IndexFunc(records, func(r Record) bool { return r.Boot == l.boot }); int64(n) != v.Entries {
		t.Fatalf("%d entries were there when it was opened, and %d when it was verified", n, v.Entries)
	}
	for i, want := range must {
		if i >= int64(len(records)) || records[i].Ref != want {
			t.Fatalf("entry %d was acknowledged and is gone; there are %d", i, len(records))
		}
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Fatalf("after a crash, opened: %+v, %v", v, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// TestLossOfPower crashes a ledger with a small journal again and again, each time with
// some other part of what was not flushed, and goes on with what is left.
func TestLossOfPower(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	dir := t.TempDir()
	known := map[int64]Ref{}
	for round := range 8 {
		w := fragile(t, dir, 16<<10)
		maps.Copy(w.written, known)
		w.durable = maps.Clone(known)
		for step := range 5 + rng.IntN(60) {
			var batch []Entry
			for n := range 1 + rng.IntN(3) {
				size := rng.IntN(1500)
				if rng.IntN(40) == 0 {
					size = 20 << 10 // no room in the journal
				}
				batch = append(batch, Entry{fmt.Sprint("s", rng.IntN(5)), "note", fmt.Appendf(nil, `{"a":"%d-%d-%d","x":%q}`, round, step, n, strings.Repeat("x", size))})
			}
			w.append(t, rng.IntN(3) == 0, batch...)
			switch rng.IntN(20) {
			case 0:
				if _, err := w.Checkpoint(t.Context()); err != nil {
					t.Fatal(err)
				}
				uncover(w.Ledger, -1<<20)
			case 1:
				all(t, w.Ledger, Query{Limit: 1})
			}
		}
		for range 3 {
			intact(t, w.crash(t, rng), w.durable)
		}
		intact(t, w.crash(t, nil), w.written)
		intact(t, halfErased(t, w.crash(t, nil), rng), w.written)
		known, dir = w.durable, w.crash(t, rng)
		if round%3 == 0 {
			known, dir = w.written, w.crash(t, nil)
		}
	}
}

// The decision about a program is not waited for, its box is, and then the program starts:
// power is lost before and after that. Where both do not fit in one segment, too.
func TestLossOfPowerBeforeAProgram(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for round := range 12 {
		w := fragile(t, t.TempDir(), 16<<10)
		w.append(t, true, Entry{"s", "session-start", []byte(`{}`)})
		long := fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", round*1100))
		w.append(t, false, Entry{"s", "request", long}, Entry{"s", "decision", []byte(`{}`)})
		intact(t, w.crash(t, rng), w.durable)
		w.append(t, true, Entry{"s", "box", long})
		intact(t, w.crash(t, rng), w.written)
	}
}

// halfErased opens a ledger again and loses power while its journal is being emptied.
func halfErased(t *testing.T, dir string, rng *rand.Rand) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(dir, journalName))
	if err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, dir, testOptions())
	l.settling.Lock()
	half := copyDir(t, dir)
	l.settling.Unlock()
	for at := journalHead; at < len(b); at += 512 {
		if rng.IntN(2) == 0 {
			clear(b[at : at+512])
		}
	}
	if err := errors.Join(l.Close(t.Context()), os.WriteFile(filepath.Join(half, journalName), b, 0o600)); err != nil {
		t.Fatal(err)
	}
	return half
}

// TestJournalBits changes one bit of a journal after a crash. What had been on disk is
// missed, and named; what had not may be dropped, and nothing else is ever read.
func TestJournalBits(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	w := fragile(t, t.TempDir(), 32<<10)
	if _, err := w.Checkpoint(t.Context()); err != nil {
		t.Fatal(err)
	}
	uncover(w.Ledger, -1<<20)
	defer uncover(w.Ledger, 1<<20)
	for i := range 20 {
		w.append(t, i == 15, Entry{"s", "note", fmt.Appendf(nil, `{"n":%d}`, i)}, Entry{"t", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	dir := w.crash(t, nil)
	path := filepath.Join(dir, journalName)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	whole, durable := w.head.size, int64(len(w.durable)+1)
	for range 200 {
		at := journalHead + rng.IntN(w.journal.segs[0].used)
		bad := bytes.Clone(good)
		bad[at] ^= 1 << rng.IntN(8)
		if err := os.WriteFile(path, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		img := parseImage([][]byte{bad[journalHead : journalHead+32<<10]})
		end := int64(1 + len(img.after(1)))
		v := verifyDir(t, dir)
		switch {
		case end >= whole:
			t.Fatalf("a bit at %d was changed, and nothing is missed", at)
		case end < durable && (v.Status != Invalid || v.Index != end || !strings.Contains(v.Reason, "journal")):
			t.Fatalf("a bit at %d was changed: %+v; want entry %d named", at, v, end)
		case end >= durable && (v.Status != Incomplete || v.Entries != end):
			t.Fatalf("a bit at %d was changed, of what was not on disk: %+v; want %d entries", at, v, end)
		}
		for i, raw := range img.after(1) {
			if want := w.written[int64(1+i)]; leafHash(raw) != want.Hash {
				t.Fatalf("a bit at %d was changed, and entry %d is another", at, 1+i)
			}
		}
		if end < durable {
			if _, err := Open(t.Context(), dir, testOptions()); !errors.Is(err, ErrTampered) {
				t.Fatalf("a bit at %d was changed: opened, %v", at, err)
			}
		}
	}
	if err := os.WriteFile(path, good, 0o600); err != nil {
		t.Fatal(err)
	}
	intact(t, dir, w.written) // refused openings have changed nothing
}

// TestR13Journal changes the journal as somebody could who has no key, or takes it away.
func TestR13Journal(t *testing.T) {
	w := fragile(t, t.TempDir(), 32<<10)
	for i := range 10 {
		w.append(t, i == 8, Entry{"s", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	before := w.crash(t, nil)
	if _, err := w.Checkpoint(t.Context()); err != nil { // in head.note, and on disk only in the journal
		t.Fatal(err)
	}
	signed := w.crash(t, nil)
	for _, name := range []string{databaseFile, databaseFile + "-wal"} {
		b, err := os.ReadFile(filepath.Join(before, name))
		if err = errors.Join(err, os.WriteFile(filepath.Join(signed, name), b, 0o600), os.RemoveAll(filepath.Join(signed, databaseFile+"-shm"))); err != nil {
			t.Fatal(err)
		}
	}
	intact(t, copyDir(t, signed), w.written)
	spoil := func(f func(b []byte) []byte) func(string) error {
		return func(path string) error {
			b, err := os.ReadFile(path)
			return errors.Join(err, os.WriteFile(path, f(b), 0o600))
		}
	}
	for _, c := range []struct {
		name  string
		dir   string
		spoil func(path string) error
		want  error
	}{
		{"signed and gone", signed, os.Remove, ErrRolledBack},
		{"signed and erased", signed, spoil(func(b []byte) []byte { clear(b[journalHead:]); return b }), ErrRolledBack},
		{"signed and changed", signed, spoil(func(b []byte) []byte { return bytes.Replace(b, []byte(`"n":9`), []byte(`"n":8`), 1) }), ErrTampered},
		{"not signed and gone", before, os.Remove, nil},
		{"cut off", before, spoil(func(b []byte) []byte { return b[:len(b)-8] }), ErrTampered},
		{"head changed", before, spoil(func(b []byte) []byte { b[11]++; return b }), ErrTampered},
		{"behind the head changed", before, spoil(func(b []byte) []byte { b[journalHead-1]++; return b }), ErrTampered},
		{"database of another state", before, func(path string) error { return os.Remove(filepath.Join(filepath.Dir(path), databaseFile+"-wal")) }, ErrTampered},
		{"database damaged", before, func(path string) error {
			runSQL(t, filepath.Dir(path), "PRAGMA wal_checkpoint(TRUNCATE)")
			f, err := os.OpenFile(filepath.Join(filepath.Dir(path), databaseFile), os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteAt(bytes.Repeat([]byte("damage! "), 2048), 4096)
			return errors.Join(err, f.Close())
		}, ErrTampered},
		{"entry by somebody else", before, spoil(func(b []byte) []byte { return forge(b, w.Ledger) }), ErrTampered},
		{"a link", before, func(path string) error { return errors.Join(os.Remove(path), os.Symlink("/dev/zero", path)) }, ErrTampered},
	} {
		dir := copyDir(t, c.dir)
		if err := c.spoil(filepath.Join(dir, journalName)); err != nil {
			t.Fatal(err)
		}
		if v, err := VerifyDir(t.Context(), dir, testPublic); err == nil && (v.Status == Invalid) != (c.want != nil) {
			t.Errorf("%s: %+v", c.name, v)
		}
		l, err := Open(t.Context(), dir, testOptions())
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err == nil {
			l.Close(t.Context())
		}
	}
}

// forge puts an entry that follows nothing behind those in a journal, with all checksums.
func forge(b []byte, l *Ledger) []byte {
	s := l.journal.segs[0]
	f := frame{use: s.use, first: l.head.size, durable: l.durable, count: 1}
	raw := appendLeaf(make([]byte, frameHead+frameEntry), leaf{
		body: []byte("{}"), session: []byte("s"), typ: []byte("note"), time: []byte("2026-11-30T13:00:00.000000Z"), boot: 1, seq: 10,
	})
	new(entrySum).seal(raw[frameHead:], f.use, f.first)
	copy(b[journalHead+s.used:], f.seal(raw))
	return b
}

// TestEarlierUse loses what was written last to one segment, and not what came after it
// in the other. That has no place then, and never gets one: not even when the ledger has
// grown to where it would go on.
func TestEarlierUse(t *testing.T) {
	w := fragile(t, t.TempDir(), minSegment)
	note := Entry{"s", "note", []byte(`{"x":"` + strings.Repeat("x", 500) + `"}`)}
	for w.journal.active == 0 || w.journal.segs[1].used < 2000 {
		w.append(t, false, note)
	}
	dir := w.crash(t, nil)
	path := filepath.Join(dir, journalName)
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	clear(b[journalHead+minSegment-1500 : journalHead+minSegment])
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	// The crash was before anything was moved, but for the first entry.
	if err := os.Truncate(filepath.Join(dir, databaseFile+"-wal"), int64(w.log)); err != nil {
		t.Fatal(err)
	}
	left := verifyDir(t, dir)
	if left.Status == Invalid || left.Entries >= w.journal.segs[0].end || left.Entries < 2 {
		t.Fatalf("%+v of %d", left, w.journal.segs[0].end)
	}
	again := fragile(t, dir, 0)
	again.settling.Lock() // nothing is moved
	for again.head.size < w.journal.segs[0].end+1 {
		again.append(t, false, note)
	}
	again.settling.Unlock()
	intact(t, again.crash(t, nil), again.written)
}

// TestVerifyWhileAppending verifies files that change meanwhile: nothing looks wrong.
func TestVerifyWhileAppending(t *testing.T) {
	o := testOptions()
	o.segment = 16 << 10
	l := mustOpen(t, t.TempDir(), o)
	var appending sync.WaitGroup
	var done atomic.Bool
	for s := range 3 {
		appending.Go(func() {
			for i := 0; !done.Load(); i++ {
				if _, err := l.Append(t.Context(), i%2 == 0, Entry{fmt.Sprint("s", s), "note", fmt.Appendf(nil, `{"n":%d}`, i)}); err != nil {
					t.Error(err)
				}
				if i%50 == 0 {
					all(t, l, Query{Limit: 1})
				}
			}
		})
	}
	for range 40 {
		if v := verifyDir(t, l.dir); v.Status == Invalid {
			t.Errorf("%+v", v)
		}
	}
	done.Store(true)
	appending.Wait()
}

// TestClosedJournalIsEmpty closes a ledger, and opens one that has no journal yet.
func TestClosedJournalIsEmpty(t *testing.T) {
	dir := sampleDir(t, 300)
	path := filepath.Join(dir, journalName)
	b, err := os.ReadFile(path)
	if err != nil || len(b) != journalHead+journalSegs*journalSegment || len(bytes.Trim(b[journalHead:], "\x00")) > 0 {
		t.Errorf("a journal of %d bytes, %v; want zeroes behind its head", len(b), err)
	}
	if fi, err := os.Stat(path); err != nil || fi.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", fi.Mode(), err)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	intact(t, dir, nil)
}

// FuzzJournal reads anything as a journal.
func FuzzJournal(f *testing.F) {
	j := frame{use: 7, first: 3, durable: 2, count: 2}
	const entry = frameEntry + len("{}")
	b := make([]byte, frameHead+2*entry)
	copy(b[frameHead+frameEntry:], "{}")
	copy(b[frameHead+entry+frameEntry:], "{}")
	new(entrySum).seal(b[frameHead:frameHead+entry], j.use, j.first)
	new(entrySum).seal(b[frameHead+entry:], j.use, j.first+1)
	f.Add(j.seal(b), int64(3))
	f.Fuzz(func(t *testing.T, b []byte, n int64) {
		img := parseImage([][]byte{b, nil, b})
		for i, raw := range img.after(n) {
			if !bytes.Contains(b, raw) {
				t.Fatalf("entry %d is %q, which is nowhere", n+int64(i), raw)
			}
		}
		if err := img.check(n, n); (err != nil) != (img.durable > n) {
			t.Errorf("%v with %d of %d", err, n, img.durable)
		}
	})
}
