//go:build unix

package mediator

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestIdentity (MC-19): what a server is started from is known by its content.
func TestIdentity(t *testing.T) {
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
	write("cache/other/npm/_npx/0/node_modules/.package-lock.json", "{}")
	b := Boxes{Workspace: dir, Cache: filepath.Join(dir, "cache"), Program: own}
	for _, c := range []struct {
		name  string
		s     Server
		files []string
	}{
		{"its own", Server{Command: own, Args: []string{script}}, []string{own}},
		{"of the machine", Server{Command: "/bin/sh", Args: []string{"-c", "true"}}, nil},
		{"a script", Server{Command: "/bin/sh", Args: []string{script}}, []string{script, lock}},
		{"a script and its runtime", Server{Command: node, Args: []string{"--flag", script, own}}, []string{node, script, lock}},
		{"a script in the workspace", Server{Command: node, Args: []string{"bin/own"}}, []string{node, own}},
		{"no script", Server{Command: node, Args: []string{"none.js", own}}, []string{node}},
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
