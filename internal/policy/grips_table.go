package policy

import (
	"slices"
	"strings"

	"ringfence/internal/act"
)

// A Level is where a clause is held while an agent works.
type Level string

// The levels.
const (
	AtKernel Level = "kernel" // the box, and the way out of it
	AtHooks  Level = "hooks"  // the agent says what it is about to do, and asks
	AtTools  Level = "tools"  // what is called through us is decided call by call
	AtStart  Level = "start"  // decided once, before anything runs
	AtEnd    Level = "end"    // a person takes changes, or not, when the box has ended
)

// A Hold says how well a clause is held.
type Hold string

// The holds. HoldsNot is what an unknown means.
const (
	HoldsNot Hold = "not"      // nothing keeps an agent that means ill from it
	Partly   Hold = "partly"   // for some of what the clause is about, or not all the time
	Asks     Hold = "asked"    // a person is asked once, at the start, for all of it
	Reviews  Hold = "reviewed" // nothing of it happens before a person has taken it
	Holds    Hold = "held"     // exactly, or by less than the clause allows
	Refuses  Hold = "refused"  // because of it nothing is started
	Adds     Hold = "adds"     // of a level: it can be passed by, so nothing rests on it
	Gives    Hold = "gives"    // the clause allows; others hold back
	Advises  Hold = "advice"   // the clause is no rule
	Others   Hold = "others"   // it is about other agents
)

// A Grip is what one level does for a clause.
type Grip struct {
	Level Level  `json:"level"`
	Hold  Hold   `json:"hold"`
	By    string `json:"by"` // the mechanism, for people
}

// A Gripped is a clause with what holds it.
type Gripped struct {
	Clause   string   `json:"clause"` // with the prefix of its layer
	Line     int      `json:"line,omitempty"`
	Text     string   `json:"text"`
	Modality Modality `json:"modality,omitempty"`
	Hold     Hold     `json:"hold"`              // all levels together
	Changes  bool     `json:"changes,omitempty"` // it holds something back of changing files
	Grips    []Grip   `json:"grips,omitempty"`
}

// Circumstances are those of one agent, or one command, in its box. The zero value is one
// without a box.
type Circumstances struct {
	Principal string   `json:"principal"`
	Boxed     bool     `json:"boxed"`      // a box gives it no more than was decided
	Network   bool     `json:"network"`    // a way out, on which each thing is decided; else none
	Hooks     bool     `json:"hooks"`      // its hooks ask about each use of its own tools
	ToolsOnly bool     `json:"tools_only"` // it has no tools of its own
	Review    bool     `json:"review"`     // what it changes in the workspace waits for a person
	Asked     []string `json:"-"`          // the clauses that a person is asked about at the start
	Refused   []string `json:"-"`          // the rules because of which nothing is started
}

// A means is what kinds of effect come about by, and so what can hold them.
type means uint8

const (
	unknownMeans means = iota
	byFiles
	byRepos
	byPrograms
	byWayOut
	byRemotes
	byMail
	byCalls
)

// meansOf says of each kind by what means it comes about.
var meansOf = map[act.Kind]means{
	act.Read: byFiles, act.List: byFiles, act.Stat: byFiles,
	act.Create: byFiles, act.Overwrite: byFiles, act.Append: byFiles, act.Delete: byFiles, act.Move: byFiles,
	act.Execute: byPrograms,
	act.Resolve: byWayOut, act.Connect: byWayOut, act.Fetch: byWayOut, act.Send: byWayOut,
	act.Install: byWayOut, act.UseSecret: byWayOut, act.Infer: byWayOut,
	act.GitRead: byRepos, act.GitCommit: byRepos, act.GitBranch: byRepos, act.GitRewrite: byRepos,
	act.GitFetch: byRemotes, act.GitPush: byRemotes, act.GitForce: byRemotes,
	act.Message: byMail,
	act.Recall:  byCalls, act.Remember: byCalls, act.Ask: byCalls, act.Call: byCalls, act.Answer: byCalls,
}

// A row is what the levels do for one means.
type row struct {
	boxed   Grip   // in a box with a way out
	offline Grip   // in a box without one
	hooked  string // what a hook is asked about; "" for what it is not
	tools   Grip   // without tools of its own
	called  Grip   // what of it goes through us in any case; zero for nothing
}

