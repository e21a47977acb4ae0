package review

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"pgregory.net/rapid"
)

// childEnv makes this test binary a program in a box: it mounts the overlay that the
// variable names and does there what it is told on standard input.
const childEnv = "RINGFENCE_TEST_OVERLAY"

// applyEnv makes this test binary one that applies a review.
const applyEnv = "RINGFENCE_TEST_APPLY"

func TestMain(m *testing.M) {
	if plan := os.Getenv(childEnv); plan != "" {
		if err := child(plan); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if home, id, ok := strings.Cut(os.Getenv(applyEnv), ":"); ok {
		r, err := Open(home, "", id)
		if err == nil {
			_, err = r.Apply(Selection{})
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	// Each check makes namespaces and waits for them to go.
	if f := flag.Lookup("rapid.checks"); f != nil {
		_ = f.Value.Set("30")
	}
	os.Exit(m.Run())
}

// An op is one thing that a program does to a tree.
type op struct {
	Do   string
	Path string
	To   string
	Mode uint32
}

func (o op) run(root string) {
	path := root + "/" + o.Path
	// What fails here fails there: the trees are alike.
	switch o.Do {
	case "write":
		_ = os.WriteFile(path, []byte(o.To), 0o644)
	case "append":
		if f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0); err == nil {
			_, _ = f.WriteString(o.To)
			_ = f.Close()
		}
	case "mkdir":
		_ = os.MkdirAll(path, 0o755)
	case "remove":
		_ = os.RemoveAll(path)
	case "link":
		_ = os.Symlink(o.To, path)
	case "chmod":
		if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink == 0 {
			if info.IsDir() {
				o.Mode |= 0o500 // what cannot be looked at is refused
			}
			_ = unix.Chmod(path, o.Mode)
		}
	case "move":
		if info, err := os.Lstat(path); err == nil && !info.IsDir() { // a directory is another device to an overlay
			_ = os.Rename(path, root+"/"+o.To)
		}
	case "anew":
		if info, err := os.Lstat(path); err == nil && info.IsDir() {
			_ = os.RemoveAll(path)
			_ = os.Mkdir(path, 0o755)
		}
	}
}

func child(plan string) error {
	var dirs struct{ Lower, Upper, Work, Merged string }
	var w work
	raw, err := io.ReadAll(os.Stdin)
	if err = errors.Join(err, json.Unmarshal([]byte(plan), &dirs), json.Unmarshal(raw, &w)); err != nil {
		return err
	}
	unix.Umask(0o022)
	options := fmt.Sprintf("userxattr,lowerdir=%s,upperdir=%s,workdir=%s", dirs.Lower, dirs.Upper, dirs.Work)
	if err := unix.Mount("overlay", dirs.Merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mounting: %w", err)
	}
	return w.run(dirs.Merged)
}

// work is what a box does: operations that may fail, and lines that may not.
type work struct {
	Ops   []op
	Lines string
}

func (w work) run(root string) error {
	for _, o := range w.Ops {
		o.run(root)
	}
	return fillAll(root, w.Lines)
}

// ways are the ways in which a review is kept, each with how a box works in it. All
// pass the same suite.
var ways = map[string]func(*Review, work) error{"overlay": inOverlay, "copy": inCopy}

// inCopy does w in a copy of the workspace.
func inCopy(r *Review, w work) error {
	if r.Copied == "" {
		return errors.New("it is no copy")
	}
	return w.run(r.Copied)
}

// beginAs is begin in one of the ways.
func beginAs(t testing.TB, way string, build func(ws string)) *Review {
	t.Helper()
	r := begin(t, build)
	if way == "copy" {
		if err := r.Copy(t.Context(), errors.New("no overlay")); err != nil {
			t.Fatal(err)
		}
	}
	if r.How() != way {
		t.Fatalf("it is of a %s", r.How())
	}
	return r
}

// box does w in r, or skips the test where there are no overlays.
func box(t *testing.T, r *Review, w work) {
	t.Helper()
	switch err := ways[r.How()](r, w); {
	case errors.Is(err, errNoOverlay) && os.Getenv("CI") != "true":
		t.Skip(err)
	case err != nil:
		t.Fatal(err)
	}
}

var errNoOverlay = errors.New("no overlay can be mounted in a user namespace here")

// inOverlay does w in an overlay of r.
func inOverlay(r *Review, w work) error {
	merged := filepath.Join(filepath.Dir(r.dir), "merged")
	if err := os.MkdirAll(merged, 0o700); err != nil {
		return err
	}
	plan, err := json.Marshal(map[string]string{"Lower": r.Workspace, "Upper": r.Upper, "Work": r.Work, "Merged": merged})
	if err != nil {
		return err
	}
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	c := exec.Command("/proc/self/exe")
	c.Env = []string{childEnv + "=" + string(plan)}
	c.Stdin = strings.NewReader(string(raw))
	c.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
	}
	out, err := c.CombinedOutput()
	if err != nil && (len(out) == 0 || strings.Contains(string(out), "mounting:")) {
		return fmt.Errorf("%w: %w %s", errNoOverlay, err, out)
	}
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}

func genOps() *rapid.Generator[[]op] {
	names := []string{"a", "b", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a", "f/d", "f/d/a", "l"}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) op {
		return op{
			Do:   rapid.SampledFrom([]string{"write", "append", "mkdir", "remove", "link", "chmod", "move", "anew"}).Draw(t, "do"),
			Path: rapid.SampledFrom(names).Draw(t, "path"),
			To:   rapid.SampledFrom(names).Draw(t, "to"),
			Mode: rapid.SampledFrom([]uint32{0o644, 0o755, 0o700, 0o600, 0o555, 0o4755}).Draw(t, "mode"),
		}
	}), 0, 14)
}

