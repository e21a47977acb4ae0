package policy

import (
	"fmt"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// A Modality says what a clause does with the effects it matches (docs/decisions/0002).
type Modality string

// The modalities. In a layer that permits by default, May grants nothing (lint
// says so) and MayWithApproval means MustAsk.
const (
	May             Modality = "may"               // permit
	MayWithApproval Modality = "may-with-approval" // permit when approved
	MustAsk         Modality = "must-ask"          // forbid unless approved; in a granting layer also permit when approved
	MustNever       Modality = "must-never"        // forbid
	Advice          Modality = "advice"            // not enforceable: shown to the agent as guidance, makes no rule
)

// A Clause is one sentence or list item of a constitution in typed form: what
// people review, what reads back as controlled English, and what Cedar is
// generated from. Parts that list alternatives match if any alternative does;
// an empty list leaves that part open; the parts are joined by and.
//
// A sentence whose parts are not independent (tools that matter for some kinds
// only) is several clauses with one ID: it matches if any of them does.
type Clause struct {
	ID       string   `json:"id"`     // "c7": c and the ordinal in the document
	Line     int      `json:"line"`   // 1-based, where the sentence starts
	Column   int      `json:"column"` // 1-based, in bytes
	Text     string   `json:"text"`   // the English as written, white space folded
	Modality Modality `json:"modality"`

	Who     []string          `json:"who,omitempty"`    // "persona" or "persona/agent"
	Tools   []string          `json:"tools,omitempty"`  // "server.tool" or "server.*"
	Kinds   []act.Kind        `json:"kinds,omitempty"`  // every kind meant, groups already expanded
	Groups  []act.Group       `json:"groups,omitempty"` // groups meant for Call effects, whose group the annotation gives
	On      []Pattern         `json:"on,omitempty"`
	Except  []Exception       `json:"except,omitempty"`  // narrows this clause; forbids nothing
	When    []Condition       `json:"when,omitempty"`    // all must hold
	Limit   *Limit            `json:"limit,omitempty"`   // May, MayWithApproval: at most so many
	Expires *time.Time        `json:"expires,omitempty"` // the clause is gone from then on
	Quorum  *Quorum           `json:"quorum,omitempty"`  // who must approve; nil is one person with any role
	Because string            `json:"because,omitempty"` // the author's reason, shown on denial
	Rest    Rest              `json:"rest,omitempty"`    // written as a complement
	Covers  []string          `json:"covers,omitempty"`  // Rest: ids of the clauses it is the complement of; their On is in Except
	Notes   map[string]string `json:"notes,omitempty"`   // what the compiler wants a reviewer to see
}

// Rest marks clauses that were written as the complement of others.
type Rest string

// The two complements.
const (
	RestSame Rest = "any-other" // "any other site …": same kinds and type of resource; Except holds what is covered
	RestAll  Rest = "all-else"  // "everything else …": the whole document, wherever it stands
)

// An Exception narrows the clause it is in: an effect is left out if it matches
// every part that is given.
type Exception struct {
	Tools []string    `json:"tools,omitempty"`
	Kinds []act.Kind  `json:"kinds,omitempty"`
	On    []Pattern   `json:"on,omitempty"`
	When  []Condition `json:"when,omitempty"`
}

// A Pattern matches resources of one type. Exactly one of the ways to match is
// given, or none, which matches every resource of the type; Beneath and Name may
// be given together, and Ref with any. Not inverts the whole pattern. The Not
// patterns of one type in one list are joined by and: together they match what
// none of them names.
//
// Paths may begin with the symbolic roots ${workspace} and ${home}, bound at
// load. Text of a list ("@docs-sites") stands for the members of that list as
// patterns of this type, none if the list is missing.
type Pattern struct {
	Type    act.ResourceType `json:"type"`
	Exact   string           `json:"exact,omitempty"`   // the canonical text; for Host without a port: that host on any port; URL and Remote: see Site
	Beneath string           `json:"beneath,omitempty"` // Path, Repo, Command: this directory and all beneath it
	Name    string           `json:"name,omitempty"`    // Path: base name, Command: program name; * matches any run of characters
	Site    string           `json:"site,omitempty"`    // Host, URL, Remote, Recipient: "example.com", that host only; "*.example.com", it and every name beneath; "10.0.0.0/8", a network; "example.com:8443", that port only
	Prefix  string           `json:"prefix,omitempty"`  // URL, Remote: "github.com/me" (host, then whole path segments), any scheme
	Ref     string           `json:"ref,omitempty"`     // Remote: "refs/heads/main", "refs/tags/*"; may be given together with Site, Prefix or Exact
	Package string           `json:"package,omitempty"` // Package: "npm:*", "npm:@scope/*", "npm:left-pad"
	List    string           `json:"list,omitempty"`    // "@docs-sites"
	Not     bool             `json:"not,omitempty"`
}

// A Condition is a test of one fact that must hold for its clause to apply.
// A fact that is absent fails the test, whichever the operator; in a MustNever
// or MustAsk clause an absent fact makes the clause apply. Arguments of a call
// are all known, so an absent one is not given: it is equal to nothing, and only
// the operators other than == make such a clause apply. An argument that is
// there with another type than Value is an unknown fact.
type Condition struct {
	Fact  string `json:"fact"`  // see the Fact constants; "arg:/force" is an argument by JSON pointer
	Op    string `json:"op"`    // "==" "!=" "<" "<=" ">" ">=" "has" "lacks" "like"
	Value any    `json:"value"` // string, int64, bool
}

// The facts that a [Condition] can test, besides arguments ("arg:" and a JSON
// pointer) and the facts of resources ("resource:" and the act.Fact name).
const (
	FactLabel = "label" // op has or lacks; value an act.Label
	FactHour  = "hour"  // hour of the day, UTC, 0–23
)

// A Limit allows at most Count effects of its clause in any Window. Allowed
// effects count, those in flight included.
type Limit struct {
	Count  int64         `json:"count"`
	Window time.Duration `json:"window"` // 0: the whole session
	// PerSession counts in this session only; otherwise all sessions of the
	// principal count together.
	PerSession bool `json:"per_session,omitempty"`
}

// UnmarshalJSON reads the window as whole nanoseconds, as package json writes it.
func (l *Limit) UnmarshalJSON(b []byte) error {
	var plain struct {
		Count      int64 `json:"count"`
		Window     int64 `json:"window"`
		PerSession bool  `json:"per_session"`
	}
	if err := strictjson.Unmarshal(b, &plain); err != nil {
		return fmt.Errorf("limit: %w", err)
	}
	*l = Limit{plain.Count, time.Duration(plain.Window), plain.PerSession}
	return nil
}

// A Quorum says how many different people of a role must approve. It is written
// @approvers("2 of owner") on the rule.
type Quorum struct {
	Count int    `json:"count"`
	Role  string `json:"role"` // "" is anyone who may approve
}
