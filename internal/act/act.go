// Package act holds the words the rest of the tree speaks: who asks, for what,
// what that would really do, and what was answered.
//
// It is vocabulary, not behaviour: it does no I/O, decides nothing and imports
// nothing of ours. A type belongs here only when three packages need it.
//
// Invariants:
//
//	A1  The zero [Verdict] denies, and so does a [Ticket] returned with an error.
//	A2  The set of [Kind]s is closed: a kind outside the table of effect.go is
//	    refused wherever it appears.
//	A3  A [Resource] inside a Ticket is canonical: it was resolved once, and its
//	    text is what is shown, recorded and dispatched.
package act

import (
	"context"
	"fmt"
)

// A Verdict is the answer to a [Request]. Its zero value denies.
type Verdict uint8

// The three verdicts, most restrictive first: of several the lowest wins.
const (
	Deny Verdict = iota
	Escalate
	Allow
)

var verdictNames = [...]string{Deny: "deny", Escalate: "escalate", Allow: "allow"}

// String returns "deny", "escalate" or "allow"; any other value reads "deny".
func (v Verdict) String() string {
	if int(v) >= len(verdictNames) {
		return verdictNames[Deny]
	}
	return verdictNames[v]
}

// MarshalText writes the name that [Verdict.String] returns.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText reads one of the three names; on any other text it returns an
// error and leaves the verdict at Deny.
func (v *Verdict) UnmarshalText(b []byte) error {
	for i, name := range verdictNames {
		if string(b) == name {
			*v = Verdict(i)
			return nil
		}
	}
	*v = Deny
	return fmt.Errorf("reading verdict: %q is none of deny, escalate, allow", b)
}

// A Label says what a session has touched. Policies may read labels.
type Label string

// The labels that inspection and annotations can set.
const (
	LabelUntrusted Label = "untrusted-content" // text written by strangers has entered the context
	LabelPrivate   Label = "private-data"      // something personal or confidential has been read
	LabelSecret    Label = "secret"            // a credential has been seen
)

// A Verb says what kind of wire message a request came from.
type Verb string

// The verbs of this tree. A request with any other verb is denied.
const (
	VerbCall   Verb = "tools/call" // Tool is "server.tool" and Args its arguments, or "server." and a method of MCP and what is decided of its params
	VerbList   Verb = "tools/list" // Tool is "server", or "server." and the method of another list; Args is all of that list, as the server sent it
	VerbEffect Verb = "effect"     // no tool: Direct names the effects, not yet canonical. Tool is the server whose box they come from, "" for others
	// VerbOffers reads what versions of one package a registry has: Direct are installs of
	// them, Filter.LeaveOut the places in Direct of those that must not be shown, as
	// decimal numbers. A package without version stands for whether there could be one.
	VerbOffers Verb = "packages/list"
	VerbExec   Verb = "exec" // no tool: Args say which program runs in a box, and what it is given
)

// A Request is one thing an agent asks to do. It is immutable.
type Request struct {
	Session   string // the session id that the engine gave out
	Principal string // "persona/agent", from the session, never from the wire
	Verb      Verb
	Tool      string   // see the verbs; "" for VerbExec
	Args      []byte   // the bytes as received; strictly decodable JSON, or empty
	Direct    []Effect // VerbEffect and VerbOffers only
}

// A Ticket says how a request was decided and what may now happen: nothing but
// Effects, with Bytes as the arguments to dispatch and streams piped as Filter
// says.
type Ticket struct {
	ID      string   `json:"id"`      // the ledger entry of the decision, "session/seq"
	Session string   `json:"session"` // as in the request
	Verb    Verb     `json:"verb"`
	Tool    string   `json:"tool,omitempty"`
	Verdict Verdict  `json:"verdict"` // Deny or Allow: a person has been asked by now
	Code    Code     `json:"code,omitempty"`
	Rules   []string `json:"rules,omitempty"`  // rule ids, never prose
	Reason  string   `json:"reason,omitempty"` // fit to show to an agent
	Effects []Effect `json:"effects,omitempty"`
	Bytes   []byte   `json:"-"` // what to dispatch in place of Args
	Filter  Filter   `json:"filter,omitzero"`
	// Lend is what the owner of the decision lends for this request alone. It is never
	// in an entry of the ledger, a log or a message to an agent.
	Lend []Loan `json:"-"`
}

