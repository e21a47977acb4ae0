package daemon

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
)

// TestListsOfServers: whoever opens a session is told which files said what servers
// are run, in this home and whatever engine it was, so that no box changes them.
func TestListsOfServers(t *testing.T) {
	f := newFixture(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	real, link, gone := dir+"/real.json", dir+"/servers.json", dir+"/gone.json"
	for _, name := range []string{real, gone} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(real, link); err != nil {
		t.Fatal(err)
	}
	e := f.bare(nil)
	open := func(lists ...string) (api.Opened, error) {
		r := f.request()
		r.Lists = lists
		return e.OpenSession(context.Background(), api.Caller{Conn: 1}, r)
	}
	want := []string{link, real}
	if o, err := open(link, gone); err != nil || !slices.Equal(o.Held, append(slices.Clone(want), gone)) {
		t.Errorf("%q, %v", o.Held, err)
	}
	for _, r := range e.runs {
		if !slices.Equal(r.gate.View.Later, []string{real, real, gone}) {
			t.Errorf("to the gate, run later are %q", r.gate.View.Later)
		}
	}
	if err := os.Remove(gone); err != nil {
		t.Fatal(err)
	}
	e.dies(t)
	e = f.bare(nil)
	if o, err := open(); err != nil || !slices.Equal(o.Held, want) {
		t.Errorf("after the engine is another: %q, %v", o.Held, err)
	}
	for i := range maxLists {
		if err := e.lists.add([]string{fmt.Sprint("/l/", i)}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.lists.file.Files); n > maxLists || !slices.Equal(e.lists.known(), want) {
		t.Errorf("%d are known, of those there %q", n, e.lists.known())
	}
	for _, bad := range [][]string{{"relative"}, slices.Repeat([]string{"/a"}, maxNewLists+1), {"/" + strings.Repeat("a", maxListPath)}} {
		if _, err := open(bad...); !errors.Is(err, &api.Error{Code: api.CodeBadRequest}) {
			t.Errorf("%.40q: %v", bad, err)
		}
	}
	e.dies(t)
	if err := os.WriteFile(Lists(f.home), []byte(`{"format":"ringfence-lists/v1","files":[],"more":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openLists(Lists(f.home)); err == nil || !strings.Contains(err.Error(), Lists(f.home)) {
		t.Errorf("a file of another form: %v", err)
	}
}
