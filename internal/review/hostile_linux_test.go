package review

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sys/subtree"
)

// What is deeper than is looked at is refused, and goes with the rest.
func TestDeep(t *testing.T) {
	r := begin(t, func(string) {})
	fill(t, r.Upper, "deep deep 300\ndeep abyss 520")
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != 301+512 || len(out.Refused) != 1 || strings.Count(out.Refused[0].Path, "/") != maxDepth {
		t.Errorf("%d applied, refused %s, %v", len(out.Applied), describe(out.Refused), err)
	}
	if _, err := os.Stat(r.Workspace + "/deep" + strings.Repeat("/d", 300)); err != nil {
		t.Error(err)
	}
}

func TestManyFiles(t *testing.T) {
	const n = 100_000
	r := begin(t, func(string) {})
	fill(t, r.Upper, "many f 100000")
	began := time.Now()
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != n || out.Left != 0 {
		t.Fatalf("%d applied, %d left, %v", len(out.Applied), out.Left, err)
	}
	t.Logf("%d files in %v", n, time.Since(began))
	if names, err := os.ReadDir(r.Workspace); err != nil || len(names) != n {
		t.Errorf("%d files, %v", len(names), err)
	}
}

// What stands in the way only when it is applied: each is a conflict, and nothing
// outside is touched.
func TestChangedMeanwhile(t *testing.T) {
	for name, meanwhile := range map[string]string{
		"edited": "file d/x 644 person", "a link instead of the directory": "remove d\nlink d ..",
		"a link instead of the file": "remove d/x\nlink d/x ../../outside", "gone": "remove d",
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, func(ws string) { fill(t, ws, "dir d 755\nfile d/x 644 x") })
			fill(t, r.Upper, "dir d 755\nfile d/x 644 box\nfile d/new 644 box")
			all, err := r.Changes()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(all, func(c Change) bool { return c.Path == "d/x" })
			a, err := r.begin(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			fill(t, r.Workspace, meanwhile)
			var out Outcome
			err = a.each(all[i], false, a.put, &out)
			if err != nil || len(out.Conflicts) != 1 {
				t.Errorf("%+v, %v", out, err)
			}
			// Forced, it goes where it belongs, or not at all.
			if err := a.each(all[i], true, a.put, &out); err != nil {
				t.Error(err)
			}
			if err := a.end(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// A box that still writes is found out, and the file is not applied.
func TestUpperChanges(t *testing.T) {
	r := begin(t, func(string) {})
	fill(t, r.Upper, "file x 644 seen")
	all, err := r.Changes()
	if err != nil {
		t.Fatal(err)
	}
	fill(t, r.Upper, "file x 644 another")
	a, err := r.begin(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := a.each(all[0], false, a.put, &Outcome{}); !errors.Is(err, ErrMoved) {
		t.Errorf("%v, want ErrMoved", err)
	}
	if err := a.end(nil); err != nil {
		t.Error(err)
	}
	if left := snapshot(t, r.Workspace); strings.Count(left, "\n") != 1 {
		t.Errorf("left:\n%s", left)
	}
}

// What an apply that was killed has left is cleared by the next.
func TestLeftovers(t *testing.T) {
	r := begin(t, func(ws string) { fill(t, ws, "dir gone 755\nfile gone/x 644 x") })
	fill(t, r.Upper, "gone gone\nfile new 644 n")
	all, err := r.Changes()
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.begin(all, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		fill(t, r.Workspace, strings.ReplaceAll("dir T 700\nfile T/part 644 p\ndir T 500", "T", r.temporary(c.Path)))
	}
	if err := errors.Join(os.RemoveAll(r.Workspace+"/gone"), a.end(nil)); err != nil {
		t.Fatal(err)
	}
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != 1 {
		t.Errorf("%+v, %v", out, err)
	}
	if names, err := filepath.Glob(r.Workspace + "/.*"); err != nil || len(names) > 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}

func TestWorkspaceReplaced(t *testing.T) {
	r := begin(t, func(string) {})
	fill(t, r.Upper, "file x 644 x")
	ws := r.Workspace
	if err := errors.Join(os.Rename(ws, ws+".old"), os.Mkdir(ws, 0o755)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Apply(Selection{}); !errors.Is(err, ErrWorkspace) {
		t.Errorf("another directory: %v", err)
	}
	if err := errors.Join(os.Remove(ws), os.Symlink(ws+".old", ws)); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Apply(Selection{}); !errors.Is(err, ErrWorkspace) {
		t.Errorf("a link: %v", err)
	}
}

func TestClockSetBack(t *testing.T) {
	r := begin(t, func(string) {})
	r.Began = time.Now().Add(time.Hour)
	if _, err := r.Changes(); !errors.Is(err, ErrClock) {
		t.Errorf("%v", err)
	}
	// Where time stamps are coarse, what falls into the same two seconds is in doubt.
	r.Began = time.Unix(1000, 900)
	for at, doubt := range map[time.Time]bool{time.Unix(1000, 0): true, time.Unix(999, 0): false, time.Unix(1000, 899): false, time.Unix(1000, 900): true} {
		if got := r.conflict(subtree.Info{Changed: at}) != ""; got != doubt {
			t.Errorf("%v: %v", at, got)
		}
	}
}

// A review is used by one at a time, and found again by all.
func TestReviews(t *testing.T) {
	r := begin(t, func(string) {})
	home := filepath.Dir(filepath.Dir(r.dir))
	if _, err := Open(home, "", r.ID); !errors.Is(err, ErrRunning) {
		t.Errorf("opening it twice: %v", err)
	}
	all, err := List(home, "")
	if err != nil || len(all) != 1 || !all[0].Running() || all[0].Upper != r.Upper || all[0].Session != "s-1" {
		t.Fatalf("%+v, %v", all, err)
	}
	if err := r.Close(); err != nil || all[0].Running() {
		t.Errorf("after Close: %v", err)
	}
	again, err := Open(home, "", r.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := again.Apply(Selection{Paths: []string{"nothing"}}); !errors.Is(err, ErrNoChange) {
		t.Errorf("no such path: %v", err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
	for _, id := range []string{"", "..", "r-aaaaaa", "r-../..", "r-AAAAAA"} {
		if _, err := Open(home, "", id); !errors.Is(err, ErrNoReview) {
			t.Errorf("%q: %v", id, err)
		}
	}
}

func FuzzMeta(f *testing.F) {
	raw, err := encodeMeta(&Review{ID: "r-abc234", Workspace: "/w", Session: "s", Began: time.Unix(1e9, 5), root: identity{1 << 63, 2}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(raw)
	f.Add([]byte(`{"version":1,"id":"r-abc234","workspace":"/w/..","began":"2026-01-01T00:00:00Z","device":"1","inode":"2"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := decodeMeta(raw)
		if err != nil {
			return
		}
		if !validID(r.ID) || filepath.Clean(r.Workspace) != r.Workspace || !filepath.IsAbs(r.Workspace) {
			t.Fatalf("accepted %q", raw)
		}
		back, err := encodeMeta(r)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := decodeMeta(back); err != nil || again.root != r.root || !again.Began.Equal(r.Began) || again.Workspace != r.Workspace {
			t.Fatalf("%s: %v", back, err)
		}
	})
}

func FuzzDone(f *testing.F) {
	f.Add("begun \"a\"\napplied \"a\"\ndiscarded \"\\xff\\n\"\nappl")
	f.Fuzz(func(t *testing.T, text string) {
		d, err := decodeDone(text)
		if err == nil && len(d) > strings.Count(text, "\n") {
			t.Fatalf("%q gives %v", text, d)
		}
	})
}

// A directory that its owner may only list does not keep the rest from being reviewed.
func TestClosedDirectory(t *testing.T) {
	r := begin(t, func(ws string) { fill(t, ws, "dir ro 755\nfile ro/x 644 x\ndir ro 555") })
	fill(t, r.Upper, "dir d 755\nfile d/x 644 x\ndir d 600\nfile y 644 y\ndir ro 755\nfile ro/x 644 changed\nfile ro/y 644 y\ndir ro 555")
	out, err := r.Apply(Selection{})
	applied := 3
	if os.Getuid() == 0 {
		applied = 5 // who may look at everything sees what is in it
	}
	if err != nil || len(out.Applied) != applied || len(out.Applied)+2*len(out.Refused) != 5 {
		t.Errorf("applied %srefused %s%v", describe(out.Applied), describe(out.Refused), err)
	}
	if i, err := os.Stat(r.Workspace + "/ro"); err != nil || i.Mode().Perm() != 0o555 {
		t.Errorf("%v, %v", i, err)
	}
}

// TestModeOfTheWorkspaceAfterAPart: what was applied in the workspace changes its time,
// and is no outside change of it.
func TestModeOfTheWorkspaceAfterAPart(t *testing.T) {
	r := begin(t, func(ws string) { fill(t, ws, "file old 644 x") })
	fill(t, r.Upper, "file new 644 n")
	if err := os.Chmod(r.Upper, 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := r.Apply(Selection{Paths: []string{"new"}}); err != nil {
		t.Fatal(err)
	}
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Conflicts) > 0 || len(out.Applied) != 1 || out.Applied[0].Path != "." {
		t.Errorf("%+v, %v", out, err)
	}
}
