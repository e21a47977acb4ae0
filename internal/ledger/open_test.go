package ledger

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sys/ipc"
)

// TestR13Open changes the files of a closed ledger and expects Open to refuse,
// or not.
func TestR13Open(t *testing.T) {
	older := sampleDir(t, 300)
	newer := copyDir(t, older)
	o := testOptions()
	l := mustOpen(t, newer, o)
	for i := range 300 {
		mustAppend(t, l, Entry{"s1", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	move := func(from, to, name string) error {
		b, err := os.ReadFile(filepath.Join(from, name))
		return errors.Join(err, os.WriteFile(filepath.Join(to, name), b, 0o600))
	}
	for _, c := range []struct {
		name  string
		spoil func(dir string) error
		want  error
	}{
		{"nothing", func(string) error { return nil }, nil},
		{"database rolled back", func(dir string) error { return move(older, dir, databaseFile) }, ErrRolledBack},
		{"checkpoint file rolled back", func(dir string) error { return move(older, dir, headFile) }, nil},
		{"database gone", func(dir string) error { return os.Remove(filepath.Join(dir, databaseFile)) }, ErrRolledBack},
		{"checkpoint file gone", func(dir string) error { return os.Remove(filepath.Join(dir, headFile)) }, ErrTampered},
		{"checkpoint file empty", func(dir string) error { return os.WriteFile(filepath.Join(dir, headFile), nil, 0o600) }, ErrTampered},
		{"database of another ledger", func(dir string) error {
			other := t.TempDir()
			x := mustOpen(t, other, o)
			for i := range 700 {
				mustAppend(t, x, Entry{"s1", "note", fmt.Appendf(nil, `{"m":%d}`, i)})
			}
			return errors.Join(x.Close(t.Context()), move(other, dir, databaseFile))
		}, ErrTampered},
		{"entries cut off", func(dir string) error { runSQL(t, dir, "DELETE FROM entries WHERE idx > 600"); return nil }, ErrRolledBack},
		{"recent entry changed", func(dir string) error {
			runSQL(t, dir, "UPDATE entries SET leaf = CAST(replace(leaf, '299', '298') AS BLOB) WHERE idx > 590")
			return nil
		}, ErrTampered},
		{"unsigned entry added", func(dir string) error {
			runSQL(t, dir, "INSERT INTO entries SELECT max(idx)+1, sid, leaf FROM entries")
			return nil
		}, ErrTampered},
		{"checkpoint of nobody", func(dir string) error { runSQL(t, dir, "UPDATE checkpoints SET note = x'41'"); return nil }, ErrTampered},
	} {
		dir := copyDir(t, newer)
		if err := c.spoil(dir); err != nil {
			t.Fatal(err)
		}
		l, err := Open(t.Context(), dir, o)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err == nil {
			l.Close(t.Context())
		}
	}
}

func TestOpenChecksOptions(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	if _, err := Open(t.Context(), dir, o); !errors.Is(err, ipc.ErrLocked) {
		t.Errorf("second Open: %v, want ErrLocked", err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(t.Context()); !errors.Is(err, ErrClosed) {
		t.Errorf("second Close: %v, want ErrClosed", err)
	}
	otherKey, otherOrigin, noKey := o, o, o
	otherKey.Key = ed25519.NewKeyFromSeed(make([]byte, 32))
	otherOrigin.Origin = "example.com/other"
	noKey.Key = nil
	for name, o := range map[string]Options{"other key": otherKey, "other origin": otherOrigin, "no key": noKey} {
		if _, err := Open(t.Context(), dir, o); err == nil || name == "other key" && !errors.Is(err, ErrKey) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, origin := range []string{"two words", "a+b", "ä", strings.Repeat("x", 129)} {
		o.Origin = origin
		if _, err := Open(t.Context(), t.TempDir(), o); err == nil || !strings.Contains(err.Error(), "origin") {
			t.Errorf("origin %q: %v", origin, err)
		}
	}
	l = mustOpen(t, t.TempDir(), Options{Key: testKey})
	if l.Origin() != "ringfence/d2bee17955c83853" {
		t.Errorf("default origin %q", l.Origin())
	}
}

// TestOpenRemovesTemps leaves files as a killed process does, and some that are
// not its own. A second Open, which does not get the lock, removes none.
func TestOpenRemovesTemps(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	stale := []string{".head.note.0123456789abcdef.tmp", ".head.note.fedcba9876543210.tmp", ".journal.0123456789abcdef.tmp"}
	kept := []string{".head.note.0123.tmp", ".head.note.0123456789abcdef.tmp.old", "head.note.0123456789abcdef.tmp", ".other.0123456789abcdef.tmp"}
	write := func(names []string) {
		for _, name := range names {
			if err := os.WriteFile(filepath.Join(dir, name), []byte("x"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	write(append(stale, kept...))
	const directory = ".head.note.00000000000000dd.tmp"
	if err := os.Mkdir(filepath.Join(dir, directory), 0o700); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, o)
	for _, name := range stale {
		if _, err := os.Lstat(filepath.Join(dir, name)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", name, err)
		}
	}
	write(stale)
	if _, err := Open(t.Context(), dir, o); !errors.Is(err, ipc.ErrLocked) {
		t.Errorf("second Open: %v, want ErrLocked", err)
	}
	for _, name := range append(append(kept, directory), stale...) {
		if _, err := os.Lstat(filepath.Join(dir, name)); err != nil {
			t.Errorf("%s was removed: %v", name, err)
		}
	}
}

func TestRestartIsRecorded(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	for range 3 {
		if err := mustOpen(t, dir, o).Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	l := mustOpen(t, dir, o)
	mustAppend(t, l, Entry{"s", "note", []byte("{}")})
	var got []string
	for _, r := range all(t, l, Query{}) {
		got = append(got, fmt.Sprintf("%d %s %s", r.Boot, r.Type, r.Body))
	}
	const restart = ` ledger-restart {"clean":true,"program":"test","uncovered":0}`
	want := `1 ledger-open {"key":"` + publicText(testKey) + `","origin":"example.com/test","program":"test"}|1 ledger-close {}|2` +
		restart + `|2 ledger-close {}|3` + restart + `|3 ledger-close {}|4` + restart + `|4 note {}`
	if strings.Join(got, "|") != want {
		t.Errorf("recorded %q,\nwant %q", got, want)
	}
	info, err := l.Sessions(t.Context())
	if err != nil || len(info) != 2 || info[0].Session != SystemSession || info[0].Entries != 7 || info[1].First != 7 || info[1].Ended {
		t.Errorf("sessions: %+v, %v", info, err)
	}
}

// TestAU06Clock sets the clock back and forth.
func TestAU06Clock(t *testing.T) {
	dir, o, clock := t.TempDir(), testOptions(), newClock()
	o.Now = clock.Now
	l := mustOpen(t, dir, o)
	mustAppend(t, l, Entry{"s", "note", []byte("{}")})
	high := clock.Now()
	for i, step := range []time.Duration{-time.Hour, 0, -time.Hour, time.Minute, 3 * time.Hour, 0} {
		if step != 0 {
			clock.set(clock.Now().Add(step))
		}
		mustAppend(t, l, Entry{"s", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	records := all(t, l, Query{})
	for i, r := range records {
		if i > 0 && r.Time.Before(records[i-1].Time) {
			t.Errorf("entry %d is at %v, before the one before it", i, r.Time)
		}
	}
	if last := records[len(records)-1].Time; !last.After(high.Add(59 * time.Minute)) {
		t.Errorf("the last entry is at %v: the clock was not taken up again", last)
	}
	notes := all(t, l, Query{Types: []string{TypeClock}})
	if len(notes) != 2 || string(notes[0].Body) != `{"from":"2026-11-30T12:00:00.002000Z","to":"2026-11-30T11:00:00.005000Z"}` {
		t.Errorf("%d notes of a clock set back, want 2; the first: %s", len(notes), notes[0].Body)
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Errorf("%+v, %v", v, err)
	}
}

// TestAU08Rotation follows the procedure for a new key, and for a stolen one.
func TestAU08Rotation(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	next := ed25519.NewKeyFromSeed([]byte(strings.Repeat("n", 32)))
	nextPublic := []ed25519.PublicKey{next.Public().(ed25519.PublicKey)}
	l := mustOpen(t, dir, o)
	for i := range 300 {
		mustAppend(t, l, Entry{"s", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	if err := l.Rotate(t.Context(), next, testKey, "x"); !errors.Is(err, ErrKey) {
		t.Errorf("from a key that is not in force: %v, want ErrKey", err)
	}
	if err := l.Rotate(t.Context(), testKey, next, "stolen with the laptop"); err != nil {
		t.Fatal(err)
	}
	mustAppend(t, l, Entry{"s", TypeEnd, []byte("{}")})
	export := exportOf(t, l, "s")
	if v := verifyBytes(t, export, nextPublic...); v.Status != Valid {
		t.Errorf("export under the new key: %+v", v)
	}
	if v := verifyBytes(t, export, testPublic...); v.Status != Incomplete {
		t.Errorf("export, the old key trusted: %+v", v)
	}
	if v, err := l.Verify(t.Context()); err != nil || v.Status != Valid {
		t.Errorf("%+v, %v", v, err)
	}
	if err := l.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), dir, o); !errors.Is(err, ErrKey) {
		t.Errorf("opened with the old key: %v, want ErrKey", err)
	}

	stolenKey(t, dir, nextPublic)
	o.Key = next
	if err := mustOpen(t, dir, o).Close(t.Context()); err != nil {
		t.Error(err)
	}
	if v, err := VerifyDir(t.Context(), dir, nextPublic); err != nil || v.Status != Valid {
		t.Errorf("reopened with the new key: %+v, %v", v, err)
	}
}

// stolenKey has a thief, who has the old key, sign a checkpoint of what is in
// dir, and change the record of the change.
func stolenKey(t *testing.T, dir string, nextPublic []ed25519.PublicKey) {
	thief, err := signer(testKey, "example.com/test")
	if err != nil {
		t.Fatal(err)
	}
	head, err := readHead(dir)
	if err != nil {
		t.Fatal(err)
	}
	forged, err := sign(thief, head.Size, head.Root)
	if err != nil {
		t.Fatal(err)
	}
	stolen := copyDir(t, dir)
	runSQL(t, stolen, "UPDATE checkpoints SET note = ? WHERE size = ?", forged.Note, forged.Size)
	if v, err := VerifyDir(t.Context(), stolen, testPublic); err != nil || v.Status != Invalid {
		t.Errorf("signed with the stolen key: %+v, %v", v, err)
	}
	changed := copyDir(t, dir)
	runSQL(t, changed, `UPDATE entries SET leaf = CAST(replace(leaf, 'stolen with', 'broken with') AS BLOB)`)
	if v, err := VerifyDir(t.Context(), changed, nextPublic); err != nil || v.Status != Invalid || v.Index != 301 {
		t.Errorf("change of keys changed: %+v, %v", v, err)
	}
}

// TestR13Consistent compares ledgers with checkpoints that were kept elsewhere.
func TestR13Consistent(t *testing.T) {
	base := sampleDir(t, 300)
	o := testOptions()
	grow := func(dir, body string) []byte {
		l := mustOpen(t, dir, o)
		defer l.Close(t.Context())
		for range 50 {
			mustAppend(t, l, Entry{"s1", "note", []byte(body)})
		}
		c, err := l.Checkpoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return c.Note
	}
	fork := copyDir(t, base)
	early, err := os.ReadFile(filepath.Join(base, headFile))
	if err != nil {
		t.Fatal(err)
	}
	kept := grow(base, `{"branch":1}`)
	forked := grow(fork, `{"branch":2}`)
	stranger, err := signer(ed25519.NewKeyFromSeed(make([]byte, 32)), "example.com/test")
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := sign(stranger, 5, [32]byte{})
	if err != nil {
		t.Fatal(err)
	}
	l := mustOpen(t, base, o)
	longer := grow(fork, `{"branch":3}`)
	for _, c := range []struct {
		name string
		note []byte
		want error
	}{
		{"early", early, nil},
		{"kept", kept, nil},
		{"of a fork", forked, ErrTampered},
		{"of a longer fork", longer, ErrRolledBack},
		{"by another key", foreign.Note, ErrKey},
		{"of another origin", bytes.ReplaceAll(early, []byte("/test"), []byte("/else")), ErrKey},
		{"changed", bytes.Replace(early, []byte("\n3"), []byte("\n2"), 1), ErrKey},
	} {
		if err := l.Consistent(t.Context(), c.note); !errors.Is(err, c.want) {
			t.Errorf("checkpoint %s: %v, want %v", c.name, err, c.want)
		}
	}
	if err := l.Consistent(t.Context(), []byte("x")); err == nil {
		t.Error("compared with what is no checkpoint")
	}
}

func TestCheckpointsComeByThemselves(t *testing.T) {
	dir := t.TempDir()
	l := mustOpen(t, dir, testOptions())
	wait := func(size int64) {
		t.Helper()
		deadline := time.After(20 * time.Second)
		tick := time.NewTicker(10 * time.Millisecond)
		defer tick.Stop()
		for {
			head, err := readHead(dir)
			if err != nil {
				t.Fatal(err)
			}
			if head.Size >= size {
				return
			}
			select {
			case <-tick.C:
			case <-deadline:
				t.Fatalf("no checkpoint of size %d; the newest is of %d", size, head.Size)
			}
		}
	}
	mustAppend(t, l, Entry{"s", "note", []byte("{}")})
	wait(2)
	for i := range 600 {
		mustAppend(t, l, Entry{"s", "note", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	wait(602)
}

func TestAppendRefuses(t *testing.T) {
	dir, o := t.TempDir(), testOptions()
	l := mustOpen(t, dir, o)
	ok := Entry{"s", "note", []byte("{}")}
	for name, e := range map[string]Entry{
		"no session":     {"", "note", []byte("{}")},
		"long session":   {strings.Repeat("s", 65), "note", []byte("{}")},
		"odd session":    {"a/b", "note", []byte("{}")},
		"no type":        {"s", "", []byte("{}")},
		"odd type":       {"s", "Note", []byte("{}")},
		"digit first":    {"s", "1", []byte("{}")},
		"reserved":       {"s", TypeOpen, []byte("{}")},
		"end of system":  {SystemSession, TypeEnd, []byte("{}")},
		"no body":        {"s", "note", nil},
		"not an object":  {"s", "note", []byte("[]")},
		"twice the same": {"s", "note", []byte(`{"a":1,"a":2}`)},
		"inexact":        {"s", "note", []byte(`{"a":9007199254740993}`)},
		"too large":      {"s", "note", []byte(`{"a":"` + strings.Repeat("x", MaxBody) + `"}`)},
	} {
		if _, err := l.Append(t.Context(), false, ok, e); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := l.Append(t.Context(), false); err == nil {
		t.Error("no entries: accepted")
	}
	if _, err := l.Append(t.Context(), false, make([]Entry, MaxBatch+1)...); err == nil {
		t.Error("too many entries: accepted")
	}
	end := Entry{"s", TypeEnd, []byte("{}")}
	if _, err := l.Append(t.Context(), false, ok, end, ok); !errors.Is(err, ErrEnded) {
		t.Errorf("an entry after the end in one batch: %v, want ErrEnded", err)
	}
	mustAppend(t, l, ok, end)
	for range 300 { // out of the tail
		mustAppend(t, l, Entry{"t", "note", []byte("{}")})
	}
	mustAppend(t, l, Entry{"u", "note", []byte("{}")})
	for reopened := range 2 {
		if _, err := l.Append(t.Context(), false, ok); !errors.Is(err, ErrEnded) {
			t.Errorf("an entry after the end, reopened %d: %v, want ErrEnded", reopened, err)
		}
		if reopened == 0 {
			if err := l.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			l = mustOpen(t, dir, o)
		}
	}
	for session, seq := range map[string]int64{"t": 300, "u": 1} { // found in a tile, and in the tail
		if refs := mustAppend(t, l, Entry{session, "note", []byte("{}")}); refs[0].Seq != seq {
			t.Errorf("session %s goes on with %d, want %d", session, refs[0].Seq, seq)
		}
	}
	if n := len(all(t, l, Query{})); n != 308 {
		t.Errorf("%d entries, want 308: refused batches leave nothing", n)
	}
}
