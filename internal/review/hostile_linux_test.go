package review

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
			err = a.each(all[i], a.put, &out)
			if err != nil || len(out.Conflicts) != 1 {
				t.Errorf("%+v, %v", out, err)
			}
			// Forced, it goes where it belongs, or not at all.
			a.force = true
			if err := a.each(all[i], a.put, &out); err != nil {
				t.Error(err)
			}
			if err := a.end(nil); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestChangedWhileFilled: what is written outside while a file of the box is copied is
// kept, and a conflict, whatever it is.
func TestChangedWhileFilled(t *testing.T) {
	for name, c := range map[string]struct{ path, meanwhile, want string }{
		"edited":   {"old", "file old 644 person", "-rw-r--r-- old \"person\\n\""},
		"replaced": {"old", "remove old\nlink old ../outside", "Lrwxrwxrwx old -> ../outside"},
		"a mode":   {"old", "file old 600 old", "-rw------- old \"old\\n\""},
		"removed":  {"old", "remove old", ""},
		"made":     {"new", "file new 644 person", "-rw-r--r-- new \"person\\n\""},
		"a link":   {"new", "link new ../outside", "Lrwxrwxrwx new -> ../outside"},
		"going":    {"gone", "file gone 644 person", "-rw-r--r-- gone \"person\\n\""},
	} {
		t.Run(name, func(t *testing.T) {
			r := begin(t, func(ws string) { fill(t, ws, "file old 644 old\nfile gone 644 gone") })
			fill(t, r.Upper, "file old 644 box\nfile new 644 box\ngone gone")
			all, err := r.Changes()
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(all, func(each Change) bool { return each.Path == c.path })
			a, err := r.begin(nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			do := a.put
			if all[i].Kind == Deleted {
				do = a.remove
			}
			var out Outcome
			err = a.each(all[i], func(each Change) error {
				fill(t, r.Workspace, c.meanwhile) // what each has looked at is no longer so
				return do(each)
			}, &out)
			if err = errors.Join(err, a.end(nil)); err != nil || len(out.Conflicts) != 1 {
				t.Errorf("%+v, %v", out, err)
			}
			got := ""
			for line := range strings.Lines(snapshot(t, r.Workspace)) {
				if strings.Contains(line, " "+c.path) || strings.Contains(line, ".ringfence") {
					got += strings.TrimSpace(line)
				}
			}
			if got != c.want {
				t.Errorf("%q, want %q", got, c.want)
			}
		})
	}
}

// A box that still writes is found out, and so is who replaces what was listed by a
// link, a pipe or another file: nothing of it is applied.
func TestUpperChanges(t *testing.T) {
	for way := range ways {
		for name, meanwhile := range map[string]string{
			"written": "file d/x 644 another", "a link": "remove d/x\nlink d/x ../../../../../../outside", "a link above": "move d e\nlink d e",
			"a pipe": "remove d/x\nfifo d/x", "gone": "remove d", "a hard link": "remove d/x\noutlink d/x ../../../../outside",
		} {
			t.Run(way+"/"+name, func(t *testing.T) {
				r := beginAs(t, way, func(ws string) { fill(t, ws, "dir d 755") })
				fill(t, r.Left(), "dir d 755\nfile d/x 644 seen")
				all, err := r.Changes()
				if err != nil || len(all) != 1 {
					t.Fatal(all, err)
				}
				fill(t, r.Left(), meanwhile)
				a, err := r.begin(nil, nil)
				if err != nil {
					t.Fatal(err)
				}
				if err := a.each(all[0], a.put, &Outcome{}); !errors.Is(err, ErrMoved) {
					t.Errorf("%v, want ErrMoved", err)
				}
				if err := a.end(nil); err != nil {
					t.Error(err)
				}
				if left := snapshot(t, r.Workspace); strings.Count(left, "\n") != 2 {
					t.Errorf("left:\n%s", left)
				}
			})
		}
	}
}

// TestKilledApply: an apply that is killed, wherever it is, can be repeated until all
// is done, and leaves nothing else.
func TestKilledApply(t *testing.T) {
	const files = 1500
	for way := range ways {
		t.Run(way, func(t *testing.T) {
			r := beginAs(t, way, func(ws string) { fill(t, ws, "dir gone 755\nmany gone/f 400\nfile old 644 old") })
			box(t, r, work{Lines: "dir in 755\nmany in/f 1500\nremove gone\nfile old 644 new"})
			if err := r.Close(); err != nil {
				t.Fatal(err)
			}
			killed := 0
			for _, at := range []int{1, 400, 900} {
				if killApply(t, r, at) {
					killed++
				}
			}
			again, err := Open(filepath.Dir(filepath.Dir(r.dir)), "", r.ID)
			if err != nil {
				t.Fatal(err)
			}
			out, err := again.Apply(Selection{})
			if err = errors.Join(err, again.Close()); err != nil || out.Left != 0 || len(out.Conflicts)+len(out.Refused) != 0 {
				t.Fatalf("%d left, %s%s%v", out.Left, describe(out.Conflicts), describe(out.Refused), err)
			}
			names, err := os.ReadDir(r.Workspace + "/in")
			top, terr := os.ReadDir(r.Workspace)
			if err = errors.Join(err, terr); err != nil || len(names) != files || len(top) != 2 || killed == 0 {
				t.Errorf("%d files, top %v, killed %d times, %v", len(names), top, killed, err)
			}
		})
	}
}

// killApply has another process apply r, and kills it when it has made that many
// files. It reports whether it was killed before its end.
func killApply(t *testing.T, r *Review, files int) bool {
	t.Helper()
	c := exec.Command("/proc/self/exe")
	c.Env = []string{applyEnv + "=" + filepath.Dir(filepath.Dir(r.dir)) + ":" + r.ID}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	for {
		select {
		case err := <-ended:
			if err != nil {
				t.Fatal(err)
			}
			return false
		default:
		}
		if names, _ := os.ReadDir(r.Workspace + "/in"); len(names) >= files {
			_ = c.Process.Kill()
			return <-ended != nil
		}
	}
}

// TestNothingBesideContent: of what a box gave a file beside content, permissions and
// time, nothing is applied.
func TestNothingBesideContent(t *testing.T) {
	for way := range ways {
		r := beginAs(t, way, func(ws string) { fill(t, ws, "file old 644 old") })
		lines := "file x 6755 x\nfile old 2755 new\nxattr x user.evil 1\nxattr old user.evil 1"
		if os.Getuid() == 0 {
			lines += "\nxattr x security.capability \"\\x01\\x00\\x00\\x02\\x02\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x00\""
		}
		fill(t, r.Left(), lines)
		if out, err := r.Apply(Selection{}); err != nil || out.Left != 0 {
			t.Fatalf("%s: %+v, %v", way, out, err)
		}
		for _, name := range []string{"x", "old"} {
			list := make([]byte, 1024)
			n, err := unix.Listxattr(r.Workspace+"/"+name, list)
			info, serr := os.Stat(r.Workspace + "/" + name)
			if err = errors.Join(err, serr); err != nil || n != 0 || info.Mode() != 0o755 {
				t.Errorf("%s: %s has attributes %q, mode %v, %v", way, name, list[:max(n, 0)], info.Mode(), err)
			}
		}
	}
}

// TestTwoReviews: what one review has applied is an outside change to the other.
func TestTwoReviews(t *testing.T) {
	for way := range ways {
		r := beginAs(t, way, func(ws string) { fill(t, ws, "file both 644 base") })
		other, err := New(Options{Home: filepath.Dir(filepath.Dir(r.dir)), Workspace: r.Workspace})
		if err == nil && way == "copy" {
			err = other.Copy(t.Context(), errors.New("no overlay"))
		}
		if err != nil {
			t.Fatal(err)
		}
		fill(t, r.Left(), "file both 644 one\nfile new 644 one")
		fill(t, other.Left(), "file both 644 two\nfile new 644 two\nfile free 644 two")
		var outs [2]Outcome
		var errs [2]error
		var wait sync.WaitGroup
		for i, each := range []*Review{r, other} {
			wait.Go(func() { outs[i], errs[i] = each.Apply(Selection{}) })
		}
		wait.Wait()
		total := len(outs[0].Applied) + len(outs[1].Applied)
		if err := errors.Join(errs[0], errs[1], other.Remove(), other.Close()); err != nil || total < 3 || total > 5 {
			t.Errorf("%s: %+v, %v", way, outs, err)
		}
		for _, name := range []string{"both", "new"} {
			if b, err := os.ReadFile(r.Workspace + "/" + name); string(b) != "one\n" && string(b) != "two\n" {
				t.Errorf("%s: %s is %q, %v", way, name, b, err)
			}
		}
	}
}

// TestPathMax: paths that are longer than any system call takes are looked at and
// applied like others.
func TestPathMax(t *testing.T) {
	const levels = 24 // of 250 bytes
	name := strings.Repeat("n", 250)
	for way := range ways {
		r := beginAs(t, way, func(string) {})
		d, err := subtree.Open(r.Left())
		for range levels {
			var next *subtree.Dir
			if err = errors.Join(err, d.Mkdir(name, 0o755)); err == nil {
				next, err = d.Open(name)
			}
			if err != nil {
				t.Fatal(err)
			}
			d.Close()
			d = next
		}
		f, err := d.Create("f")
		if err = errors.Join(err, f.Close(), d.Close()); err != nil {
			t.Fatal(err)
		}
		out, err := r.Apply(Selection{})
		if err != nil || len(out.Applied) != levels+1 || out.Left != 0 {
			t.Errorf("%s: %d applied, %s%v", way, len(out.Applied), describe(out.Refused), err)
		}
		low, err := subtree.Open(r.Workspace)
		if err = errors.Join(err, low.RemoveAll(name), low.Close()); err != nil {
			t.Error(err)
		}
	}
}

// What an apply that was killed has left is cleared by the next.
func TestLeftovers(t *testing.T) {
	r := begin(t, func(ws string) { fill(t, ws, "dir gone 755\nfile gone/x 644 x\ndir kind 755\nfile kind/x 644 x") })
	fill(t, r.Upper, "gone gone\nfile new 644 n\nfile kind 644 n")
	all, err := r.Changes()
	if err != nil {
		t.Fatal(err)
	}
	a, err := r.begin(all, all)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for _, name := range []string{r.temporary(c.Path), r.aside(c.Path)} {
			fill(t, r.Workspace, strings.ReplaceAll("dir T 700\nfile T/part 644 p\ndir T 500", "T", name))
		}
	}
	if err := errors.Join(os.RemoveAll(r.Workspace+"/gone"), a.end(nil)); err != nil {
		t.Fatal(err)
	}
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != 2 {
		t.Errorf("%+v, %v", out, err)
	}
	if names, err := filepath.Glob(r.Workspace + "/.*"); err != nil || len(names) > 0 {
		t.Errorf("left: %q, %v", names, err)
	}
}

