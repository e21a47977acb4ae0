package container

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// A boxCase is a block of testdata/boxes.txt, which says what its members are.
type boxCase struct {
	name, only, exit, fail string
	mode                   string
	roots                  []string
	spec, make, left       []string
	run, in, out           []string
	lost                   bool
}

func readBoxes(t *testing.T) []boxCase {
	t.Helper()
	f, err := os.Open("testdata/boxes.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []boxCase
	c := &boxCase{}
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		word, rest, _ := strings.Cut(strings.TrimSpace(sc.Text()), " ")
		rest = strings.TrimSpace(rest)
		switch word {
		case "", "#":
		case "case":
			all = append(all, boxCase{name: rest, exit: "status 0"})
			c = &all[len(all)-1]
		case "only":
			c.only = rest
		case "spec":
			c.spec = append(c.spec, strings.Fields(rest)...)
		case "make":
			c.make = append(c.make, rest)
		case "run":
			c.run = append(c.run, rest)
		case "in":
			c.in = append(c.in, rest)
		case "out":
			c.out = append(c.out, rest)
		case "exit":
			c.exit = rest
		case "fail":
			c.fail = rest
		case "lost":
			c.lost = true
		case "mode":
			c.mode = rest
		case "roots":
			c.roots = append(c.roots, rest)
		case "left":
			c.left = append(c.left, rest)
		default:
			t.Fatalf("boxes.txt:%d: no %q", n, word)
		}
	}
	return all
}

const wsOwner = 1000

// world makes the directory T of a case, with its workspace T/ws.
func world(t *testing.T, c boxCase) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "box") // not of t: its name would be that of the case, with commas
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range []string{"ws", "lib", "cache", "roots", "closed"} {
		must(os.Mkdir(filepath.Join(dir, d), 0o755))
	}
	must(os.WriteFile(dir+"/lib/f", []byte("library\n"), 0o644))
	for _, name := range []string{"closed/f", "roots/f", "roots/denied"} {
		must(os.WriteFile(filepath.Join(dir, name), []byte("closed\n"), 0o600))
	}
	must(os.WriteFile(dir+"/roots/held", []byte("held\n"), 0o600))
	must(errors.Join(os.Chmod(dir+"/closed", 0o700), os.Chmod(dir+"/roots", 0o700)))
	if c.mode != "" {
		mode, err := strconv.ParseUint(c.mode, 8, 32)
		must(errors.Join(err, os.Chmod(dir+"/ws", os.FileMode(mode))))
	}
	must(os.Symlink(dir+"/lib", dir+"/link"))
	must(os.Symlink(dir+"/ws", dir+"/wslink"))
	for _, m := range append(c.make, "twin=two") {
		name, content, _ := strings.Cut(m, "=")
		must(os.MkdirAll(filepath.Dir(filepath.Join(dir, "ws", name)), 0o755))
		must(os.WriteFile(filepath.Join(dir, "ws", name), []byte(content+"\n"), 0o644))
	}
	must(os.Link(dir+"/ws/twin", dir+"/twin2"))
	must(os.Symlink("twin", dir+"/ws/toplink"))
	must(filepath.WalkDir(dir+"/ws", func(p string, _ os.DirEntry, err error) error {
		return errors.Join(err, os.Lchown(p, wsOwner, wsOwner))
	}))
	must(os.Chown(dir+"/cache", wsOwner, wsOwner))
	for name, mode := range map[string]os.FileMode{"open.sock": 0o666, "closed.sock": 0o600} {
		l, err := net.Listen("unix", dir+"/"+name)
		must(err)
		t.Cleanup(func() { l.Close() })
		must(os.Chmod(dir+"/"+name, mode))
	}
	return dir
}

