package mediator

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/tools/txtar"
)

// TestBoxOf runs testdata/boxes.txtar. A file of it is a world: lines "dir/", "file",
// "prog*" and "link -> target", then lines
//
//	file NAME          the list of servers, which none may change
//	list NAME          the list of other servers
//	server NAME WORDS  a server; words beginning with "paths=" or being "unboxed" are settings
//	NAME ro|rw|hide|hold PATHS   what its box has, in order; paths of the cache are left out
//	NAME error TEXT    part of the error
//
// $R is the root, the workspace $R/w, the home $R/u, our own state $R/u/.ringfence, our
// program $R/bin/rf.
func TestBoxOf(t *testing.T) {
	a, err := txtar.ParseFile("testdata/boxes.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range a.Files {
		t.Run(f.Name, func(t *testing.T) { runBoxes(t, string(f.Data)) })
	}
}

func runBoxes(t *testing.T, text string) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	text = strings.ReplaceAll(text, "$R", root)
	grow(t, root, "w/\nu/.ringfence/\nbin/rf*")
	var servers []Server
	var want []string
	list, lists := "", []string(nil)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		switch {
		case len(f) == 0:
		case f[0] == "file":
			list = f[1]
		case f[0] == "list": // of other servers
			lists = append(lists, f[1])
		case f[0] == "server":
			servers = append(servers, serverOf(f[1:]))
		case len(f) > 1 && slices.Contains([]string{"ro", "rw", "hide", "hold", "error"}, f[1]):
			want = append(want, strings.TrimSpace(line))
		default:
			grow(t, root, line)
		}
	}
	b := Boxes{
		Workspace: root + "/w", Home: root + "/u", OwnState: []string{root + "/u/.ringfence"},
		Cache: root + "/u/.ringfence/cache", Program: root + "/bin/rf",
	}.Among(list, servers)
	b.Held = lists
	for _, line := range want {
		name, rest, _ := strings.Cut(line, " ")
		what, paths, _ := strings.Cut(rest, " ")
		i := slices.IndexFunc(servers, func(s Server) bool { return s.Name == name })
		spec, err := b.spec(servers[i])
		if what == "error" {
			if err == nil || !strings.Contains(err.Error(), paths) {
				t.Errorf("%s: error %v", line, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		got := map[string][]string{"ro": spec.ReadOnly, "rw": spec.ReadWrite, "hide": spec.Denied, "hold": spec.Held}[what]
		got = slices.DeleteFunc(slices.Clone(got), func(p string) bool { return strings.HasPrefix(p, b.Cache) })
		if strings.Join(got, " ") != paths {
			t.Errorf("%s\n got %s", line, strings.Join(got, " "))
		}
	}
}

func serverOf(words []string) Server {
	s := Server{Name: words[0], Command: words[1]}
	for _, w := range words[2:] {
		switch paths, found := strings.CutPrefix(w, "paths="); {
		case found:
			s.Ringfence.Paths = strings.Split(paths, ",")
		case w == "unboxed":
			s.Ringfence.Unboxed = true
		default:
			s.Args = append(s.Args, w)
		}
	}
	return s
}

// grow makes the entries of a world.
func grow(t *testing.T, root, lines string) {
	for line := range strings.Lines(lines) {
		name, target, link := strings.Cut(strings.TrimSpace(line), " -> ")
		mode := os.FileMode(0o644)
		if file, ok := strings.CutSuffix(name, "*"); ok {
			name, mode = file, 0o755
		}
		at := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(at), 0o755)
		switch {
		case err != nil:
		case link:
			err = os.Symlink(target, at)
		case strings.HasSuffix(name, "/"):
			err = os.MkdirAll(at, 0o755)
		default:
			err = os.WriteFile(at, nil, mode)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// TestTemporaryFiles: a server in a box is not told of a directory for temporary files that it
// cannot write to.
func TestTemporaryFiles(t *testing.T) {
	b := Boxes{Env: []string{"LANG=C", "TMPDIR=/srv/mine"}}
	for name, c := range map[string]struct {
		s    Server
		want string
	}{
		"in a box":             {Server{}, "LANG=C"},
		"in none":              {Server{Ringfence: Settings{Unboxed: true}}, "LANG=C TMPDIR=/srv/mine"},
		"said by the list":     {Server{Env: map[string]string{"TMPDIR": "/w/tmp"}}, "LANG=C TMPDIR=/w/tmp"},
		"another, in the list": {Server{Env: map[string]string{"A": "b"}}, "A=b LANG=C"},
	} {
		if got := strings.Join(b.environment(c.s), " "); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

// TestApart: where boxes are of an image, one for a server of ours gets our program.
func TestApart(t *testing.T) {
	s := Server{Name: "s"}
	s.Ringfence.Builtin = "proxy"
	dir, err := filepath.EvalSymlinks(t.TempDir())
	program := filepath.Join(dir, "rf")
	if err = errors.Join(err, os.WriteFile(program, nil, 0o600), os.Mkdir(filepath.Join(dir, "w"), 0o700)); err != nil {
		t.Fatal(err)
	}
	for apart, want := range map[bool][]string{true: {program}, false: nil} {
		b := Boxes{Workspace: filepath.Join(dir, "w"), Home: dir, Cache: dir, Program: program, Apart: apart}.Among(filepath.Join(dir, "list"), []Server{s})
		spec, err := b.spec(s)
		if err != nil || !slices.Equal(spec.ReadOnly, want) {
			t.Errorf("apart %v: %q, %v", apart, spec.ReadOnly, err)
		}
	}
}
