//go:build unix

package mediator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestMC19Identity: what a server is started from is known by its content.
func TestMC19Identity(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
		return file
	}
	own := write("bin/own", "x")
	script := write("lib/node_modules/pkg/index.js", "x")
	lock := write("lib/node_modules/.package-lock.json", "{}")
	fetched := write("cache/npx-server/npm/_npx/0/node_modules/.package-lock.json", "{}")
	node := write("bin/node", "n")
	python := write("src/serve.py", "p")
	entrance := write("src/pkg/__main__.py", "p")
	data := write("src/notes.db", "d")
	if err := os.Chmod(data, 0o600); err != nil {
		t.Fatal(err)
	}
	write("cache/other/npm/_npx/0/node_modules/.package-lock.json", "{}")
	b := Boxes{Path: []string{"/usr/bin"}, Workspace: dir, Cache: filepath.Join(dir, "cache"), Program: own}
	for _, c := range []struct {
		name  string
		s     Server
		files []string
	}{
		{"its own", Server{Command: own, Args: []string{script}}, []string{own, script, lock}},
		{"of the machine", Server{Command: "/bin/sh", Args: []string{"-c", "true"}}, nil},
		{"a script", Server{Command: "/bin/sh", Args: []string{script}}, []string{script, lock}},
		{"a script and its runtime", Server{Command: node, Args: []string{"--flag", script, own}}, []string{node, script, lock, own}},
		{"a script in the workspace", Server{Command: node, Args: []string{"bin/own"}}, []string{node, own}},
		{"D5 behind another program", Server{Command: "/usr/bin/env", Args: []string{"node", script}}, []string{script, lock}},
		{"D5 in the words of a shell", Server{Command: "/bin/sh", Args: []string{"-c", "exec node '" + script + "' --x"}}, []string{script, lock}},
		{"D5 behind a flag with a value", Server{Command: "/usr/bin/python3", Args: []string{"-W", "ignore", python}}, []string{python}},
		{"D5 a directory", Server{Command: "/usr/bin/python3", Args: []string{filepath.Dir(entrance)}}, []string{entrance}},
		{"data", Server{Command: "/usr/bin/python3", Args: []string{python, data}}, []string{python}},
		{"no script", Server{Command: node, Args: []string{"none.js", data}}, []string{node, data}},
		{"fetched", Server{Name: "npx-server", Command: own}, []string{own, fetched}},
		{"built in", Server{Ringfence: Settings{Builtin: "git"}}, nil},
	} {
		lines, err := b.Identity(c.s)
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		var files []string
		for _, l := range lines {
			sum, file, _ := strings.Cut(l, " ")
			if len(sum) != len("sha256:")+64 {
				t.Errorf("%s: %q", c.name, l)
			}
			files = append(files, file)
		}
		if !slices.Equal(files, c.files) {
			t.Errorf("%s: %q, want %q", c.name, files, c.files)
		}
	}
	before, err := b.Identity(Server{Command: own})
	if err != nil {
		t.Fatal(err)
	}
	write("bin/own", "y")
	if after, err := b.Identity(Server{Command: own}); err != nil || slices.Equal(before, after) {
		t.Errorf("another content is not another program: %q %v", after, err)
	}
}

// TestD3ProgramOfARestart: a program is looked at again each time it is started.
func TestD3ProgramOfARestart(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "own")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write("x")
	s := Server{Name: "s", Command: file}
	b := Boxes{Workspace: dir, Tier: noTier{}}
	lines, err := b.Identity(s)
	if err != nil {
		t.Fatal(err)
	}
	b.Known = map[string][]string{"s": lines}
	if _, err := b.Start(t.Context(), s); !errors.Is(err, errNoTier) {
		t.Errorf("as it was: %v", err)
	}
	write("y")
	if _, err := b.Start(t.Context(), s); !strings.Contains(fmt.Sprint(err), "was changed after this session began") {
		t.Errorf("changed: %v", err)
	}
	fetched := []string{"sha256:1 /c/s/npm/_npx/0/node_modules/.package-lock.json"}
	for _, c := range []struct {
		before, now []string
		want        bool
	}{
		{nil, nil, true},
		{lines, lines, true},
		{lines, nil, false},
		{nil, lines, false},
		{nil, fetched, true},
		{fetched, nil, true},
		{fetched, []string{"sha256:2 /c/s/npm/_npx/0/node_modules/.package-lock.json"}, false},
	} {
		if got := SameProgram(c.before, c.now); got != c.want {
			t.Errorf("%q and %q: %v", c.before, c.now, got)
		}
	}
}

var errNoTier = errors.New("no tier")

// noTier starts nothing.
type noTier struct{ sandbox.Tier }

func (noTier) Start(context.Context, sandbox.Spec) (sandbox.Box, error) { return nil, errNoTier }
