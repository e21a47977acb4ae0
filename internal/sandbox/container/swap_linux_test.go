package container

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"ringfence/internal/sandbox"
)

// K3: whatever is swapped outside while a box is made, the program sees what was
// decided on, or does not run. A swap is made before each call to the engine, and when
// everything was judged already.
func TestSwaps(t *testing.T) {
	swaps := map[string]func(dir string) error{
		"the workspace": func(dir string) error {
			return errors.Join(os.Rename(dir+"/ws", dir+"/old"), os.Rename(dir+"/evil", dir+"/ws"))
		},
		"a held file":    func(dir string) error { return os.Rename(dir+"/evil/held", dir+"/ws/held") },
		"what is denied": func(dir string) error { return os.Rename(dir+"/evil/denied", dir+"/ws/denied") },
		"a link": func(dir string) error {
			return errors.Join(os.Rename(dir+"/ws", dir+"/old"), os.Symlink(dir+"/evil", dir+"/ws"))
		},
	}
	for name, tier := range engines(t) {
		for what, swap := range swaps {
			t.Run(name+"/"+what, func(t *testing.T) {
				tier := New(tier.o)
				tier.o.Home, tier.o.Dir = tier.o.Home+what, t.TempDir()
				t.Parallel()
				refused := 0
				for n := int64(0); ; n++ { // 0 is in Confirm
					r := swapAt(t, tier, n, swap)
					refused += r.refused
					if !r.swapped {
						break
					}
					if n > 20 {
						t.Fatal("too many calls")
					}
				}
				nothingLeft(t, tier)
				if refused == 0 {
					t.Error("no swap was found out")
				}
			})
		}
	}
}

type swapResult struct {
	swapped bool
	refused int
}

// swapAt makes a box and swaps before the nth call to the engine.
func swapAt(t *testing.T, tier *Tier, n int64, swap func(string) error) (r swapResult) {
	t.Helper()
	dir := world(t, boxCase{make: []string{"f=good", "held=good", "denied=bad"}})
	if err := os.Mkdir(dir+"/evil", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"f", "held", "denied"} {
		if err := errors.Join(os.WriteFile(dir+"/evil/"+name, []byte("evil\n"), 0o666), os.Chown(dir+"/evil", wsOwner, wsOwner)); err != nil {
			t.Fatal(err)
		}
	}
	doSwap := func() {
		r.swapped = true
		if err := swap(dir); err != nil {
			t.Error(err)
		}
	}
	var calls atomic.Int64
	o := tier.o
	o.Socket = serve(t, through(tier.o.Socket, func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/containers/create") || calls.Load() > 0 { // what is before is before the plan
			if calls.Add(1) == n {
				doSwap()
			}
		}
	}))
	s := sh("cat f held denied 2>/dev/null; echo x >ran")
	s.Workspace, s.LaterWritable = sandbox.Workspace{Path: dir + "/ws", Mode: sandbox.ReadWrite}, true
	s.Held, s.Denied = []string{dir + "/ws/held"}, []string{dir + "/ws/denied"}
	s.Confirm = func(sandbox.Report) error {
		if n == 0 {
			doSwap()
		}
		return nil
	}
	out, err := sandbox.Run(context.WithoutCancel(t.Context()), New(o), s, nil)
	switch {
	case !r.swapped && (err != nil || string(out.Stdout) != "good\ngood\n"):
		t.Fatalf("swap %d was none: %q, %v", n, out.Stdout, err)
	case errors.Is(err, sandbox.ErrNotBuilt):
		r.refused = 1
	case err != nil:
		t.Errorf("swap %d: %v", n, err)
	case strings.ContainsAny(string(out.Stdout), "evb"):
		t.Errorf("swap %d: the program saw %q", n, out.Stdout)
	}
	for _, name := range []string{"/ws/", "/evil/"} {
		text, _ := os.ReadFile(dir + name + "f")
		if _, ran := os.Stat(dir + name + "ran"); ran == nil && (err != nil || string(text) == "evil\n") {
			t.Errorf("swap %d: it ran in %s%s: %v", n, dir, name, err)
		}
	}
	return r
}

// through passes requests on to an engine, each after before was called.
func through(socket string, before func(*http.Request)) http.Handler {
	p := &breakingProxy{}
	p.to(socket)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		before(r)
		p.ServeHTTP(w, r)
	})
}
