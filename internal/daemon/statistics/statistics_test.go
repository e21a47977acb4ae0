package statistics

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/sys/database"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 0, time.UTC)

// keep writes entries, and returns the file.
func keep(t interface{ Fatal(...any) }, dir string, now time.Time, entries ...Entry) string {
	path := filepath.Join(dir, "statistics.db")
	r := NewRecorder(Options{Path: path, Now: func() time.Time { return now }})
	for i, e := range entries {
		if r.Note(e); i%maxQueue == maxQueue-1 {
			r.Close()
			r = NewRecorder(Options{Path: path, Now: r.o.Now})
		}
	}
	r.Close()
	if r.lost > 0 {
		t.Fatal(r.lost, "entries were lost")
	}
	return path
}

func TestT1Names(t *testing.T) {
	src, err := os.ReadFile("testdata/models.txt")
	if err != nil {
		t.Fatal(err)
	}
	n, w := 0, &writer{models: map[string]bool{}}
	for line := range strings.Lines(string(src)) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		var e Entry
		var want string
		if _, err := fmt.Sscanf(line, "%q %s => %s", &e.Model, &e.End, &want); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if got := w.model(e); got != want {
			t.Errorf("%q: %q", line, got)
		}
		n++
	}
	if n < 10 {
		t.Errorf("%d cases", n)
	}
}

// TestShow: whatever was asked, each group sums up what was noted, and nothing else.
func TestShow(t *testing.T) {
	entry := rapid.Custom(func(t *rapid.T) Entry {
		of := func(name string, from ...string) string { return rapid.SampledFrom(from).Draw(t, name) }
		n := rapid.Int64Range(-2, 1000)
		return Entry{
			Time:    noon.Add(time.Duration(rapid.IntRange(-80, 0).Draw(t, "hours")) * time.Hour),
			Session: of("session", "s1", "s2"), Persona: of("persona", "p", "q"), Agent: of("agent", "a", "b"),
			Model: of("model", "x/1", "y/2"), End: End(of("end", "answered", "cut", "failed", "denied")),
			Usage:    Usage{n.Draw(t, "in"), n.Draw(t, "out"), n.Draw(t, "read"), n.Draw(t, "write"), n.Draw(t, "thought"), rapid.Bool().Draw(t, "estimated")},
			MicroUSD: n.Draw(t, "cost"), Took: time.Duration(n.Draw(t, "ms")) * time.Millisecond,
		}
	})
	root, runs := t.TempDir(), 0
	rapid.Check(t, func(t *rapid.T) {
		runs++
		dir := filepath.Join(root, fmt.Sprint(runs))
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		all := rapid.SliceOfN(entry, 0, 40).Draw(t, "entries")
		first := []Entry{{Model: "x/1", End: Answered}, {Model: "y/2", End: Answered}} // long ago
		path := keep(t, dir, noon, append(first, all...)...)
		q := Query{By: rapid.SampledFrom(Groups()).Draw(t, "by"), Since: noon.Add(-40 * time.Hour), Session: rapid.SampledFrom([]string{"", "s1"}).Draw(t, "of")}
		got, err := Show(context.Background(), path, q)
		if err != nil {
			t.Fatal(err)
		}
		slices.SortFunc(got, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
		if want := sum(all, q); !slices.Equal(got, want) {
			t.Fatalf("%+v\n got %+v\nwant %+v", q, got, want)
		}
	})
}

// sum is Show, of entries in memory.
func sum(all []Entry, q Query) (rows []Row) {
	took := map[string][]int64{}
	for _, e := range all {
		name := map[string]string{"model": e.Model, "session": e.Session, "persona": e.Persona, "agent": e.Agent, "day": e.Time.Format(time.DateOnly)}[q.By]
		if e.Time.Before(q.Since) || q.Session != "" && e.Session != q.Session {
			continue
		}
		i := slices.IndexFunc(rows, func(r Row) bool { return r.Name == name })
		if i < 0 {
			rows, i = append(rows, Row{Name: name}), len(rows)
		}
		r := &rows[i]
		r.Requests++
		*map[End]*int64{Answered: new(int64), Cut: &r.Cut, Failed: &r.Failed, Denied: &r.Denied}[e.End]++
		r.Input, r.Output = r.Input+max(e.Usage.Input, 0), r.Output+max(e.Usage.Output, 0)
		r.CacheRead, r.CacheWrite = r.CacheRead+max(e.Usage.CacheRead, 0), r.CacheWrite+max(e.Usage.CacheWrite, 0)
		r.Reasoning, r.MicroUSD = r.Reasoning+max(e.Usage.Reasoning, 0), r.MicroUSD+max(e.MicroUSD, 0)
		if e.Usage.Estimated {
			r.Estimated++
		}
		if e.MicroUSD < 0 && (e.End == Answered || e.End == Cut) {
			r.Unpriced++
		}
		if e.End == Answered {
			took[name] = append(took[name], max(e.Took.Milliseconds(), 0))
		}
	}
	for i := range rows {
		if ms := took[rows[i].Name]; len(ms) > 0 {
			slices.Sort(ms)
			rows[i].MedianMS, rows[i].P95MS = ms[(len(ms)-1)/2], ms[(len(ms)*95+99)/100-1]
		}
	}
	slices.SortFunc(rows, func(a, b Row) int { return cmp.Compare(a.Name, b.Name) })
	return rows
}

func TestT2NobodyWaits(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "statistics.db")
	if err := os.Mkdir(path, 0o700); err != nil { // it cannot be opened
		t.Fatal(err)
	}
	r := NewRecorder(Options{Path: path})
	for range 3 * maxQueue {
		r.Note(Entry{})
	}
	r.Close()
	r.Note(Entry{}) // and after it is closed
	r.Close()
	var none *Recorder
	none.Note(Entry{})
	none.Close()
	if _, err := Show(t.Context(), path, Query{By: "model"}); err == nil {
		t.Error("a directory was shown")
	}
	NewRecorder(Options{Path: filepath.Join(dir, "unused")}).Close()
	if _, err := os.Lstat(filepath.Join(dir, "unused")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file was made for nothing: %v", err)
	}
}