var rows = map[means]row{
	byFiles: {
		boxed:   Grip{AtKernel, Holds, "files: the box has no others"},
		offline: Grip{AtKernel, Holds, "files: the box has no others"},
		hooked:  "files that the agent says it reads or writes",
		tools:   Grip{AtTools, Holds, "files: each call is decided"},
	},
	byRepos: {
		boxed:   Grip{AtKernel, Partly, "repositories that are there at the start; not one that it makes"},
		offline: Grip{AtKernel, Partly, "repositories that are there at the start; not one that it makes"},
		tools:   Grip{AtTools, Partly, "repositories: each call is decided; what git does in a command is not"},
	},
	byPrograms: {
		boxed:   Grip{AtKernel, HoldsNot, "programs: one in the box can start any other that it sees or makes"},
		offline: Grip{AtKernel, HoldsNot, "programs: one in the box can start any other that it sees or makes"},
		hooked:  "command lines that the agent says it runs",
		tools:   Grip{AtTools, Partly, "programs: each command is decided; what it starts itself is not"},
	},
	byWayOut: {
		boxed:   Grip{AtKernel, Holds, "network: the way out decides each"},
		offline: Grip{AtKernel, Holds, "network: no way leads out"},
		hooked:  "pages that the agent says it fetches",
		tools:   Grip{AtTools, Holds, "network: each call is decided"},
	},
	byRemotes: {
		boxed:   Grip{AtKernel, HoldsNot, "remotes: the way out decides requests, and does not read them as git"},
		offline: Grip{AtKernel, Partly, "remotes: no way leads out; one that is a directory is files"},
		tools:   Grip{AtTools, Partly, "remotes: each call is decided; what git does in a command is not"},
	},
	byMail: {
		boxed:   Grip{AtKernel, HoldsNot, "messages: the way out decides connections, and does not read them as mail"},
		offline: Grip{AtKernel, Holds, "messages: no way leads out"},
		tools:   Grip{AtTools, Holds, "messages: each call is decided"},
		called:  Grip{AtTools, Partly, "messages: each call of a tool is decided"},
	},
	byCalls: {called: Grip{AtTools, Holds, "tools: each call is decided"}},
	unknownMeans: {
		boxed:   Grip{AtKernel, HoldsNot, "nothing says what could hold it"},
		offline: Grip{AtKernel, HoldsNot, "nothing says what could hold it"},
	},
}

// reviewed are the kinds that wait at the end, where changes of the workspace are reviewed.
var reviewed = givenToWrite

// gripsOf says of each clause of one layer how it is held in c. The clauses of layers below
// the granting one have its name as prefix. Without a clause about everything else a
// granting layer gets a row for its default denial.
func gripsOf(layer string, clauses []Clause, c Circumstances) []Gripped {
	all := clauses
	if layer == "" && !slices.ContainsFunc(clauses, func(o Clause) bool { return o.Rest == RestAll }) {
		all = append(slices.Clone(all), Clause{ID: Default, Text: "what no clause allows", Modality: MustNever, Rest: RestAll})
	}
	var out []Gripped
	for _, one := range all {
		id := one.ID
		if layer != "" {
			id = layer + ":" + id
		}
		g := c.gripped(id, one, clauses)
		if n := len(out) - 1; n >= 0 && out[n].Clause == id {
			out[n] = joinGripped(out[n], g)
			continue
		}
		out = append(out, g)
	}
	return out
}

// joinGripped joins what is said of two parts of one sentence.
func joinGripped(a, b Gripped) Gripped {
	a.Hold = together(a.Hold, b.Hold)
	a.Grips, a.Changes = appendNew(a.Grips, b.Grips...), a.Changes || b.Changes
	return a
}

// together is how well something is held of which parts are held so and so.
func together(a, b Hold) Hold {
	weakest := []Hold{Refuses, HoldsNot, Partly, Asks, Reviews, Holds, Gives, Others, Advises}
	i, j := slices.Index(weakest, a), slices.Index(weakest, b)
	if a != b && min(i, j) == 1 && max(i, j) < 6 {
		return Partly
	}
	return weakest[min(i, j)]
}

