package gate

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

var errFull = errors.New("disk full")

// record is a ledger in memory. It fails from the append number failAt on (0:
// never), and refuses what the real one would.
type record struct {
	mu      sync.Mutex
	entries []ledger.Entry
	durable []bool
	appends int
	failAt  int
	hook    func() // after every append
}

func (r *record) Append(ctx context.Context, durable bool, entries ...ledger.Entry) ([]ledger.Ref, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.appends++
	if r.failAt > 0 && r.appends >= r.failAt {
		return nil, errFull
	}
	var refs []ledger.Ref
	for _, e := range entries {
		if len(e.Body) == 0 {
			return nil, errors.New("an entry without a body")
		}
		refs = append(refs, ledger.Ref{Session: e.Session, Seq: int64(len(r.entries))})
		r.entries = append(r.entries, e)
		r.durable = append(r.durable, durable)
	}
	if r.hook != nil {
		r.hook()
	}
	return refs, nil
}

// types lists the types of all entries, with "!" for those on disk.
func (r *record) types() []string {
	var out []string
	for i, e := range r.entries {
		name := e.Type
		if r.durable[i] {
			name += "!"
		}
		out = append(out, name)
	}
	return out
}

// judge is a policy that is a function.
type judge func(policy.Query) policy.Decision

func (j judge) Decide(q policy.Query) policy.Decision { return j(q) }
func (j judge) Hash() string                          { return "policy" }

func allow(policy.Query) policy.Decision {
	return policy.Decision{Verdict: act.Allow, Rules: []string{"c1.1"}}
}

// asks wants the clauses approved.
func asks(clauses ...string) judge {
	return func(q policy.Query) policy.Decision {
		var ask []policy.Asked
		for _, c := range clauses {
			if !slices.Contains(q.Approved, c) {
				ask = append(ask, policy.Asked{Clause: c, Text: "ask about " + c, Quorum: policy.Quorum{Count: 1}})
			}
		}
		if len(ask) == 0 {
			return policy.Decision{Verdict: act.Allow, Rules: []string{"c1.1"}}
		}
		return policy.Decision{Verdict: act.Escalate, Ask: ask, Rules: []string{ask[0].Clause + ".1"}, Reason: "needs approval."}
	}
}

// people answer as they are told.
type people struct {
	answer  Answer
	err     error
	spent   error
	before  func()
	digests [][32]byte
	forms   []string // of the scopes that were offered last
}

func (p *people) Ask(_ context.Context, q Question) (Answer, error) {
	p.digests = append(p.digests, q.Digest)
	p.forms = forms(q.Scopes)
	if p.before != nil {
		p.before()
	}
	return p.answer, p.err
}

func (p *people) Consume(_ Answer, digest [32]byte) error {
	if !slices.Contains(p.digests, digest) {
		return errors.New("not what was approved")
	}
	return p.spent
}

// pinboard has one status for every definition that was not shipped.
type pinboard struct {
	status PinStatus
	err    error
}

func (p pinboard) See(_ string, shown []Definition) ([]PinStatus, error) {
	out := make([]PinStatus, len(shown))
	for i, d := range shown {
		if out[i] = p.status; d.Trusted {
			out[i] = PinApproved
		}
	}
	return out, p.err
}

type opinion struct {
	verdict act.Verdict
	err     error
}

func (o opinion) Judge(context.Context, act.Request, []act.Effect) (act.Verdict, string, error) {
	return o.verdict, "it looks odd", o.err
}

// A bench is a gate on fakes, with one session "s" and one server "files".
type bench struct {
	t      *testing.T
	o      Options
	run    *Run
	record *record
	people *people
	work   string
}

func newBench(t *testing.T, j judge) *bench {
	t.Helper()
	work, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{t: t, work: work, record: &record{}, people: &people{answer: Answer{ID: "q", Approved: true}}}
	b.run = &Run{
		Session: &session.Session{ID: "s", Principal: "default/test", Workspace: work},
		Policy:  j, View: resolve.View{Workspace: work, Home: work}, Box: "none",
		Ask: Asking{Asker: func() any { return "test" }},
		Servers: map[string]*Server{"files": {
			Name: "files", Dir: work, Pin: "launch",
			Annotation: &policy.Annotation{Name: "files", Tools: map[string]policy.ToolAnnotation{
				"read": {
					Args:  map[string]policy.Arg{"/path": {Role: policy.RolePath, Real: true, Effects: []act.Kind{act.Read}}},
					Reads: []act.Label{act.LabelUntrusted},
				},
				"write": {
					Args: map[string]policy.Arg{"/path": {Role: policy.RolePath, Effects: []act.Kind{act.Create}}},
					Sets: []act.Label{act.LabelPrivate},
				},
				"odd":  {Args: map[string]policy.Arg{"": {Role: policy.RolePlain}}},
				"late": {Args: map[string]policy.Arg{"": {Role: policy.RolePlain}}},
			}},
		}},
	}
	b.o = Options{
		Runs:   func(id string) (*Run, bool) { return b.run, id == "s" },
		Ledger: b.record, Desk: b.people, Pins: pinboard{status: PinApproved}, Inspect: &inspect.Inspector{},
		Now: func() time.Time { return time.Unix(1, 0) },
		Digest: func(b Bound) [32]byte {
			var d [32]byte
			copy(d[:], string(b.Arguments)+b.Tool)
			return d
		},
	}
	return b
}

const listing = `{"tools":[` +
	`{"name":"read","inputSchema":{"type":"object","properties":{"path":{"type":"string"}},"required":["path"]}},` +
	`{"name":"write","inputSchema":{"type":"object"}},` +
	`{"name":"odd","inputSchema":{"type":"object","properties":{"a":{"$ref":"#/nowhere"}}}},` +
	`{"name":"bare"},` +
	`{"name":"late"}]}`

// list has the server "files" list its tools.
func (b *bench) list() *bench {
	b.t.Helper()
	t := b.decide(act.Request{Verb: act.VerbList, Tool: "files", Args: []byte(listing)})
	if t.Verdict != act.Allow {
		b.t.Fatalf("listing: %s", t.Reason)
	}
	b.record.entries, b.record.durable = nil, nil
	return b
}

func (b *bench) decide(r act.Request) act.Ticket {
	b.t.Helper()
	r.Session = "s"
	t, err := New(b.o).Decide(context.Background(), r)
	if err != nil {
		b.t.Fatal(err)
	}
	return t
}

func read(path string) act.Request {
	return act.Request{Verb: act.VerbCall, Tool: "files.read", Args: []byte(`{"path":"` + path + `"}`)}
}

func write(path string) act.Request {
	return act.Request{Verb: act.VerbCall, Tool: "files.write", Args: []byte(`{"path":"` + path + `"}`)}
}

func (b *bench) file(name string) {
	b.t.Helper()
	if err := os.WriteFile(filepath.Join(b.work, name), []byte("x"), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func opened(t act.Ticket) session.Open { return session.Open{Ticket: t} }

// noted keeps the names of the definitions that a person would review.
type noted struct{ names []string }

func (n *noted) See(_ string, shown []Definition) ([]PinStatus, error) {
	for _, d := range shown {
		n.names = append(n.names, d.Tool)
	}
	return make([]PinStatus, len(shown)), nil
}

func listRequest(list string) act.Request {
	return act.Request{Verb: act.VerbList, Tool: "files", Args: []byte(list)}
}