// TestApplyIsDoing: what a program does in an overlay, applied, is what it would have
// done in the workspace; in two parts, after an interruption, or at once.
func TestApplyIsDoing(t *testing.T) {
	for way := range ways {
		t.Run(way, func(t *testing.T) { applyIsDoing(t, way) })
	}
}

func applyIsDoing(t *testing.T, way string) {
	rapid.Check(t, func(rt *rapid.T) {
		before, ops := genOps().Draw(rt, "before"), genOps().Draw(rt, "ops")
		how := rapid.SampledFrom([]string{"at once", "in parts", "interrupted"}).Draw(rt, "how")
		direct, err := os.MkdirTemp(fast(), "direct")
		if err != nil {
			rt.Fatal(err)
		}
		defer scrap(direct)
		r := beginAs(t, way, func(ws string) {
			for _, o := range before {
				o.run(ws)
				o.run(direct)
			}
		})
		defer r.Remove() //nolint:errcheck // the end of the test removes it again
		for _, o := range ops {
			o.run(direct)
		}
		box(t, r, work{Ops: ops})
		all, err := r.Changes()
		if err != nil {
			rt.Fatal(err)
		}
		if len(all) > 0 && how != "at once" {
			some := Selection{RunsLater: true}
			for i, c := range all {
				if rapid.Bool().Draw(rt, fmt.Sprint("part", i)) {
					some.Paths = append(some.Paths, c.Path)
				}
			}
			if len(some.Paths) > 0 {
				applyClean(rt, r, some)
			}
			if how == "interrupted" {
				cutJournal(rt, r)
			}
		}
		out := applyClean(rt, r, Selection{RunsLater: true})
		if out.Left != 0 {
			rt.Fatalf("%d are left", out.Left)
		}
		want, got := plainModes(snapshot(t, direct)), plainModes(snapshot(t, r.Workspace))
		if got != want {
			rt.Fatalf("before %v\nops %v\nchanges:\n%s\ngot:\n%s\nwant:\n%s", before, ops, describe(all), got, want)
		}
		if all, err := r.Changes(); err != nil || len(all) > 0 {
			rt.Fatalf("still: %s %v", describe(all), err)
		}
	})
}

