package filter

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A Group is system calls that are allowed or refused for one reason.
type Group struct {
	Name   string
	Reason string
	Calls  []string // as golang.org/x/sys/unix names them, in lower case
	// Needs says what a box must have for these calls, as members of [Options] with
	// what they mean: "Agent: …". Nil if every program has them.
	Needs []string
	// Never says that no Options allow them.
	Never bool
	// Programs says that pid 1 of the box does not have them.
	Programs bool
	// Checks says what arguments may be; "" if they are not looked at.
	Checks string
	// Held says that Options.Hold or Options.Sockets hands calls to the supervisor.
	Held bool
	// Refusals are what becomes of calls that are not allowed, for want of what the
	// group needs or for their arguments: names of errors, or "killed". Nil if the
	// group is allowed to everyone whatever the arguments.
	Refusals []string
}

// Table returns all groups, in the order in which they decide: a call that is in
// several is allowed by the first whose needs are met. What is in none is refused:
// ENOSYS if the kernel's tables do not have it either.
func Table() []Group {
	var all []Group
	for i := range groups {
		g := groups[i].describe()
		if last := len(all) - 1; last >= 0 && all[last].sameAs(g) {
			all[last].Calls = append(all[last].Calls, g.Calls...)
			continue
		}
		all = append(all, g)
	}
	return all
}

func (g Group) sameAs(h Group) bool {
	return g.Name == h.Name && g.Reason == h.Reason && g.Checks == h.Checks && slices.Equal(g.Refusals, h.Refusals) &&
		slices.Equal(g.Needs, h.Needs)
}

func (g *group) describe() Group {
	d := Group{
		Name: g.name, Reason: g.reason, Calls: strings.Fields(g.calls), Needs: g.when.needs(), Never: g.when.has(never), Programs: g.when.has(program),
		Checks: g.check.text,
	}
	ends := []verdict{g.check.end()}
	if g.when != everyone {
		ends = []verdict{g.otherwise, g.check.end()}
	}
	for _, cl := range g.check.clauses {
		d.Held = d.Held || (cl.when.has(hold) || cl.then == notify) && !g.when.has(pidOne)
		ends = append(ends, cl.then)
	}
	for _, v := range ends {
		if v != allow && v != notify && !slices.Contains(d.Refusals, v.fate()) {
			d.Refusals = append(d.Refusals, v.fate())
		}
	}
	return d
}

// needs are the Options that c asks for, in words.
func (c condition) needs() []string {
	var words []string
	for _, n := range []struct {
		bit   condition
		words string
	}{
		{pidOne, "Init: pid 1 of the box"},
		{pidOne | heldSockets, "Sockets: connections that it makes for programs"},
		{bare | hold, "Hold: a supervisor, where there are no namespaces"},
		{agent, "Agent: the profile of an agent or a server"},
		{namespaces, "Namespaces: mount, IPC and PID namespaces of the box's own"},
		{anySocket, "Unix, Inet or RouteNetlink: sockets at all"},
	} {
		if c.has(n.bit) {
			words = append(words, n.words)
		}
	}
	return words
}

// fate is v in one word.
func (v verdict) fate() string {
	words := map[verdict]string{
		allow: "allowed", notify: "handed over", kill: "killed",
		noAttribute: "EOPNOTSUPP", // ErrnoName has the other name of this number
	}
	if w, ok := words[v]; ok {
		return w
	}
	return unix.ErrnoName(unix.Errno(v &^ errno))
}

// An Explanation is what the tables say about one call under some Options.
type Explanation struct {
	Call   string // name, or "system call 999"
	Group  string // "" if the call is in none
	Reason string
	// Fate is "allowed", "checked" (its arguments decide, see Checks), "handed over"
	// (to the supervisor of held names), "EPERM", "ENOSYS" or "killed".
	Fate   string
	Checks string
	// Needs is what would allow a refused call, as in Group; nil if nothing does.
	Needs []string
}

// Explain says why the system call nr of this architecture fares as it does in a
// program built with o. The error is that of [Build].
func Explain(nr int, o Options) (Explanation, error) {
	a, err := host()
	if err != nil {
		return Explanation{}, err
	}
	return explain(a, nr, o)
}

func explain(a arch, nr int, o Options) (Explanation, error) {
	c, err := o.conditions()
	if err != nil {
		return Explanation{}, err
	}
	rulings, err := resolve(c)
	if err != nil {
		return Explanation{}, err
	}
	if a.x32 && uint32(nr) >= x32Bit {
		return Explanation{
			Call: fmt.Sprintf("system call %#x", uint32(nr)), Reason: "calls by the table of x32 see other arguments than the filter", Fate: kill.fate(),
		}, nil
	}
	at := slices.IndexFunc(numbers, func(n number) bool { return nr >= 0 && int(a.number(n)) == nr })
	if at < 0 {
		return Explanation{
			Call: fmt.Sprintf("system call %d", nr), Reason: "it is newer than the tables: programs use an older one", Fate: newer.fate(),
		}, nil
	}
	r := rulings[at]
	e := Explanation{Call: numbers[at].name, Fate: r.otherwise.fate()}
	if r.source == nil {
		return e, nil
	}
	e.Group, e.Reason = r.source.name, r.source.reason
	switch {
	case r.group != nil:
		e.Checks = r.group.check.text
		e.Fate = r.group.check.fate(c)
	case r.otherwise != allow && !r.source.when.has(never):
		e.Needs = (r.source.when &^ c).needs()
	}
	return e, nil
}

// fate is "checked", or the verdict if the arguments make no difference.
func (k check) fate(c condition) string {
	for _, cl := range k.clauses {
		if c.has(cl.when) && len(cl.tests) > 0 {
			return "checked"
		}
		if c.has(cl.when) {
			return cl.then.fate()
		}
	}
	return k.end().fate()
}
