package daemon

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
)

func sumOf(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// TestMC20ListOfARepository: a list of servers that a repository brings along starts
// nothing before a person has agreed to it as it is, and again after each change.
func TestMC20ListOfARepository(t *testing.T) {
	repo := t.TempDir()
	if err := os.Mkdir(filepath.Join(repo, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	sub := filepath.Join(repo, "a", "b")
	if err := os.MkdirAll(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	outside := t.TempDir()
	workspace := filepath.Join(outside, "work") // which has no .git
	if err := os.Mkdir(workspace, 0o700); err != nil {
		t.Fatal(err)
	}
	for name, refused := range map[string]bool{
		filepath.Join(repo, "servers.json"): true, filepath.Join(sub, "tools.json"): true,
		filepath.Join(outside, ".mcp.json"): true, filepath.Join(outside, "servers.json"): false,
		filepath.Join(outside, "link.json"): true, filepath.Join(outside, "work", "servers.json"): true,
	} {
		l, err := openLists(filepath.Join(t.TempDir(), "lists.json"))
		if err != nil {
			t.Fatal(err)
		}
		write := func(text string) {
			if filepath.Base(name) == "link.json" {
				target := filepath.Join(repo, "target.json")
				if err := os.WriteFile(target, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				if err := os.Symlink(target, name); err != nil && !errors.Is(err, os.ErrExist) {
					t.Fatal(err)
				}
				return
			}
			if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		check := func(want bool, what string) {
			t.Helper()
			if err := l.check(workspace, []string{name}, []string{sumOf(t, name)}); (err != nil) != want {
				t.Errorf("%s, %s: %v", filepath.Base(name), what, err)
			}
		}
		write("one")
		check(refused, "new")
		if err := l.check(workspace, []string{name}, nil); (err != nil) != refused {
			t.Errorf("%s without a sum: %v", filepath.Base(name), err)
		}
		if err := l.check("/elsewhere", []string{name}, nil); (err != nil) != (refused && filepath.Dir(name) != workspace) {
			t.Errorf("%s, with another workspace: %v", filepath.Base(name), err)
		}
		if err := l.admit(name, sumOf(t, name)); err != nil {
			t.Fatal(err)
		}
		if l, err = openLists(l.path); err != nil {
			t.Fatal(err)
		}
		check(false, "admitted")
		write("two")
		check(refused, "changed")
		write("one")
		check(false, "as it was again")
	}
}

func TestAdmit(t *testing.T) {
	f := newFixture(t)
	e := f.bare(nil)
	defer e.dies(t)
	me := api.Caller{Conn: 1}
	list := []byte(`{"tools":[{"name":"a","description":"x"},{"name":"b"}]}`)
	if err := e.Admit(t.Context(), me, api.AdmitRequest{Server: "s"}, list); err != nil {
		t.Fatal(err)
	}
	defs, err := listed("s", list)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := e.pins.See("s", defs); err != nil || got[0] != gate.PinApproved || got[1] != gate.PinApproved {
		t.Errorf("after it was admitted: %v %v", got, err)
	}
	if got, err := OutOfUse(f.home, "s", []byte(`{"tools":[{"name":"a","description":"y"},{"name":"b"},{"name":"new"}]}`)); err != nil || !slices.Equal(got, []string{"a"}) {
		t.Errorf("out of use: %v %v", got, err)
	}
	for _, c := range []struct {
		name string
		r    api.AdmitRequest
		list string
	}{
		{"tools of nobody", api.AdmitRequest{}, `{"tools":[]}`},
		{"no name of a server", api.AdmitRequest{Server: "a.b"}, `{"tools":[]}`},
		{"two of one name", api.AdmitRequest{Server: "s"}, `{"tools":[{"name":"a"},{"name":"a"}]}`},
		{"no name of a tool", api.AdmitRequest{Server: "s"}, `{"tools":[{}]}`},
		{"no JSON", api.AdmitRequest{Server: "s"}, `{"tools":[`},
		{"a sum that is none", api.AdmitRequest{File: "/l.json", Sum: "abc"}, ``},
		{"a relative path", api.AdmitRequest{File: "l.json", Sum: strings.Repeat("ab", 32)}, ``},
	} {
		if err := e.Admit(t.Context(), me, c.r, []byte(c.list)); !errors.Is(err, &api.Error{Code: api.CodeBadRequest}) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
}

// TestD13ListsOfRepositories: by whatever name a repository, or a way to fetch one, brings a
// list along.
func TestD13ListsOfRepositories(t *testing.T) {
	dir := t.TempDir()
	write := func(name string) string {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for _, name := range []string{"bare/HEAD", "bare/objects/x", "bare/refs/x", "hg/.hg/x", "svn/.svn/x", "jj/.jj/x", "file/.git"} {
		write(name)
	}
	second := write("second.json")
	if err := os.Link(second, filepath.Join(dir, "first.json")); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{
		"own.json": false, "mcp.json": false, "a/MCP.json": false, ".MCP.json": true, "x/.cursor/mcp.json": true, "x/.VSCode/MCP.json": true,
		"bare/l.json": true, "hg/a/l.json": true, "svn/l.json": true, "jj/l.json": true, "file/l.json": true, "second.json": true, "bare/objects": true,
	} {
		file := filepath.Join(dir, name)
		if name != "bare/objects" && name != "second.json" {
			write(name)
		}
		if got := ofRepository(file); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