// plainModes leaves out the root, and bits that are never applied.
func plainModes(s string) string {
	_, rest, _ := strings.Cut(s, "\n")
	return regexp.MustCompile(`(?m)^(d?)u`).ReplaceAllStringFunc(rest, func(m string) string {
		if m == "du" {
			return "d"
		}
		return "-"
	})
}

func applyClean(t *rapid.T, r *Review, s Selection) Outcome {
	out, err := r.Apply(s)
	if err != nil || len(out.Conflicts)+len(out.Held)+len(out.Refused) > 0 {
		t.Fatalf("applying %q: %v\n%s%s%s", s.Paths, err, describe(out.Conflicts), describe(out.Held), describe(out.Refused))
	}
	return out
}

// scrap removes a tree in which directories may be closed.
func scrap(dir string) {
	_ = filepath.WalkDir(dir, func(p string, d os.DirEntry, _ error) error {
		if d.IsDir() {
			_ = os.Chmod(p, 0o700)
		}
		return nil
	})
	_ = os.RemoveAll(dir)
}

// cutJournal makes of an apply one that was interrupted before it noted what it did.
func cutJournal(t *rapid.T, r *Review) {
	name := filepath.Join(r.dir, doneFile)
	raw, err := os.ReadFile(name)
	if errors.Is(err, os.ErrNotExist) {
		return
	}
	var kept strings.Builder
	for line := range strings.Lines(string(raw)) {
		if strings.HasPrefix(line, begun) || strings.HasPrefix(line, clean) { // noted before anything is touched
			kept.WriteString(line)
		}
	}
	if err = errors.Join(err, os.WriteFile(name, []byte(kept.String()+"appl"), 0o600)); err != nil {
		t.Fatal(err)
	}
}

// TestLookingIsCheap: of a workspace of 20,000 files, no directory is opened in which
// nothing was changed (R6), as inotify(7) tells.
func TestLookingIsCheap(t *testing.T) {
	const dirs, files = 200, 100
	r := begin(t, func(ws string) {
		for i := range dirs {
			fill(t, ws, fmt.Sprintf("dir d%d 755\nmany d%d/f %d", i, i, files))
		}
	})
	var ops []op
	for i := range 10 {
		ops = append(ops, op{Do: "write", Path: fmt.Sprintf("d%d/f%d", i, i), To: "changed"})
	}
	box(t, r, work{Ops: ops})
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	watched := map[int32]string{}
	for i := range dirs {
		wd, err := unix.InotifyAddWatch(fd, fmt.Sprintf("%s/d%d", r.Workspace, i), unix.IN_OPEN|unix.IN_ACCESS)
		if err != nil {
			t.Fatal(err)
		}
		watched[int32(wd)] = fmt.Sprintf("d%d", i)
	}
	all, err := r.Changes()
	if err != nil || len(all) != 10 {
		t.Fatalf("%s%v", describe(all), err)
	}
	opened := map[string]bool{}
	buf := make([]byte, 1<<20)
	n, err := unix.Read(fd, buf)
	for at := 0; err == nil && at+unix.SizeofInotifyEvent <= n; {
		wd := int32(buf[at]) | int32(buf[at+1])<<8 | int32(buf[at+2])<<16 | int32(buf[at+3])<<24
		opened[watched[wd]] = true
		at += unix.SizeofInotifyEvent + (int(buf[at+12]) | int(buf[at+13])<<8)
	}
	if len(opened) != 10 {
		t.Errorf("%d directories were opened: %v", len(opened), opened)
	}
	out, err := r.Apply(Selection{})
	if err != nil || len(out.Applied) != 10 {
		t.Errorf("%+v, %v", out, err)
	}
}