func TestT3Old(t *testing.T) {
	dir := t.TempDir()
	keep(t, dir, noon, Entry{Time: noon, Session: "old"}, Entry{Time: noon.AddDate(0, 0, 1), Session: "young"})
	path := keep(t, dir, noon.AddDate(0, 0, DefaultDays).Add(time.Hour), Entry{Time: noon.AddDate(0, 0, DefaultDays), Session: "new"})
	if got := names(t, path); !slices.Equal(got, []string{"new", "young"}) {
		t.Errorf("%v", got)
	}
}

func names(t *testing.T, path string) (names []string) {
	t.Helper()
	rows, err := Show(t.Context(), path, Query{By: "session"})
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

func TestDelete(t *testing.T) {
	for name, c := range map[string]struct {
		what Selection
		left []string
	}{
		"everything":    {Selection{}, nil},
		"a session":     {Selection{Session: "secondSession"}, []string{"firstSession", "thirdSession"}},
		"what is older": {Selection{Before: noon}, []string{"secondSession", "thirdSession"}},
		"both":          {Selection{Session: "thirdSession", Before: noon}, []string{"firstSession", "secondSession", "thirdSession"}},
	} {
		path := keep(t, t.TempDir(), noon, Entry{Time: noon.Add(-time.Second), Session: "firstSession"}, Entry{Time: noon, Session: "secondSession"}, Entry{Time: noon, Session: "thirdSession"})
		n, err := Delete(t.Context(), path, c.what)
		if got := names(t, path); err != nil || !slices.Equal(got, c.left) || n != int64(3-len(c.left)) {
			t.Errorf("%s: %d, %v, left %v", name, n, err, got)
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range []string{"firstSession", "secondSession", "thirdSession"} {
			if bytes.Contains(raw, []byte(s)) != slices.Contains(c.left, s) {
				t.Errorf("%s: that the file holds %s is %v", name, s, !slices.Contains(c.left, s))
			}
		}
	}
	if n, err := Delete(t.Context(), filepath.Join(t.TempDir(), "none"), Selection{}); n != 0 || err != nil {
		t.Errorf("nothing: %d, %v", n, err)
	}
}

// TestWhileWriting: a person may look and delete while the engine has the file.
func TestWhileWriting(t *testing.T) {
	path := filepath.Join(t.TempDir(), "statistics.db")
	db, err := database.OpenSQLite(t.Context(), path, schema)
	if err != nil {
		t.Fatal(err)
	}
	w := &writer{o: Options{Path: path, Days: 1, Now: func() time.Time { return noon }}, models: map[string]bool{}}
	for i := range 3 {
		if err := w.put([]Entry{{Time: noon, Session: "s"}}); err != nil {
			t.Fatal(err)
		}
		if got := names(t, path); !slices.Equal(got, []string{"s"}) {
			t.Errorf("round %d: %v", i, got)
		}
		if n, err := Delete(t.Context(), path, Selection{}); n != 1 || err != nil {
			t.Errorf("round %d: %d, %v", i, n, err)
		}
	}
	if err := errors.Join(w.db.Close(), db.Close()); err != nil {
		t.Error(err)
	}
}
