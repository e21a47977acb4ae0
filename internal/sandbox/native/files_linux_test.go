package native

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"ringfence/internal/sandbox"
)

// TestFiles runs the cases of testdata/files: what a box sees and can do, and that
// the host is as it was. testdata/files/README says how a case is written.
func TestFiles(t *testing.T) {
	names, err := filepath.Glob("testdata/files/*.txtar")
	if err != nil || len(names) == 0 {
		t.Fatal(err, "no cases")
	}
	for _, name := range names {
		for kind, tier := range kinds {
			t.Run(strings.TrimSuffix(filepath.Base(name), ".txtar")+"/"+kind, func(t *testing.T) {
				a, err := txtar.ParseFile(name)
				if err != nil {
					t.Fatal(err)
				}
				c := newCase(t, a)
				c.run(t, kind, tier)
			})
		}
	}
}

type fileCase struct {
	root    string
	spec    sandbox.Spec
	script  []string
	want    string
	refused map[string]string // by kind: part of the error
	changed map[string]bool
	skip    map[string]bool
}

func newCase(t *testing.T, a *txtar.Archive) *fileCase {
	t.Helper()
	c := &fileCase{root: dir(t), refused: map[string]string{}, changed: map[string]bool{}, skip: map[string]bool{}}
	for _, f := range a.Files {
		p := filepath.Join(c.root, f.Name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		switch to, isLink := strings.CutPrefix(strings.TrimSpace(string(f.Data)), "-> "); {
		case strings.HasSuffix(f.Name, "/"):
			err = os.MkdirAll(p, 0o755)
		case isLink:
			err = os.Symlink(strings.ReplaceAll(to, "$R", c.root), p)
		default:
			mode := os.FileMode(0o644)
			if strings.HasPrefix(string(f.Data), "#!") {
				mode = 0o755
			}
			err = os.WriteFile(p, []byte(strings.ReplaceAll(string(f.Data), "$R", c.root)), mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	c.spec = sandbox.Spec{Env: []string{"PATH=/usr/bin:/bin"}, LaterWritable: true}
	for line := range strings.Lines(strings.ReplaceAll(string(a.Comment), "$R", c.root)) {
		key, value, ok := strings.Cut(strings.TrimRight(line, "\n"), ": ")
		if line = strings.TrimSpace(line); line == "" || line[0] == '#' {
			continue
		}
		if !ok {
			t.Fatalf("no value: %s", line)
		}
		c.set(t, key, value)
	}
	c.spec.Argv = append(c.spec.Argv, "/bin/sh", "-c", strings.Join(c.script, "\n"))
	return c
}

func (c *fileCase) set(t *testing.T, key, value string) {
	t.Helper()
	switch key {
	case "workspace":
		p, mode, _ := strings.Cut(value, " ")
		c.spec.Workspace = sandbox.Workspace{Path: p, Mode: sandbox.Mode(mode)}
	case "ro":
		c.spec.ReadOnly = append(c.spec.ReadOnly, value)
	case "rw":
		c.spec.ReadWrite = append(c.spec.ReadWrite, value)
	case "denied":
		c.spec.Denied = append(c.spec.Denied, value)
	case "env":
		c.spec.Env = append(c.spec.Env, value)
	case "dir":
		c.spec.Dir = value
	case "argv":
		c.spec.Argv = strings.Fields(value)
	case "run":
		c.script = append(c.script, value)
	case "want":
		c.want += value + "\n"
	case "changed":
		c.changed[value] = true
	case "refused full", "refused plain":
		c.refused[strings.Fields(key)[1]] = value
	case "not":
		c.skip[value] = true
	default:
		t.Fatalf("no directive %q", key)
	}
}

func (c *fileCase) run(t *testing.T, kind string, tier Tier) {
	if c.skip[kind] {
		return
	}
	before := snapshot(t, c.root)
	if len(c.spec.Argv) > 3 {
		c.spec.Argv = c.spec.Argv[:len(c.spec.Argv)-3]
	}
	out, err := sandbox.Run(t.Context(), tier, c.spec, nil)
	if part := c.refused[kind]; part != "" {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v, want an error with %q", err, part)
		}
	} else if err != nil {
		t.Fatal(err)
	} else if got := strings.ReplaceAll(string(out.Stdout), c.root, "$R"); got != strings.ReplaceAll(c.want, c.root, "$R") {
		t.Errorf("got\n%swant\n%serrors:\n%s", got, c.want, out.Stderr)
	}
	after := snapshot(t, c.root)
	for p := range after {
		if c.refused[kind] == "" && c.changed[p] {
			delete(before, p)
			continue
		}
		if before[p] != after[p] {
			t.Errorf("%s: %s became %s", p, before[p], after[p])
		}
		delete(before, p)
	}
	for p := range before {
		if c.refused[kind] != "" || !c.changed[p] {
			t.Errorf("%s is gone", p)
		}
	}
}

// snapshot says of everything beneath root what it is: kind, mode, owner, content.
func snapshot(t *testing.T, root string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		fi, err := d.Info()
		if err != nil {
			return err
		}
		st, _ := fi.Sys().(*syscall.Stat_t)
		text := ""
		if fi.Mode().IsRegular() {
			b, err := os.ReadFile(p)
			if err != nil {
				return err
			}
			text = string(b)
		}
		rel, err := filepath.Rel(root, p)
		all[rel] = fmt.Sprintf("%v %d:%d %d %q", fi.Mode(), st.Uid, st.Gid, st.Nlink, text)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// TestWorkspaceBeneathVarTmp: a workspace can lie where a box has a private place.
func TestWorkspaceBeneathVarTmp(t *testing.T) {
	for _, above := range []string{"/var/tmp", "/tmp"} {
		ws, err := os.MkdirTemp(above, "ringfence-test-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(ws) })
		out, err := sandbox.Run(t.Context(), full(), sandbox.Spec{
			Argv: []string{"/bin/sh", "-c", "pwd"}, Workspace: sandbox.Workspace{Path: ws, Mode: sandbox.ReadOnly},
		}, nil)
		if err != nil || string(out.Stdout) != ws+"\n" {
			t.Errorf("%q, %v; want %s", out.Stdout, err, ws)
		}
	}
}

// TestDecidedPathBecomesLink: what was a directory when it was decided on, and is a link
// when the box is built, is not followed; without a decision it is.
func TestDecidedPathBecomesLink(t *testing.T) {
	for kind, tier := range kinds {
		d := dir(t)
		other := dir(t)
		link := d + "/tree"
		if err := errors.Join(os.WriteFile(other+"/secret", []byte("swordfish"), 0o644), os.Symlink(other, link)); err != nil {
			t.Fatal(err)
		}
		for mode, s := range map[string]sandbox.Spec{
			"readable":  {ReadOnly: []string{link}},
			"writable":  {ReadWrite: []string{link}},
			"workspace": {Workspace: sandbox.Workspace{Path: link, Mode: sandbox.ReadOnly}},
		} {
			s.Argv, s.Dir, s.LaterWritable = sh("cat "+other+"/secret").Argv, "/", true
			if out := run(t, tier, s, ""); string(out.Stdout) != "swordfish" {
				t.Errorf("%s, %s: %q %q", kind, mode, out.Stdout, out.Stderr)
			}
			s.Decided = []string{link}
			if _, err := tier.Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), "not what was decided on") {
				t.Errorf("%s, %s: %v", kind, mode, err)
			}
		}
	}
}