// specOf makes the Spec of a case whose directory is dir.
func specOf(t *testing.T, c boxCase, dir string) sandbox.Spec {
	t.Helper()
	expand := strings.NewReplacer("$W", dir+"/ws", "$T", dir, `\xff`, "\xff", `\xfe`, "\xfe", `\xfd`, "\xfd")
	s := sandbox.Spec{}
	if len(c.run) > 0 {
		s.Argv = []string{"/bin/sh", "-c", expand.Replace(strings.Join(c.run, "\n"))}
	}
	for _, member := range c.spec {
		k, v, _ := strings.Cut(expand.Replace(member), "=")
		n, _ := strconv.Atoi(v)
		switch k {
		case "argv":
			s.Argv = append(s.Argv, v)
		case "env":
			s.Env = append(s.Env, v)
		case "dir":
			s.Dir = v
		case "workspace":
			s.Workspace = sandbox.Workspace{Path: dir + "/ws", Mode: sandbox.Mode(v)}
		case "copied":
			s.Workspace.Copied = v
		case "later":
			s.LaterWritable = true
		case "held":
			s.Held = append(s.Held, v)
		case "denied":
			s.Denied = append(s.Denied, v)
		case "readonly":
			s.ReadOnly = append(s.ReadOnly, v)
		case "readwrite":
			s.ReadWrite = append(s.ReadWrite, v)
		case "network":
			s.Network = sandbox.Network(v)
		case "egress":
			s.Egress = v
		case "addressspace":
			s.Limits.AddressSpace = int64(n)
		case "processes":
			s.Limits.Processes = n
		default:
			t.Fatalf("no member %q", k)
		}
	}
	return s
}

// TestBoxes runs testdata/boxes.txt on every engine, with our init and without.
func TestBoxes(t *testing.T) {
	all := readBoxes(t)
	for name, tier := range engines(t) {
		for _, mode := range []string{"local", "remote"} {
			tier := New(tier.o)
			tier.elsewhere = mode == "remote"
			tier.o.Dir = t.TempDir()
			t.Run(name+"/"+mode, func(t *testing.T) {
				for _, c := range all {
					if c.only == "" || c.only == mode {
						t.Run(c.name, func(t *testing.T) { t.Parallel(); runCase(t, tier, c) })
					}
				}
			})
			nothingLeft(t, tier)
		}
	}
}

func runCase(t *testing.T, tier *Tier, c boxCase) {
	dir := world(t, c)
	s := specOf(t, c, dir)
	out, err := sandbox.Run(context.WithoutCancel(t.Context()), tier, s, []byte(strings.Join(append(c.in, ""), "\n")))
	switch {
	case c.lost:
		if !errors.Is(err, sandbox.ErrNotFound) || errors.Is(err, sandbox.ErrNotBuilt) {
			t.Errorf("%v, want ErrNotFound", err)
		}
		return
	case c.fail != "":
		if !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(fmt.Sprint(err), c.fail) {
			t.Errorf("%v, want ErrNotBuilt: …%s…", err, c.fail)
		}
		return
	case err != nil:
		t.Fatal(err)
	}
	expand := strings.NewReplacer(`\xff`, "\xff", `\xfe`, "\xfe")
	want := expand.Replace(strings.Join(c.out, "\n"))
	if got := strings.TrimSuffix(string(out.Stdout), "\n"); got != want || out.Exit.String() != c.exit {
		t.Errorf("%q, %v; want %q, %s; standard error: %s", got, out.Exit, want, c.exit, out.Stderr)
	}
	if !complete(out.Report) || out.Report.Image == "" {
		t.Errorf("the report is not complete: %s, image %q", out.Report, out.Report.Image)
	}
	for _, l := range c.roots {
		name, want, _ := strings.Cut(l, "=")
		b, err := os.ReadFile(filepath.Join(dir, "roots", name))
		fi, statErr := os.Stat(filepath.Join(dir, "roots", name))
		if err := errors.Join(err, statErr); err != nil {
			t.Fatal(err)
		}
		uid, _, _ := ownership(fi)
		if got := strings.ReplaceAll(strings.TrimSpace(string(b)), "\n", "+") + " " + strconv.FormatUint(uid, 10); got != want {
			t.Errorf("%s is %q afterwards, want %q", name, got, want)
		}
	}
	for _, l := range c.left {
		name, want, _ := strings.Cut(l, "=")
		b, err := os.ReadFile(filepath.Join(dir, "ws", name))
		got := strings.ReplaceAll(strings.TrimSuffix(string(b), "\n"), "\n", "+")
		if err != nil {
			got = "-"
		}
		if got != want {
			t.Errorf("%s is %q afterwards, want %q", name, got, want)
		}
	}
}
