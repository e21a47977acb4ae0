package review

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rogpeppe/go-internal/txtar"
)

// begin makes a workspace of build in the past, and begins a review of it.
func begin(t testing.TB, build func(ws string)) *Review {
	t.Helper()
	root, err := os.MkdirTemp(fast(), "review")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { scrap(root) })
	ws := root + "/ws"
	if err := errors.Join(os.Mkdir(ws, 0o755), os.WriteFile(root+"/outside", []byte("canary"), 0o600)); err != nil {
		t.Fatal(err)
	}
	build(ws)
	pastTick(t, root)
	r, err := New(Options{Home: root + "/home", Workspace: ws, Session: "s-1"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if b, err := os.ReadFile(root + "/outside"); string(b) != "canary" {
			t.Errorf("the file outside: %q, %v", b, err)
		}
		if err := errors.Join(r.Remove(), r.Close()); err != nil {
			t.Error(err)
		}
	})
	return r
}

// fast is where files are held in memory, if there is such a place.
func fast() string {
	if unix.Access("/dev/shm", unix.W_OK) == nil {
		return "/dev/shm"
	}
	return ""
}

// pastTick returns when the clock of the kernel's time stamps has moved on.
func pastTick(t testing.TB, dir string) {
	t.Helper()
	var first time.Time
	for i := 0; ; i++ {
		if err := os.WriteFile(dir+"/tick", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		var st unix.Stat_t
		if err := unix.Stat(dir+"/tick", &st); err != nil {
			t.Fatal(err)
		}
		now := time.Unix(st.Ctim.Unix())
		if i == 0 {
			first = now
		}
		if now.Sub(first) > 8*time.Millisecond {
			return
		}
	}
}

// fill makes what the lines of text describe in dir.
func fill(t testing.TB, dir, text string) {
	t.Helper()
	if err := fillAll(dir, text); err != nil {
		t.Fatal(err)
	}
}

func fillAll(dir, text string) error {
	for line := range strings.Lines(text) {
		w := strings.Fields(line)
		if len(w) == 0 {
			continue
		}
		for i := range w {
			if u, err := strconv.Unquote(w[i]); err == nil {
				w[i] = u
			}
		}
		path := dir + "/" + w[1]
		if w[1] == "." {
			path = dir
		}
		if err := fillOne(dir, path, w); err != nil {
			return fmt.Errorf("%s: %w", strings.TrimSpace(line), err)
		}
	}
	return nil
}

func fillOne(dir, path string, w []string) error {
	mode := func(s string) uint32 {
		n, _ := strconv.ParseUint(s, 8, 32)
		return uint32(n)
	}
	number := func(s string) int64 {
		n, _ := strconv.ParseInt(s, 10, 64)
		return n
	}
	switch w[0] {
	case "file":
		return errors.Join(os.WriteFile(path, []byte(strings.Join(w[3:], " ")+"\n"), 0o600), unix.Chmod(path, mode(w[2])))
	case "dir":
		return errors.Join(os.MkdirAll(path, 0o700), unix.Chmod(path, mode(w[2])))
	case "deep":
		return os.MkdirAll(path+strings.Repeat("/d", int(number(w[2]))), 0o700)
	case "many":
		for i := range number(w[2]) {
			if err := os.WriteFile(fmt.Sprintf("%s%d", path, i), nil, 0o600); err != nil {
				return err
			}
		}
		return nil
	case "link":
		return os.Symlink(w[2], path)
	case "hard":
		return os.Link(dir+"/"+w[2], path)
	case "fifo":
		return unix.Mkfifo(path, 0o600)
	case "sparse":
		return errors.Join(os.WriteFile(path, nil, 0o600), os.Truncate(path, number(w[2])))
	case "gone":
		return unix.Mknod(path, unix.S_IFCHR, 0)
	case "attr":
		return unix.Setxattr(path, "user.overlay."+w[2], []byte(w[3]), 0)
	case "bytes":
		return os.WriteFile(path, bytes.Repeat([]byte{0, 1}, 50), 0o600)
	case "remove":
		return os.RemoveAll(path)
	case "move":
		return os.Rename(path, dir+"/"+w[2])
	case "touch":
		return os.Chtimes(path, time.Unix(1e9, 0), time.Unix(1e9, 0))
	case "xattr":
		return unix.Setxattr(path, w[2], []byte(w[3]), 0)
	case "outlink":
		return os.Link(filepath.Dir(dir)+"/"+w[2], path)
	}
	return fmt.Errorf("no line %q", w[0])
}

func describe(all []Change) string {
	var b strings.Builder
	for _, c := range all {
		fmt.Fprintf(&b, "%s %s", c.Kind, Quoted(c.Path))
		for _, f := range c.Flags {
			fmt.Fprintf(&b, " %s", f)
		}
		if c.Conflict != "" {
			b.WriteString(" CONFLICT")
		}
		if c.Refused != "" {
			fmt.Fprintf(&b, " REFUSED: %s", c.Refused)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// snapshot is all of a tree, a line for each entry.
func snapshot(t testing.TB, root string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(root, p)
		fmt.Fprintf(&b, "%v %s", info.Mode(), Quoted(rel))
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			to, _ := os.Readlink(p)
			fmt.Fprintf(&b, " -> %s", to)
		case info.Mode().IsRegular() && info.Size() < 1<<20:
			text, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, " %q", text)
		case info.Mode().IsRegular():
			fmt.Fprintf(&b, " %d bytes", info.Size())
		}
		b.WriteString("\n")
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCases runs testdata/*.txtar: a tree, what an overlay was made to hold, what is
// done, and what must come of it; and testdata/both/*.txtar in each way, with what a
// box does in it.
func TestCases(t *testing.T) {
	for dir, in := range map[string][]string{"testdata": {"overlay"}, "testdata/copy": {"copy"}, "testdata/both": {"overlay", "copy"}} {
		names, err := filepath.Glob(dir + "/*.txtar")
		if err != nil || len(names) == 0 {
			t.Fatal(names, err)
		}
		for _, name := range names {
			ar, err := txtar.ParseFile(name)
			if err != nil {
				t.Fatal(err)
			}
			for _, way := range in {
				t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+way, func(t *testing.T) {
					play(t, way, ar, func(i int, got string) {
						if f := ar.Files[i]; got != string(f.Data) {
							t.Errorf("-- %s --\ngot:\n%s\nwant:\n%s", f.Name, got, f.Data)
						}
					})
				})
			}
		}
	}
}

// play does what the sections of ar say, and hands over what came of each.
func play(t *testing.T, way string, ar *txtar.Archive, result func(section int, got string)) {
	t.Helper()
	r := beginAs(t, way, func(ws string) {
		if ar.Files[0].Name == "workspace" {
			fill(t, ws, string(ar.Files[0].Data))
		}
	})
	for i, f := range ar.Files {
		word, arg, _ := strings.Cut(f.Name, " ")
		var got string
		switch word {
		case "workspace":
			continue
		case "upper":
			fill(t, r.Left(), string(f.Data))
			continue
		case "box":
			box(t, r, work{Lines: string(f.Data)})
			continue
		case "outside": // what somebody does in the workspace meanwhile
			fill(t, r.Workspace, string(f.Data))
			continue
		case "changes":
			all, err := r.Changes()
			got = describe(all)
			if err != nil {
				got += "error: " + err.Error() + "\n"
			}
		case "apply":
			s := Selection{}
			for a := range strings.FieldsSeq(arg) {
				switch a {
				case "--force":
					s.Force = true
				case "--with-runs-later":
					s.RunsLater = true
				default:
					s.Paths = append(s.Paths, a)
				}
			}
			out, err := r.Apply(s)
			got = "applied " + strconv.Itoa(len(out.Applied)) + " left " + strconv.Itoa(out.Left) + "\n" + describe(slices.Concat(out.Conflicts, out.Held, out.Refused))
			if err != nil {
				got += "error: " + err.Error() + "\n"
			}
		case "discard":
			gone, left, err := r.Discard(Selection{Paths: strings.Fields(arg)})
			got = fmt.Sprintf("gone %d left %d\n", len(gone), left)
			if err != nil {
				t.Error(err)
			}
		case "diff":
			var b strings.Builder
			if err := r.Diff(&b, Selection{Paths: strings.Fields(arg)}); err != nil {
				t.Error(err)
			}
			got = b.String()
		case "tree":
			got = snapshot(t, r.Workspace)
		default:
			t.Fatalf("no section %q", f.Name)
		}
		result(i, got)
	}
}
