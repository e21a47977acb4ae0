// Package policy decides effects against compiled constitutions, and holds the
// forms a constitution has on its way: typed clauses, Cedar, a signed bundle.
//
// It is not the gate: it resolves nothing on disk or network, asks nobody,
// records nothing and keeps no clock. Canonical facts come in, a [Decision]
// comes out. It does not read English either; that is package constitution.
//
// Invariants:
//
//	P1  Only Cedar decides. The index leaves out only rules that would not match,
//	    and what is read in place is what Cedar's authorizer would say over all
//	    rules (TestOracle).
//	P2  Deny by default. The zero [Decision], a nil [Policy], an unknown kind,
//	    principal or type of fact, and any evaluation error deny.
//	P3  More approval never turns an answer for the worse: approved(c) occurs
//	    only where it can allow, which is checked when a policy is loaded.
//	P4  Each layer is decided alone and the most restrictive verdict wins, so a
//	    layer below the granting one can only narrow.
//	P5  The order of rules matters only for which of several clauses is named
//	    or asked for first.
//	P6  Everything that can be wrong with a policy is wrong when it is loaded:
//	    a policy that loads cannot name an unknown entity, attribute or kind.
package policy

import (
	"time"

	"ringfence/internal/act"
)

// Default is the rule id of the default denial: no rule of the layer permits.
// Below the granting layer it has the prefix of its layer ("user:default").
const Default = "default"

// A Binding is what a policy is bound to when it is loaded: the real paths of
// the symbolic roots. A policy that mentions a root which is not bound does not
// load.
type Binding struct {
	Workspace string // ${workspace}: absolute real path
	Home      string // ${home}: absolute real path
	// Links returns the real path of an absolute one that a policy names, path itself
	// if it goes through no symbolic link, and whether no agent can have made one of the
	// links. It is asked while the policy is loaded, and not later. Nil: there are none.
	Links func(path string) (real string, sure bool)
}

// A Layer is the text of one constitution as Cedar. The layer without a name
// grants; every other one only narrows, and its name is the prefix of its ids:
// "user" makes "user:c1".
type Layer struct {
	Name  string
	File  string // for error messages; "policy.cedar" if empty
	Text  []byte // Cedar, validated against the shipped schema
	Lists map[string]List
}

// A Query asks for a decision on all effects of one request.
type Query struct {
	Principal string         // "persona/agent"
	Tool      string         // "server.tool"; "" for an effect without a tool
	Effects   []act.Effect   // canonical; an empty list is denied
	Args      map[string]any // JSON pointer to string, int64 or bool; arguments of other types are not facts
	Labels    []act.Label    // what the session has touched
	Approved  []string       // clause ids with the prefix of their layer
	// Counts says how many effects a limited clause has already allowed in its
	// window, those in flight included. The clause id has the prefix of its
	// layer. With a nil Counts every limit is exhausted.
	Counts func(clause string) int64
	Now    time.Time // zero: permits that expire have, forbids that expire have not
	// Absent are trees that are no part of a tree effect, because whoever has its effect
	// does not see them; Fixed are no part of one that changes something, because they
	// cannot be changed there. Absolute paths in canonical form. What has the effect must
	// hold both, or the decision is about less than what can happen.
	Absent, Fixed []string
}

// An Asked is a clause that a person is asked to approve.
type Asked struct {
	Clause  string // with the prefix of its layer; what goes into Query.Approved
	Line    int    // of the constitution; 0 if not known
	Text    string // the sentence, or for bedrock what it protects
	Because string // the author's reason
	Quorum  Quorum // at least one person
}

// An EffectDecision is the decision on one effect.
type EffectDecision struct {
	Effect  act.Effect
	Verdict act.Verdict
	Rules   []string
	Ask     []Asked
	Reason  string // "" when allowed
}

// A Decision is the answer to a [Query]. Its zero value denies.
type Decision struct {
	Verdict act.Verdict
	// Rules are the ids of the rules that made the verdict: for allow the
	// granting rule of each effect, for escalate the rules that wait for
	// approval, for deny those that forbid, or else [Default].
	Rules   []string
	Ask     []Asked    // escalate: the clauses to approve, granting layer first
	Limited []string   // allow: limited clauses that granted, once for each effect that counts
	Filter  act.Filter // zero: a tree is allowed whole, or not; a connection only for what is decided inside of it
	// Inside says, of an escalate on one connect, that a person is asked only because of
	// what could flow inside: who decides that by itself need not ask here.
	Inside bool
	// Quiet says, of one connect, that no clause forbids or asks about anything that could
	// flow inside: a person can let it pass as it is.
	Quiet   bool
	Reason  string // fit to show to an agent; "" when allowed
	Effects []EffectDecision
	Errors  []string // evaluation errors; any makes the verdict deny
}