func (c Circumstances) gripped(id string, of Clause, among []Clause) Gripped {
	g := Gripped{Clause: id, Line: of.Line, Text: of.Text, Modality: of.Modality}
	switch {
	case of.Modality == Advice:
		g.Hold = Advises
		return g
	case len(of.Who) > 0 && !slices.ContainsFunc(of.Who, c.is):
		g.Hold = Others
		return g
	case slices.Contains(c.Refused, id), of.Rest == RestAll && slices.Contains(c.Refused, strings.TrimSuffix(id, of.ID)+Default):
		g.Hold, g.Grips = Refuses, []Grip{{AtStart, Refuses, "nothing is started"}}
		return g
	case of.Modality == May && of.Limit == nil && len(of.When) == 0:
		g.Hold = Gives
		return g
	}
	first := true
	for _, k := range of.about(among) {
		hold, grips := c.grips(of, k)
		if !first {
			hold = together(g.Hold, hold)
		}
		first, g.Changes = false, g.Changes || slices.Contains(reviewed, k)
		g.Hold, g.Grips = hold, appendNew(g.Grips, grips...)
	}
	if first { // there is nothing left that it could hold back
		g.Hold = Gives
	}
	if slices.Contains(c.Asked, id) {
		if g.Grips = append(g.Grips, Grip{AtStart, Asks, "a person is asked once, for all of it"}); g.Hold != HoldsNot {
			g.Hold = together(g.Hold, Asks)
		} else {
			g.Hold = Partly
		}
	}
	return g
}

// is reports whether who, "persona" or "persona/agent", is the principal.
func (c Circumstances) is(who string) bool { return inDir(c.Principal, who) }

// about are the kinds that a clause holds something back of.
func (c Clause) about(among []Clause) (kinds []act.Kind) {
	for _, k := range allKinds {
		named := slices.Contains(c.Kinds, k) || len(c.Kinds) == 0 && (len(c.On) == 0 || slices.ContainsFunc(c.On, func(p Pattern) bool { return p.Type == k.On() }))
		if named && !(c.Rest == RestAll && slices.ContainsFunc(among, func(o Clause) bool { return o.settles(k) })) {
			kinds = append(kinds, k)
		}
	}
	if len(kinds) == 0 && c.Rest != RestAll { // of a kind that is not in the table
		kinds = []act.Kind{""}
	}
	return kinds
}

// settles reports whether c leaves nothing of a kind to a clause about everything else.
func (c Clause) settles(k act.Kind) bool {
	allows := c.Modality == May || c.Modality == MayWithApproval || c.Modality == MustAsk
	bare := len(c.Who)+len(c.Tools)+len(c.When)+len(c.Groups)+len(c.On) == 0 && c.Limit == nil && c.Expires == nil
	return allows && bare && slices.Contains(c.Kinds, k) && (c.Rest == RestSame || len(c.Except) == 0)
}

// grips says how the part of a clause that is about one kind is held.
func (c Circumstances) grips(of Clause, k act.Kind) (Hold, []Grip) {
	is := rows[meansOf[k]]
	if len(of.Tools) > 0 {
		is = rows[byCalls]
	}
	var grips []Grip
	best := HoldsNot
	add := func(g Grip) {
		if g.Level != "" {
			grips = append(grips, g)
			best = better(best, g.Hold)
		}
	}
	switch {
	case is.boxed.Level == "":
	case !c.Boxed:
		add(Grip{AtKernel, HoldsNot, "there is no box"})
	default:
		add(c.kernel(of, k, is))
	}
	if is.hooked != "" && c.Hooks && !c.ToolsOnly && (is != rows[byWayOut] || k == act.Fetch) {
		grips = append(grips, Grip{AtHooks, Adds, is.hooked})
	}
	if add(is.called); c.ToolsOnly && is.called.Hold != Holds {
		add(is.tools)
	}
	if waits := of.Modality == MayWithApproval || of.Modality == MustAsk; waits && c.Review && c.Boxed && slices.Contains(reviewed, k) && len(of.Tools) == 0 {
		add(Grip{AtEnd, Reviews, "changes of the workspace wait for a person"})
		best = Reviews
	}
	return best, grips
}

