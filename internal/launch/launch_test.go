package launch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/sandbox"
)

// world is a session and a tier that note, in order, what happens to them.
type world struct {
	events   []string
	verdict  act.Verdict
	bytes    string // of the ticket; "" is what was asked for
	leaveOut []string
	boxErr   error // of RecordBox
	tierErr  error
	spec     sandbox.Spec
	outcome  act.Outcome
}

func (w *world) note(e string) { w.events = append(w.events, e) }

func (w *world) Decide(_ context.Context, r act.Request) (act.Ticket, error) {
	w.note("decide")
	t := act.Ticket{ID: "s/1", Verdict: w.verdict, Bytes: r.Args, Reason: "no clause allows it", Filter: act.Filter{LeaveOut: w.leaveOut}}
	if w.bytes != "" {
		t.Bytes = []byte(w.bytes)
	}
	return t, nil
}

func (w *world) Finish(_ context.Context, _ act.Ticket, o act.Outcome) (act.Reply, error) {
	w.note("finish")
	w.outcome = o
	return act.Reply{Body: o.Body}, nil
}

func (w *world) RecordBox(_ context.Context, _, ticket, box string, _ any) error {
	w.note("record " + ticket + " " + box)
	return w.boxErr
}

func (w *world) Name() string                                  { return "fake" }
func (w *world) Probe(context.Context) (sandbox.Report, error) { return sandbox.Report{}, nil }

func (w *world) Start(_ context.Context, s sandbox.Spec) (sandbox.Box, error) {
	w.note("build")
	w.spec = s
	if w.tierErr != nil {
		return nil, w.tierErr
	}
	if err := s.Confirm(sandbox.Report{Tier: "fake", Enforced: []string{"seccomp"}}); err != nil {
		return nil, errors.Join(sandbox.ErrNotBuilt, err)
	}
	w.note("run")
	return ended{}, nil
}

// ended is a box whose program has ended with status 3.
type ended struct{ sandbox.Box }

func (ended) Wait() (sandbox.Exit, error) {
	return sandbox.Exit{Cause: sandbox.CauseExit, Code: 3}, nil
}

func (ended) Denials() []sandbox.Denial { return []sandbox.Denial{{Op: "create", Object: "/w/.envrc"}} }
func (ended) Stdin() io.WriteCloser     { return nil }

func spec() sandbox.Spec {
	return sandbox.Spec{Argv: []string{"make"}, Workspace: sandbox.Workspace{Path: "/w", Mode: sandbox.ReadWrite}, ReadOnly: []string{"/r"}}
}

// TestOrder: L1 and L3, over everything that can go wrong.
func TestOrder(t *testing.T) {
	full := errors.New("disk full")
	confirmed := "record s/1 box: fake: seccomp"
	for name, c := range map[string]struct {
		w    world
		own  error // of Confirmed
		want []string
		is   error
	}{
		"all well":                 {world{verdict: act.Allow}, nil, []string{"decide", "build", confirmed, "run", "finish"}, nil},
		"denied":                   {world{}, nil, []string{"decide"}, &DeniedError{}},
		"no box":                   {world{verdict: act.Allow, tierErr: sandbox.ErrNotBuilt}, nil, []string{"decide", "build", "finish"}, sandbox.ErrNotBuilt},
		"no program":               {world{verdict: act.Allow, tierErr: sandbox.ErrNotFound}, nil, []string{"decide", "build", "finish"}, sandbox.ErrNotFound},
		"box not recorded":         {world{verdict: act.Allow, boxErr: full}, nil, []string{"decide", "build", confirmed, "finish"}, full},
		"box not wanted":           {world{verdict: act.Allow}, full, []string{"decide", "build", confirmed, "finish"}, full},
		"a ticket of another":      {world{verdict: act.Allow, bytes: `{"argv":["make","x"],"read":["/r"],"write":["/w"]}`}, nil, []string{"decide", "finish"}, sandbox.ErrNotBuilt},
		"a ticket with more":       {world{verdict: act.Allow, bytes: `{"argv":["make"],"read":["/r","/etc"],"write":["/w"]}`}, nil, []string{"decide", "finish"}, sandbox.ErrNotBuilt},
		"a ticket that is no JSON": {world{verdict: act.Allow, bytes: `x`}, nil, []string{"decide", "finish"}, sandbox.ErrNotBuilt},
	} {
		w := c.w
		o := Options{Session: &w, Tier: &w, Confirmed: func(sandbox.Report) error { return c.own }}
		r, err := Start(t.Context(), o, spec())
		if err == nil {
			_, _, err = r.Finish(t.Context(), nil, nil, 0)
		}
		var denied *DeniedError
		if is := errors.Is(err, c.is) || errors.As(err, &denied) && name == "denied"; !is || !slices.Equal(w.events, c.want) {
			t.Errorf("%s: %q, %v\nwant %q, %v", name, w.events, err, c.want, c.is)
		}
	}
	if _, err := Start(t.Context(), Options{}, sandbox.Spec{}); err == nil {
		t.Error("started nothing")
	}
}

