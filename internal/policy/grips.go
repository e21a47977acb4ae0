package policy

import (
	"slices"

	"ringfence/internal/act"
)

// What a program does to the files of a tree that it is given, and what that comes to
// (reading 14 of docs/decisions/0002).
var (
	givenToRead   = []act.Kind{act.Read}
	comesToRead   = []act.Kind{act.List, act.Stat, act.GitRead}
	givenToWrite  = []act.Kind{act.Create, act.Overwrite, act.Append, act.Delete, act.Move}
	comesToChange = []act.Kind{act.GitCommit, act.GitBranch, act.GitRewrite}
)

// A Reach is the trees that a box may be given without asking anybody: whatever a
// program does to the files in them, each effect by itself is allowed. Both lists hold
// what was asked about, in that order; a tree in Write is also in Read.
type Reach struct {
	Read  []string `json:"read,omitempty"`
	Write []string `json:"write,omitempty"`
}

// Reach returns which of trees q allows outright. The effects and approvals of q do not
// count: what would have to be asked is left out, and so is a tree in which the policy
// keeps anything back. A tree is a Path with a canonical text; any other is left out.
//
// Facts come from who resolved the tree: without them nothing here knows that a tree is,
// or holds, state of our own. It is not a decision to start a box; the gate makes that.
func (p *Policy) Reach(q Query, trees []act.Resource) Reach {
	var r Reach
	q.Approved = nil
	for _, tree := range trees {
		if !p.outright(q, tree, givenToRead, comesToRead) {
			continue
		}
		r.Read = append(r.Read, tree.Text)
		if p.outright(q, tree, givenToWrite, comesToChange) {
			r.Write = append(r.Write, tree.Text)
		}
	}
	return r
}

// outright reports whether q allows the kinds given, and what they come to, on all of tree.
func (p *Policy) outright(q Query, tree act.Resource, given, comes []act.Kind) bool {
	if tree.Type != act.Path {
		return false
	}
	q.Effects = nil
	for _, kind := range slices.Concat(given, comes) {
		on := tree
		if kind.On() == act.Repo {
			on.Type, on.Text = act.Repo, "repo:"+tree.Text
		}
		q.Effects = append(q.Effects, act.Effect{
			Kind: kind, Resource: on, Tree: true, Implied: slices.Contains(comes, kind),
		})
	}
	return p.Decide(q).Verdict == act.Allow
}
