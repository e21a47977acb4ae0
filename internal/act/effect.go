package act

import (
	"slices"
	"strings"
)

// A Kind is one row of the closed table of effects (docs/decisions/0002 and 0007). New kinds
// need a decision record.
type Kind string

// The kinds of effect.
const (
	Read       Kind = "read"
	List       Kind = "list"
	Stat       Kind = "stat"
	Create     Kind = "create"
	Overwrite  Kind = "overwrite"
	Append     Kind = "append"
	Delete     Kind = "delete"
	Move       Kind = "move" // one effect for each end
	Execute    Kind = "execute"
	Resolve    Kind = "resolve"
	Connect    Kind = "connect"
	Fetch      Kind = "fetch" // GET, HEAD; includes resolve and connect
	Send       Kind = "send"  // every other method; includes resolve and connect
	Install    Kind = "install"
	GitRead    Kind = "git-read"
	GitCommit  Kind = "git-commit"
	GitBranch  Kind = "git-branch"
	GitRewrite Kind = "git-rewrite"
	GitFetch   Kind = "git-fetch"
	GitPush    Kind = "git-push"
	GitForce   Kind = "git-force"
	Message    Kind = "message"
	UseSecret  Kind = "use-secret"
	Infer      Kind = "infer"
	Recall     Kind = "recall"
	Remember   Kind = "remember"
	Ask        Kind = "ask"
	Call       Kind = "call" // a tool with no other effect; its group is the annotation's
	// Answer is what a server asks of its client (docs/decisions/0007). It is in no group:
	// no clause about reading, changing or contacting is about it.
	Answer Kind = "answer"
)

// A Group is a property that kinds share. A kind has any number of them.
type Group string

// The groups. Irreversible implies Mutate.
const (
	Observe      Group = "observe"
	Mutate       Group = "mutate"
	Irreversible Group = "irreversible"
	RemoteGroup  Group = "remote"
)

type kindRow struct {
	kind   Kind
	on     ResourceType
	groups []Group
}

// kinds is the table of docs/decisions/0002, in its order, with what came later behind.
var kinds = [...]kindRow{
	{Read, Path, []Group{Observe}},
	{List, Path, []Group{Observe}},
	{Stat, Path, []Group{Observe}},
	{Create, Path, []Group{Mutate}},
	{Overwrite, Path, []Group{Mutate}},
	{Append, Path, []Group{Mutate}},
	{Delete, Path, []Group{Mutate, Irreversible}},
	{Move, Path, []Group{Mutate}},
	{Execute, Command, []Group{Mutate}},
	{Resolve, Host, []Group{Observe, RemoteGroup}},
	{Connect, Host, []Group{RemoteGroup}},
	{Fetch, URL, []Group{Observe, RemoteGroup}},
	{Send, URL, []Group{RemoteGroup}},
	{Install, Package, []Group{RemoteGroup}},
	{GitRead, Repo, []Group{Observe}},
	{GitCommit, Repo, []Group{Mutate}},
	{GitBranch, Repo, []Group{Mutate}},
	{GitRewrite, Repo, []Group{Mutate, Irreversible}},
	{GitFetch, Remote, []Group{RemoteGroup}},
	{GitPush, Remote, []Group{RemoteGroup}},
	{GitForce, Remote, []Group{Mutate, Irreversible, RemoteGroup}},
	{Message, Recipient, []Group{Mutate, Irreversible, RemoteGroup}},
	{UseSecret, Secret, nil},
	{Infer, Model, []Group{RemoteGroup}},
	{Recall, Memory, nil},
	{Remember, Memory, nil},
	{Ask, Person, nil},
	{Call, Tool, nil},
	{Answer, Tool, nil},
}

func (k Kind) row() (kindRow, bool) {
	for _, r := range kinds {
		if r.kind == k {
			return r, true
		}
	}
	return kindRow{}, false
}

// Kinds returns every kind, in the order of the table.
func Kinds() []Kind {
	all := make([]Kind, len(kinds))
	for i, r := range kinds {
		all[i] = r.kind
	}
	return all
}

// Known reports whether k is in the table.
func (k Kind) Known() bool { _, ok := k.row(); return ok }

// On returns the type of resource that effects of kind k are on, "" for an
// unknown kind.
func (k Kind) On() ResourceType { r, _ := k.row(); return r.on }

// Groups returns the groups of k; nil for an unknown kind. Do not modify it.
func (k Kind) Groups() []Group { r, _ := k.row(); return r.groups }

// In reports whether k is in group g.
func (k Kind) In(g Group) bool { return slices.Contains(k.Groups(), g) }

// An Effect is one typed access that a request implies.
type Effect struct {
	Kind     Kind     `json:"kind"`
	Resource Resource `json:"resource"`
	// Tree says that the effect reaches everything beneath the resource
	// (search, recursive listing, copy, move of a directory).
	Tree bool `json:"tree,omitempty"`
	// Implied says that another effect of the request comes to this too, as changing
	// all files of a repository comes to rewriting its history. What allows the other
	// allows it; what forbids it, or asks about it, holds.
	Implied bool `json:"implied,omitempty"`
	// Group is the group of a Call effect, from the tool's annotation; "" means
	// unknown, which counts as Mutate and Remote.
	Group Group `json:"group,omitempty"`
}

// Is reports whether e is in group g, taking the annotation's word for calls.
// A call of unknown group is in Mutate, Irreversible and RemoteGroup, not in
// Observe.
func (e Effect) Is(g Group) bool {
	if e.Kind != Call {
		return e.Kind.In(g)
	}
	switch e.Group {
	case "":
		return g != Observe
	case Irreversible:
		return g == Irreversible || g == Mutate
	default:
		return e.Group == g
	}
}

// Observes reports whether every effect only observes on this machine, so that
// its entry may be on disk after the effect rather than before. An empty list
// does not observe.
func Observes(effects []Effect) bool {
	for _, e := range effects {
		if !e.Is(Observe) || e.Is(RemoteGroup) {
			return false
		}
	}
	return len(effects) > 0
}

// String returns the effect as people read it: `read /w/a.txt`. A name that is looked up is
// shown without its port, which is no part of the question.
func (e Effect) String() string {
	text := e.Resource.Text
	if e.Kind == Resolve {
		text = strings.TrimSuffix(text, ":443")
	}
	s := string(e.Kind) + " " + text
	if e.Tree {
		s += " and everything beneath"
	}
	return s
}