// TestResolvedRuns: L2.
func TestResolvedRuns(t *testing.T) {
	w := &world{verdict: act.Allow, leaveOut: []string{"/real/w/private"}, bytes: `{"argv":["/usr/bin/make"],"dir":"/real/w","read":["/real/r"],"write":["/real/w"]}`}
	r, err := Start(t.Context(), Options{Session: w, Tier: w}, spec())
	if err != nil {
		t.Fatal(err)
	}
	s := w.spec
	if s.Argv[0] != "/usr/bin/make" || s.Dir != "/real/w" || s.Workspace.Path != "/real/w" || s.ReadOnly[0] != "/real/r" || len(s.ReadWrite) != 0 || s.Denied[0] != "/real/w/private" {
		t.Errorf("what runs is %+v", s)
	}
	res, reply, err := r.Finish(t.Context(), []byte("out"), nil, 7)
	if err != nil || res.Status != 3 || res.Exit != "status 3" {
		t.Errorf("%+v, %v", res, err)
	}
	var recorded Result
	if err := json.Unmarshal(reply.Body, &recorded); err != nil || recorded.Stdout != "out" || recorded.Dropped != 7 || !strings.Contains(string(reply.Body), "/w/.envrc") {
		t.Errorf("recorded %s, %v", reply.Body, err)
	}
}

// TestWorkspaceGivenForChange: who names the workspace, or what it lies in, as what may
// be changed gets it, though the profile would have it read; the policy has decided so.
func TestWorkspaceGivenForChange(t *testing.T) {
	for name, c := range map[string]struct {
		ro, rw, left []string
		mode         sandbox.Mode
	}{
		"itself":           {nil, []string{"/w", "/x"}, []string{"/x"}, sandbox.ReadWrite},
		"what it lies in":  {nil, []string{"/"}, []string{"/"}, sandbox.ReadWrite},
		"a part of it":     {nil, []string{"/w/a"}, []string{"/w/a"}, sandbox.ReadOnly},
		"another":          {nil, []string{"/wx", "/x"}, []string{"/wx", "/x"}, sandbox.ReadOnly},
		"reading it, said": {[]string{"/w"}, []string{"/w"}, []string{"/w"}, sandbox.ReadOnly},
	} {
		w := world{verdict: act.Allow}
		s := sandbox.Spec{Argv: []string{"make"}, Workspace: sandbox.Workspace{Path: "/w", Mode: sandbox.ReadOnly}, ReadOnly: c.ro, ReadWrite: c.rw}
		if _, err := Start(t.Context(), Options{Session: &w, Tier: &w}, s); err != nil {
			t.Fatal(err)
		}
		if w.spec.Workspace.Mode != c.mode || !slices.Equal(w.spec.ReadWrite, c.left) {
			t.Errorf("%s: %q, and %q for change", name, w.spec.Workspace.Mode, w.spec.ReadWrite)
		}
	}
}

// TestNotUTF8: what the request cannot say is not asked for, let alone built.
func TestNotUTF8(t *testing.T) {
	for name, change := range map[string]func(*sandbox.Spec){
		"argument":  func(s *sandbox.Spec) { s.Argv = append(s.Argv, "x\xffy") },
		"workspace": func(s *sandbox.Spec) { s.Workspace.Path = "/w\xff" },
		"directory": func(s *sandbox.Spec) { s.Dir = "/w/\xff" },
		"readable":  func(s *sandbox.Spec) { s.ReadOnly = []string{"/r\xff"} },
		"denied":    func(s *sandbox.Spec) { s.Denied = []string{"/r/\xff"} },
	} {
		s := spec()
		change(&s)
		w := world{verdict: act.Allow}
		if _, err := Start(t.Context(), Options{Session: &w, Tier: &w}, s); !errors.Is(err, sandbox.ErrNotBuilt) || len(w.events) > 0 {
			t.Errorf("%s: %v, %v", name, err, w.events)
		}
	}
}

// TestDecidedPaths: L2, also for a tier that follows links: it is told what was decided
// on as it is.
func TestDecidedPaths(t *testing.T) {
	w := world{verdict: act.Allow, bytes: `{"argv":["/bin/make"],"dir":"/real/w","read":["/real/r"],"write":["/real/w"]}`}
	if _, err := Start(t.Context(), Options{Session: &w, Tier: &w}, spec()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"/real/r", "/real/w"}; !slices.Equal(w.spec.Decided, want) {
		t.Errorf("decided: %q", w.spec.Decided)
	}
}

// begun is a world whose tier can begin with a box.
type begun struct{ *world }

func (b begun) Prepare(sandbox.Spec) sandbox.Prepared {
	b.note("begin")
	return prepared(b)
}

type prepared struct{ *world }

func (p prepared) Start(ctx context.Context, s sandbox.Spec) (sandbox.Box, error) {
	p.note("go on")
	return p.world.Start(ctx, s)
}

func (p prepared) Discard() error { p.note("discard"); return nil }

// TestAhead: what was begun serves one box, and what is denied is discarded.
func TestAhead(t *testing.T) {
	w := &world{verdict: act.Allow}
	tier, _ := Ahead(begun{w}, spec())
	for range 2 {
		if _, err := Start(t.Context(), Options{Session: w, Tier: tier}, spec()); err != nil {
			t.Fatal(err)
		}
	}
	want := []string{"begin", "decide", "go on", "build", "record s/1 box: fake: seccomp", "run", "decide", "build", "record s/1 box: fake: seccomp", "run"}
	if !slices.Equal(w.events, want) {
		t.Errorf("%q", w.events)
	}
	w = &world{}
	tier, discard := Ahead(begun{w}, spec())
	if _, err := Start(t.Context(), Options{Session: w, Tier: tier}, spec()); err == nil || discard() != nil || !slices.Equal(w.events, []string{"begin", "decide", "discard"}) {
		t.Errorf("%v, %q", err, w.events)
	}
	if tier, discard = Ahead(w, spec()); tier != sandbox.Tier(w) || discard() != nil {
		t.Errorf("a tier that cannot begin became %T", tier)
	}
}