// kernel is what the box does about one kind.
func (c Circumstances) kernel(of Clause, k act.Kind, is row) Grip {
	g := is.boxed
	if !c.Network {
		g = is.offline
	}
	m := meansOf[k]
	if m == byRepos && of.ofFiles() {
		g = Grip{AtKernel, Holds, "repositories: they are held as files"}
	}
	if m == byFiles && k.In(act.Mutate) {
		g.By = "files: the box can change no others"
	}
	switch {
	case m != byFiles && m != byRepos:
	case g.Hold == Holds && of.changes():
		g.Hold, g.By = Partly, g.By+"; decided at the start, and not again"
	case k.On() == act.Path && k.In(act.Observe) && of.meetsSystem():
		g.Hold, g.By = Partly, g.By+", but for programs and libraries of the system"
	}
	return g
}

// ofFiles reports whether a clause that is about repositories holds as much back of all
// files where they are, so that none can be made there.
func (c Clause) ofFiles() bool {
	paired := func(p Pattern) bool {
		p.Type = act.Path
		return slices.Contains(c.On, p)
	}
	return slices.Contains(c.Kinds, act.Create) && (len(c.On) == 0 || !slices.ContainsFunc(c.On, func(p Pattern) bool { return p.Type == act.Repo && !paired(p) }))
}

// changes reports whether what a clause says can be another thing later in a session.
func (c Clause) changes() bool {
	return c.Expires != nil || slices.ContainsFunc(c.When, func(w Condition) bool { return w.Fact == FactLabel || w.Fact == FactHour })
}

// better is how well something is held of which each of two levels holds all.
func better(a, b Hold) Hold {
	weakest := []Hold{HoldsNot, Partly, Holds}
	return weakest[max(slices.Index(weakest, a), slices.Index(weakest, b), 0)]
}

var (
	// systemPlaces hold what every box has of the system, to read.
	systemPlaces = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/libexec", "/nix/store", "/gnu/store", "/etc", "/dev", "/proc", "/sys", "/opt"}
	// keptPlaces are what no box has of these.
	keptPlaces = []string{"/etc/shadow", "/etc/gshadow", "/etc/ssh", "/etc/sudoers"}
)

// meetsSystem reports whether a clause about reading files may be about those of the
// system.
func (c Clause) meetsSystem() bool {
	paths := slices.DeleteFunc(slices.Clone(c.On), func(p Pattern) bool { return p.Type != act.Path })
	return len(paths) == 0 || slices.ContainsFunc(paths, func(p Pattern) bool {
		at := p.Beneath + p.Exact
		switch {
		case p.Not, at == "":
			return true
		case slices.ContainsFunc(keptPlaces, func(k string) bool { return inDir(at, k) }):
			return false
		}
		return slices.ContainsFunc(systemPlaces, func(s string) bool { return inDir(at, s) || inDir(s, at) })
	})
}

// Grips says of each clause of p how it is held in c, the granting layer first. clauses are
// those that its layers were made of, by the name of the layer; of a rule that none of them
// is about, nothing is known but that it is there.
func (p *Policy) Grips(clauses map[string][]Clause, c Circumstances) []Gripped {
	var all []Gripped
	c.Refused = p.clausesOf(c.Refused)
	for _, l := range p.layers {
		if l.name == Bedrock {
			continue
		}
		all = append(all, gripsOf(l.name, clauses[l.name], c)...)
		for _, r := range l.rules {
			if r.permit && !l.grants { // it grants nothing
				continue
			}
			known := slices.ContainsFunc(clauses[l.name], func(o Clause) bool { return o.ID == r.clause.local })
			if known || slices.ContainsFunc(all, func(g Gripped) bool { return g.Clause == r.clause.id }) {
				continue
			}
			g := Gripped{Clause: r.clause.id, Line: r.clause.line, Text: r.clause.text, Hold: HoldsNot, Grips: []Grip{{AtKernel, HoldsNot, "a rule written by hand: nothing says what could hold it"}}}
			if r.permit {
				g.Hold, g.Grips = Gives, nil
			}
			if slices.Contains(c.Refused, g.Clause) {
				g.Hold, g.Grips = Refuses, []Grip{{AtStart, Refuses, "nothing is started"}}
			}
			all = append(all, g)
		}
	}
	return all
}

// clausesOf returns the clauses of rules; a default denial stands for itself.
func (p *Policy) clausesOf(rules []string) []string {
	ids := slices.Clone(rules)
	for _, l := range p.layers {
		for _, r := range l.rules {
			if slices.Contains(rules, r.id) {
				ids = appendNew(ids, r.clause.id)
			}
		}
	}
	return ids
}