// A Loan is a secret that goes out with one request in place of its sentinel, which is
// what the box has.
type Loan struct {
	Name     string // of the secret, as the resource of a use-secret effect
	Sentinel string // the text that stands for it in the box
	Value    string
}

// A Code says, for machines, why a ticket denies.
type Code string

// The codes of a denial. Their texts are a contract with agents and scripts.
const (
	CodeInvalid     Code = "invalid-arguments" // the arguments do not decode or fit the schema
	CodeUnknown     Code = "unknown-tool"      // no such server or tool
	CodeUnannotated Code = "unannotated-tool"  // nothing says what its arguments mean
	CodeUnpinned    Code = "unreviewed-tool"   // definition new or drifted since it was pinned
	CodeUnresolved  Code = "unresolvable"      // an argument has no canonical resource
	CodeNotFound    Code = "not-found"         // the program is not there
	CodeTripwire    Code = "tripwire"          // an invariant that no policy lifts
	CodePolicy      Code = "policy"            // no clause allows it, or one forbids it
	CodeGuard       Code = "guard"             // the second model refused
	CodeRefused     Code = "refused"           // a person said no
	CodeNoAnswer    Code = "no-answer"         // nobody answered in time, or nobody may be asked
	CodeChanged     Code = "changed"           // the resource changed while a person was asked
	CodeSession     Code = "no-session"        // the session is unknown or has ended
	CodeEvidence    Code = "no-evidence"       // the decision could not be recorded
	CodeInternal    Code = "internal"          // anything else that failed
)

// A Filter is data that says what a stream must be piped through. The zero
// Filter leaves nothing of a tree out, and lets no stream pass unread.
type Filter struct {
	LeaveOut []string `json:"leave_out,omitempty"` // resources beneath the root of a tree effect that must not appear
	// Tunnel lets a connection pass as it is. Without it, TLS is opened, and each request
	// inside is decided: a connect is allowed wherever something inside could be.
	Tunnel bool `json:"tunnel,omitempty"`
	// Budget is what a request to a model may use; nil: nothing bounds it.
	Budget *Budget `json:"budget,omitempty"`
}

// A Budget is what may still be used of models. A member below zero is no bound; the
// zero Budget is used up.
type Budget struct {
	Tokens   int64 `json:"tokens"`
	MicroUSD int64 `json:"micro_usd"` // millionths of a dollar
}

// Spent is what a request to a model used.
type Spent struct {
	Tokens   int64 `json:"tokens"`
	MicroUSD int64 `json:"micro_usd"`
}

// An Outcome is what happened to a dispatched request.
type Outcome struct {
	Body  []byte // the result as received, or empty
	Error string // why there is no result: the server died, timed out, was cancelled
	// Labels are those that whoever streamed the result found in it. The session gets
	// them besides what inspection of Body finds.
	Labels []Label
	Spent  Spent // of models
}

// A Reply is what the agent may see of an outcome.
type Reply struct {
	Body     []byte  `json:"-"`
	Labels   []Label `json:"labels,omitempty"`   // labels this reply added to the session
	Redacted int     `json:"redacted,omitempty"` // how many passages were replaced
	Note     string  `json:"note,omitempty"`     // for the agent: what was withheld, and why
}

// A Decider decides requests and takes in their outcomes. Gate is the one
// implementation that decides; the client of the engine carries its answers.
// Everything that touches the world holds a Decider and nothing else.
//
// On error the caller must treat the request as denied, and the outcome as not
// to be shown.
type Decider interface {
	// Decide answers r. When it returns, the decision is on record, and for
	// every effect that is not purely observing it is on disk.
	Decide(ctx context.Context, r Request) (Ticket, error)
	// Finish records the outcome of a ticket that allowed, and returns the
	// reply that the agent may see. It is called once for each such ticket.
	Finish(ctx context.Context, t Ticket, o Outcome) (Reply, error)
}
