package review

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"ringfence/internal/sys/subtree"
)

// What is too large is not copied, and leaves the review as it was.
func TestTooLarge(t *testing.T) {
	r := begin(t, func(ws string) { fill(t, ws, "file a 644 a\nfile b 644 "+strings.Repeat("b", 9000)) })
	if err := r.copyAtMost(t.Context(), errors.New("no overlay"), 4096); !errors.Is(err, ErrTooLarge) {
		t.Errorf("%v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Copy(ended, errors.New("no overlay")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if _, err := os.Stat(filepath.Join(r.dir, layers, "copy")); !errors.Is(err, os.ErrNotExist) || r.How() != "overlay" {
		t.Errorf("a %s is left, %v", r.How(), err)
	}
	if all, err := r.Changes(); err != nil || len(all) > 0 {
		t.Errorf("%s%v", describe(all), err)
	}
}

// TestCopyKeeps: what a build looks at is as it was, and who finds the review later
// knows that it is of a copy.
func TestCopyKeeps(t *testing.T) {
	old := time.Unix(1e9, 7)
	r := beginAs(t, "copy", func(ws string) {
		fill(t, ws, "dir d 755\nfile d/f 640 f\nfile d/run 755 r\nfile su 4755 s\nlink l d/f\nsparse tera 1099511627776\nfifo p\ndir d 2555")
		for _, name := range []string{"d/f", "d"} {
			if err := os.Chtimes(ws+"/"+name, old, old); err != nil {
				t.Fatal(err)
			}
		}
	})
	for name, want := range map[string]os.FileMode{"d": 0o555, "d/f": 0o640, "d/run": 0o755, "su": 0o755} {
		if i, err := os.Stat(r.Copied + "/" + name); err != nil || i.Mode()&^os.ModeDir != want {
			t.Errorf("%s: %v, %v", name, i.Mode(), err)
		}
	}
	for _, name := range []string{"d/f", "d"} {
		if i, err := os.Stat(r.Copied + "/" + name); err != nil || !i.ModTime().Equal(old) {
			t.Errorf("%s: %v, %v", name, i.ModTime(), err)
		}
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(filepath.Dir(filepath.Dir(r.dir)), "", r.ID)
	if err != nil || again.How() != "copy" || again.Copied != r.Copied || again.LeftOut != 1 || again.Because != "no overlay" {
		t.Fatalf("%+v, %v", again, err)
	}
	if err := again.Close(); err != nil {
		t.Error(err)
	}
}

// TestUnreadable: what may not be read is left out, and nothing takes its place.
func TestUnreadable(t *testing.T) {
	r := beginAs(t, "copy", func(ws string) {
		fill(t, ws, "file secret 000 s\ndir closed 755\nfile closed/x 644 x\ndir closed 000\ndir listed 755\nfile listed/x 644 x\ndir listed 444")
	})
	left := 3
	if os.Getuid() == 0 {
		left = 0 // who may read everything has it all
	}
	if r.LeftOut != left {
		t.Errorf("%d are left out, want %d", r.LeftOut, left)
	}
	if all, err := r.Changes(); err != nil || len(all) > 0 {
		t.Errorf("%s%v", describe(all), err)
	}
	fill(t, r.Copied, "remove secret\nremove closed\nfile secret 644 box\ndir closed 755\nfile closed/x 644 box")
	out, err := r.Apply(Selection{Force: true})
	if err != nil || left > 0 && (len(out.Applied) > 0 || len(out.Refused) != 2) || left == 0 && len(out.Refused) > 0 {
		t.Errorf("%s%s%v", describe(out.Applied), describe(out.Refused), err)
	}
}

// A file that is written to all the time is copied as it was at some moment, and what
// the box does with it is in conflict.
func TestCopyOfWhatChanges(t *testing.T) {
	var stop atomic.Bool
	began, done := make(chan struct{}), make(chan struct{})
	r := begin(t, func(ws string) { fill(t, ws, "file log 644 "+strings.Repeat("x", 1<<20)) })
	f, err := os.OpenFile(r.Workspace+"/log", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(done)
		for i := 0; i < 1000 || !stop.Load(); i++ {
			_, _ = f.WriteString("line\n")
			if i == 0 {
				close(began)
			}
		}
	}()
	<-began
	err = r.Copy(t.Context(), errors.New("no overlay"))
	stop.Store(true)
	<-done
	if err = errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
	if all, err := r.Changes(); err != nil || len(all) > 0 {
		t.Errorf("without a change of the box: %s%v", describe(all), err)
	}
	fill(t, r.Copied, "file log 644 box")
	if all, err := r.Changes(); err != nil || len(all) != 1 || all[0].Conflict == "" {
		t.Errorf("%s%v", describe(all), err)
	}
}

// What was changed so shortly before it was copied that its time may be that of a later
// change is compared by its content.
func TestOutsideByDigest(t *testing.T) {
	r := beginAs(t, "copy", func(ws string) { fill(t, ws, "file same 644 same\nfile other 644 other") })
	r.Began = time.Unix(1, 0) // all that was copied is younger
	k, err := r.kept()
	if err != nil {
		t.Fatal(err)
	}
	c := k.(copied)
	c.m.at["other"].digest = digestOf([]byte("what was copied"))
	low, err := r.workspace()
	if err != nil {
		t.Fatal(err)
	}
	defer low.Close()
	for name, conflict := range map[string]bool{"same": false, "other": true} {
		info, err := low.Lstat(name)
		if err != nil {
			t.Fatal(err)
		}
		if why, err := c.outside(name, low, name, info, true); err != nil || (why != "") != conflict {
			t.Errorf("%s: %q, %v", name, why, err)
		}
	}
}

// TestListLooksIntoNothing: of a copy in which nothing was changed, no file is read.
func TestListLooksIntoNothing(t *testing.T) {
	r := beginAs(t, "copy", func(ws string) { fill(t, ws, "many f 300") })
	k, err := r.kept()
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range k.(copied).m.at {
		rec.digest = "none has this"
	}
	up, err := subtree.Open(r.Copied)
	if err != nil {
		t.Fatal(err)
	}
	defer up.Close()
	all, err := k.entries(level{up: up})
	for _, e := range all {
		if !e.same {
			t.Errorf("%s is looked into", e.name)
		}
	}
	if err != nil || len(all) != 300 {
		t.Errorf("%d, %v", len(all), err)
	}
}

// A copy without a whole manifest is none that anything is applied from.
func TestManifestIsWhole(t *testing.T) {
	r := beginAs(t, "copy", func(ws string) { fill(t, ws, "file a 644 a\nfile b 644 b") })
	name := filepath.Join(r.dir, manifestFile)
	raw, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 10, len(raw) - len(lastLineOf), len(raw) - 1} {
		if err := os.WriteFile(name, raw[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Apply(Selection{}); err == nil || !strings.Contains(err.Error(), "reading what was copied") {
			t.Errorf("%d bytes of %d: %v", cut, len(raw), err)
		}
	}
}

func FuzzManifest(f *testing.F) {
	i := subtree.Info{Kind: subtree.File, Perm: 0o4644, Size: 5, Modified: time.Unix(-5, 3), Changed: time.Unix(1e9, 5), Dev: 1 << 63, Ino: 3}
	f.Add(encodeRecord(".", &record{live: i, copied: i}) + encodeRecord("a\xff\n b", &record{live: i, left: "it \"is\" left out", digest: "x"}) + lastLineOf)
	f.Add(encodeRecord("../x", &record{}) + lastLineOf)
	f.Fuzz(func(t *testing.T, text string) {
		m, err := decodeManifest(strings.NewReader(text))
		if err != nil {
			return
		}
		for p, rec := range m.at {
			if filepath.Clean(p) != p || filepath.IsAbs(p) || p == ".." || strings.HasPrefix(p, "../") {
				t.Fatalf("accepted %q", p)
			}
			again, back, err := decodeRecord(strings.TrimSuffix(encodeRecord(p, rec), "\n"))
			if err != nil || again != p || back.left != rec.left || back.digest != rec.digest || !back.live.Same(rec.live) || back.copied.Perm != rec.copied.Perm {
				t.Fatalf("%q: %+v, %v", p, back, err)
			}
		}
	})
}
