// Package gate is the one place where a request is decided.
//
// Every request takes the same steps in the same order: schema, resolve,
// inspect, policy (bedrock first), guard, person, ledger; every outcome is
// inspected and recorded before the agent sees it. The gate knows no
// transport, starts nothing, and shows nothing: who asks it has the verdict,
// and what a person is asked goes through the [Desk] it was given.
//
// Invariants:
//
//	G1  A step that fails ends in a denial, and so does a decision that cannot
//	    be recorded.
//	G2  When Decide returns an allowing ticket, its entries have been written;
//	    they are on disk unless every effect only observes this machine, or it is
//	    about a program, which does not start before its box is on disk, and they are.
//	G3  An approval is for exactly the call that was shown: after the wait the
//	    request is resolved and judged again and must come out the same, and the
//	    token is consumed before the ticket allows. A yes for the session spares the
//	    asking alone, and only within the scope that the person chose.
//	G4  No outcome leaves Finish unrecorded, and none leaves it twice.
//	G5  A definition of a tool or a prompt is shown, and a call to it dispatched, only
//	    while its pin is approved.
//	G6  What is no tool takes the same steps, under the name of its method. What a
//	    server asks its client is dispatched without secrets of this machine.
//	G7  What the box of a server sends is for the hosts of that server only, whatever
//	    the policy allows.
//
// Locks: Server.mu and those of a Session are never held together.
package gate

import (
	"context"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

// The parts of a Gate, as small as this package needs them.
type (
	// A Recorder appends to the ledger. When it returns without error the
	// entries survive the death of this process and, if durable, of the machine.
	Recorder interface {
		Append(ctx context.Context, durable bool, entries ...ledger.Entry) ([]ledger.Ref, error)
	}
	// A Desk puts a question to people and waits. An error that is [ErrNotAsked] says
	// that nobody was.
	Desk interface {
		Ask(ctx context.Context, q Question) (Answer, error)
		// Consume uses up the approval of a; it succeeds at most once, and only
		// for the digest that was asked about.
		Consume(a Answer, digest [32]byte) error
	}
	// A Guard is a second model's opinion. It can only tighten.
	Guard interface {
		Judge(ctx context.Context, r act.Request, effects []act.Effect) (act.Verdict, string, error)
	}
	// A Policy judges effects. *policy.Policy is the one outside tests.
	Policy interface {
		Decide(q policy.Query) policy.Decision
		Hash() string
	}
	// Pins keeps what is known of tool definitions.
	Pins interface {
		// See returns the status of each definition that server shows now, in
		// their order. An error refuses the whole list.
		See(server string, shown []Definition) ([]PinStatus, error)
	}
	// Inspector finds secrets and labels in content.
	Inspector interface {
		ScanFrom(content []byte, o inspect.Origin) inspect.Findings
		Redact(content []byte, f inspect.Findings) []byte
	}
)

// A Definition is that of one tool, as its server shows it.
type Definition struct {
	Tool    string
	Hash    string
	Raw     []byte
	Trusted bool // its hash was shipped with us
}

// A PinStatus is what is known of one tool definition.
type PinStatus string

// The statuses. Only PinApproved lets a tool be seen and called.
const (
	PinProposed PinStatus = "proposed" // never seen before: a person must review it
	PinDrifted  PinStatus = "drifted"  // another definition of this tool was approved
	PinRejected PinStatus = "rejected" // a person said no
	PinApproved PinStatus = "approved"
)

// Options are the parts a Gate is made of. Runs, Ledger, Pins, Inspect, Now and
// Digest are required.
type Options struct {
	Runs    func(session string) (*Run, bool)
	Ledger  Recorder
	Desk    Desk  // nil: nobody can be asked, so whatever needs a person is denied
	Guard   Guard // nil: none is configured
	Pins    Pins
	Inspect Inspector
	Now     func() time.Time
	Digest  func(Bound) [32]byte // what an approval is bound to
}

// A Gate decides requests. It implements [act.Decider].
type Gate struct{ o Options }

var _ act.Decider = (*Gate)(nil)

// New returns a gate made of those parts.
func New(o Options) *Gate { return &Gate{o: o} }

// A Run is one session as the gate sees it.
type Run struct {
	Session  *session.Session
	Policy   Policy
	View     resolve.View
	Servers  map[string]*Server // by name; fixed while the session lives
	Monitors *policy.Monitors   // nil: no clause has a limit
	Ask      Asking
	Lend     Lender // nil: no secrets
	Purse    Purse  // nil: models cost nothing
	Box      string // what confines the effects, as the launcher reported it: "none"
}

// Asking says whether and how a person may be asked.
type Asking struct {
	Never bool          // nobody is asked: escalations are denied
	Wait  time.Duration // how long; the desk's own default if 0
	Asker func() any    // who waits now, for the desk; opaque here
}

// A Bound is what an approval binds to. All parts are covered by the digest.
type Bound struct {
	Principal string
	Session   string
	Server    string
	Launch    string // what is started as that server
	Tool      string
	Pin       string // definition hash of the tool
	Arguments []byte // as they would be dispatched
	Effects   []act.Effect
	Policy    string // policy hash
	Clauses   []string
}

// A Question is what a person is asked.
type Question struct {
	Session   string
	Principal string
	Tool      string
	Effects   []act.Effect
	Arguments []byte
	Asked     []policy.Asked
	Scopes    []Scope // in which a yes can be for the session; none: it cannot
	Digest    [32]byte
	Wait      time.Duration
	Asker     any
}

// An Answer is what came of it. The zero Answer is a no.
type Answer struct {
	ID       string   // of the question at the desk
	Approved bool     //
	Code     act.Code // why not: refused or no-answer
	By       []string // who answered, as the kernel identifies them
	Note     string   // "self-approval not excluded"
	Scope    int      // of a yes for the session: which of Question.Scopes, from 1; 0: for this call
	Message  string   // of who said no, to the agent: one line without controls
	Token    string   // consumed before the ticket allows; never recorded
}