// TestLed: what is led to runs later, with all beneath and in each spelling, and so does
// what replaces or removes a directory that has it.
func TestLed(t *testing.T) {
	for way := range ways {
		r := beginAs(t, way, func(ws string) {
			fill(t, ws, "dir tools/hooks 755\nfile tools/hooks/a 644 a\ndir other 755\ndir dev/hooks 755")
		})
		r.Led = []Led{{r.Workspace + "/tools/hooks", "core.hooksPath"}, {r.Workspace + "/dev/hooks", "core.hooksPath"}}
		box(t, r, work{Lines: "file tools/hooks/a 755 evil\nfile tools/x 644 x\ndir Tools/Hooks 755\nfile Tools/Hooks/b 755 evil\nremove dev\nfile other/hooks 644 x"})
		all, err := r.Changes()
		want := "added Tools\nadded Tools/Hooks\nadded Tools/Hooks/b runs-later executable\ndeleted dev runs-later\nadded other/hooks\n" +
			"modified tools/hooks/a runs-later executable\nadded tools/x\n"
		if got := describe(all); err != nil || got != want {
			t.Errorf("%s: %s%v", way, got, err)
		}
	}
}

// TestHomeInWorkspace: what a box changes is never kept where it can change it.
func TestHomeInWorkspace(t *testing.T) {
	ws, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := New(Options{Home: ws + "/home", Workspace: ws}); err == nil || !strings.Contains(err.Error(), "RINGFENCE_HOME") {
		t.Errorf("%v", err)
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

// TestMovedUnread: a file of somebody else, which the box could move and not read, is not
// given to the owner of the workspace (applying as root did).
func TestMovedUnread(t *testing.T) {
	if os.Getuid() != 0 {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs root, who alone can give files away")
		}
		t.Skip("needs root, who alone can give files away")
	}
	r := begin(t, func(ws string) {
		fill(t, ws, "file secret 600 s")
		if err := os.Chown(ws+"/secret", 1234, 1234); err != nil {
			t.Fatal(err)
		}
	})
	fill(t, r.Upper, "file moved 600 s\nfile own 644 box")
	if err := os.Chown(r.Upper+"/moved", 1234, 1234); err != nil {
		t.Fatal(err)
	}
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != 1 || len(out.Refused) != 1 || out.Refused[0].Path != "moved" || !strings.Contains(out.Refused[0].Refused, "user 1234") {
		t.Errorf("applied %s, refused %s, %v", describe(out.Applied), describe(out.Refused), err)
	}
	if _, err := os.Lstat(r.Workspace + "/moved"); err == nil {
		t.Error("it was given away")
	}
}
