package boxtest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/sandbox"
)

// give adds to the Spec what the box of a case has of its own: a home, and tools. What it
// returns is called when the box has ended, with whether there was one. It takes the tools
// away, and says what is wrong.
func (w *world) give(r run, spec *sandbox.Spec) (after func(started bool) []string, err error) {
	t := &toolShop{}
	if r.Home {
		spec.Home = sandbox.Home{Path: w.vars["HOME"], From: w.vars["KEPT"]}
		spec.ReadOnly = append(spec.ReadOnly, filepath.Join(w.vars["HOME"], ".local/bin"))
	}
	if r.Tools {
		port, err := strconv.ParseUint(w.vars["TOOLS"], 10, 16)
		if err != nil {
			return nil, err
		}
		spec.Network, spec.Egress = sandbox.NetworkPolicy, w.path("run/bus")
		spec.Ways = sandbox.Ways{Proxy: 3128, Resolver: 53, Tools: uint16(port), Take: t.open}
	}
	return func(started bool) (wrong []string) {
		if err := t.close(); err != nil {
			wrong = append(wrong, "the tools: "+err.Error())
		}
		if r.Home && started {
			wrong = append(wrong, w.kept(r.Kept)...)
		}
		return wrong
	}, nil
}

// kept says what is wrong with the directory of the box's home: what the box put there must
// be there, and what is mounted there has left no more than an empty place.
func (w *world) kept(want []string) (wrong []string) {
	want = append([]string{".local", ".local/bin", "before"}, want...)
	slices.Sort(want)
	var got []string
	err := filepath.WalkDir(w.vars["KEPT"], func(name string, _ fs.DirEntry, err error) error {
		if rel, _ := filepath.Rel(w.vars["KEPT"], name); rel != "." {
			got = append(got, rel)
		}
		return err
	})
	slices.Sort(got)
	if err != nil || !slices.Equal(got, want) {
		wrong = append(wrong, fmt.Sprintf("its home has %s afterwards, not %s (%v)", strings.Join(got, " "), strings.Join(want, " "), err))
	}
	return wrong
}

// A toolShop answers in the box what it is asked at the port of tools. At the other ways it
// is silent.
type toolShop struct {
	others sandbox.Listening
	tools  []net.Listener
}

func (t *toolShop) open(l sandbox.Listening) error {
	t.others = l
	if len(l.Tools) == 0 {
		return errors.New("nothing listens for tools")
	}
	for _, f := range l.Tools {
		s, err := net.FileListener(f)
		if err != nil {
			return err
		}
		t.tools = append(t.tools, s)
		go func() {
			for {
				c, err := s.Accept()
				if err != nil {
					return
				}
				answer(c)
			}
		}()
	}
	return nil
}

// answer answers one question. Who does not ask gets nothing.
func answer(c net.Conn) {
	defer c.Close()
	asked := make([]byte, len("boxtest\n"))
	if n, err := c.Read(asked); err == nil && string(asked[:n]) == "boxtest\n" {
		_, _ = c.Write([]byte("tools\n")) // who asked is told by not hearing it
	}
}

func (t *toolShop) close() error {
	err := t.others.Close()
	for _, s := range t.tools {
		err = errors.Join(err, s.Close())
	}
	return err
}

// lacks returns what a case asks for that the tier cannot give.
func (s *suite) lacks(r run) []sandbox.Ability {
	return slices.DeleteFunc(r.asks(), func(a sandbox.Ability) bool { return !slices.Contains(s.o.Cannot, a) })
}

// settleLack comes to the verdict of a case whose box must be refused.
func (o *Outcome) settleLack(lack []sandbox.Ability, err error) {
	switch {
	case !errors.Is(err, sandbox.ErrNotBuilt):
		o.Verdict, o.Why = Broken, append(o.Why, fmt.Sprintf("the tier is said to lack ability %v, and does not refuse it: %v", lack, err))
	case len(o.Why) > 0:
		o.Verdict = Broken
	default:
		o.Verdict, o.Why = Refused, []string{err.Error()}
	}
}
