package policy

import (
	"slices"

	"ringfence/internal/act"
)

// What a program does to the files of a tree that it is given, and what that comes to
// (reading 14 of docs/decisions/0002). What it comes to for repositories is not decided
// here: the gate does that, repository by repository.
var (
	givenToRead  = []act.Kind{act.Read}
	comesToRead  = []act.Kind{act.List, act.Stat}
	givenToWrite = []act.Kind{act.Create, act.Overwrite, act.Append, act.Delete, act.Move}
)

// maxPlaces is of how many places in one tree a [Reach] tells apart.
const maxPlaces = 256

// A Reach is what a box may be given of one tree. All paths are absolute and in the tree.
type Reach struct {
	Read  bool `json:"read"`            // the tree is there; if not, nothing else is said
	Write bool `json:"write,omitempty"` // it may be changed
	// Asked are the clauses that a person must approve before the tree may be there as
	// Read and Write say. Nothing else of the Reach needs another approval.
	Asked  []string `json:"asked,omitempty"`
	Absent []string `json:"absent,omitempty"` // trees that must not be there
	Fixed  []string `json:"fixed,omitempty"`  // trees that may be read, and must not be changed
	Open   []string `json:"open,omitempty"`   // trees that may be changed, of one that may not
}

// Reach returns what q allows of tree, a canonical absolute path, without asking anybody.
// The effects and approvals of q do not count. Only for the tree as a whole somebody may
// be asked; of what is in it, all that would take another question is left out. Whatever
// a policy names in a tree is a place of its own; rules that go by the names of files
// count for all places, so one such rule can leave out all.
func (p *Policy) Reach(q Query, tree string) Reach {
	q.Approved = nil
	places := p.placesIn(tree)
	if len(places) > maxPlaces {
		return Reach{}
	}
	root := p.standing(q, tree, places)
	if root.read == act.Deny {
		return Reach{}
	}
	r := Reach{Read: true, Write: root.write > act.Deny, Asked: root.readAsks}
	if r.Write {
		r.Asked = appendNew(slices.Clone(r.Asked), root.writeAsks...)
	}
	for _, at := range places {
		if inAnyOf(at, r.Absent) {
			continue
		}
		s := p.standing(q, at, places)
		changes := r.Write && !inAnyOf(at, r.Fixed) || inAnyOf(at, r.Open) && !inAnyOf(at, r.Fixed)
		switch writes := s.writes(r.Asked); {
		case !s.reads(r.Asked):
			r.Absent = append(r.Absent, at)
		case changes && !writes:
			r.Fixed = append(r.Fixed, at)
		case !changes && writes && !inAnyOf(at, r.Fixed):
			r.Open = append(r.Open, at)
		}
	}
	return r
}

// placesIn returns the paths in tree that some layer names, each before those in it.
func (p *Policy) placesIn(tree string) []string {
	var places []string
	for _, l := range p.layers {
		for _, n := range l.beneath(tree) {
			if n.uid.Type == typePath && n.path != tree {
				places = append(places, n.path)
			}
		}
	}
	slices.Sort(places)
	return slices.Compact(places)
}

// A standing is what a policy says of one place, without what is in it and is a place of
// its own.
type standing struct {
	read, write         act.Verdict
	readAsks, writeAsks []string // clauses
}

func (p *Policy) standing(q Query, at string, places []string) standing {
	q.Absent = slices.DeleteFunc(slices.Clone(places), func(o string) bool { return o == at || !inDir(o, at) })
	q.Fixed = nil
	on := func(kinds []act.Kind, implied bool) (all []act.Effect) {
		for _, k := range kinds {
			all = append(all, act.Effect{Kind: k, Resource: act.Resource{Type: act.Path, Text: at}, Tree: true, Implied: implied})
		}
		return all
	}
	q.Effects = append(on(givenToRead, false), on(comesToRead, true)...)
	read := p.Decide(q)
	q.Effects = on(givenToWrite, false)
	write := p.Decide(q)
	return standing{read.Verdict, write.Verdict, asks(read), asks(write)}
}

func asks(d Decision) (ids []string) {
	for _, a := range d.Ask {
		ids = append(ids, a.Clause)
	}
	return ids
}

// reads reports whether the place may be read once those clauses are approved.
func (s standing) reads(approved []string) bool { return lets(s.read, s.readAsks, approved) }

// writes reports whether it may be changed, too.
func (s standing) writes(approved []string) bool {
	return s.reads(approved) && lets(s.write, s.writeAsks, approved)
}

func lets(v act.Verdict, asks, approved []string) bool {
	return v == act.Allow || v == act.Escalate && !slices.ContainsFunc(asks, func(id string) bool { return !slices.Contains(approved, id) })
}

func inAnyOf(path string, trees []string) bool {
	return slices.ContainsFunc(trees, func(t string) bool { return inDir(path, t) })
}
