package constitution

import (
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// exception returns what e leaves out of d.
func (g *grounder) exception(d *deed, e exception) []policy.Exception {
	if len(e.when) > 0 || len(e.hours) > 0 {
		if len(e.hours) > 0 { // all but the hours between: before them, and after
			h := e.hours[0]
			return []policy.Exception{
				{When: []policy.Condition{{Fact: policy.FactHour, Op: "<", Value: h[0]}}},
				{When: []policy.Condition{{Fact: policy.FactHour, Op: ">=", Value: h[1]}}},
			}
		}
		x := policy.Exception{When: slices.Clone(e.when)}
		for i := range x.When {
			g.pointer(d, &x.When[i], action{end: e.end})
		}
		return []policy.Exception{x}
	}
	if e.action != nil {
		inner := *g
		inner.wide, inner.grant = !g.wide, false
		ds := inner.deeds(*e.action)
		if inner.err != nil && g.err == nil {
			g.err = inner.err
		}
		var all []policy.Exception
		for _, x := range ds {
			if len(x.groups) > 0 || x.rest || x.all {
				g.fail(e.at, "", "%q cannot be an exception", g.text(e.at, e.end))
			}
			if len(d.kinds) > 0 && len(common(d.kinds, x.kinds)) == 0 {
				g.fail(e.at, "must never …", "the sentence does not speak of %q; an exception narrows its own sentence and forbids nothing", g.text(e.at, e.end))
			}
			all = append(all, policy.Exception{Tools: x.tools, Kinds: x.kinds, On: x.on, When: x.when})
		}
		return all
	}
	return g.exceptObjects(d, e)
}

// exceptObjects returns the exceptions for resources: places, hosts, names.
func (g *grounder) exceptObjects(d *deed, e exception) []policy.Exception {
	var on []policy.Pattern
	problem := "says nothing about this sentence"
	types := typesOf(d)
	for _, t := range types {
		for _, m := range e.mods {
			s, why := g.selectMod(m, t)
			on, problem = g.leaveOut(on, s, why, problem)
		}
		for i := range e.objects {
			o := &e.objects[i]
			if problem := g.plainly(o, true); problem != "" {
				g.fail(e.at, "", "%s", problem)
				return nil
			}
			if tools := g.exceptTools(o); len(tools) > 0 {
				return []policy.Exception{{Tools: tools}}
			}
			class := o.class
			if class == "" && slices.Contains(types, act.Remote) && t == act.Remote && !looksHost(o.names[0].text) {
				class = "branch"
			}
			if o.class == "credential" && t == act.Path {
				x := deed{kinds: ofType(act.Path)}
				g.credentials(&x, o)
				on, problem = append(on, x.on...), ""
				continue
			}
			if o.class != "" && o.root == "" && !contains(placeClasses[t], o.class) && !contains(classesOf[t], o.class) {
				continue
			}
			s, why := g.selectMain(o, t, class)
			on, problem = g.leaveOut(on, s, why, problem)
		}
	}
	if len(on) == 0 {
		g.fail(e.at, "", "%q: %s", g.text(e.at, e.end), problem)
		return nil
	}
	return []policy.Exception{{On: on}}
}

// classesOf are the nouns for things of a type.
var classesOf = map[act.ResourceType]string{
	act.Path: " file folder code ", act.URL: " site page ", act.Host: " site page ", act.Command: " program ", act.Package: " package ",
	act.Recipient: " person email ", act.Remote: " branch tag ", act.Memory: " memory ", act.Model: " model ", act.Secret: " secret ",
}

func (g *grounder) leaveOut(on []policy.Pattern, s selection, why, problem string) ([]policy.Pattern, string) {
	switch {
	case why != "":
		if problem == "" {
			return on, problem
		}
		return on, why
	case s.open(), len(s.nots) > 0 && len(s.pats) > 0:
		return on, problem
	case len(s.nots) > 0:
		return append(on, inverted(s.nots)...), ""
	}
	return append(on, s.pats...), ""
}

func (g *grounder) exceptTools(o *object) []string {
	if len(o.names) == 0 || o.class != "tool" && (o.class != "" || !toolName(o.names[0].text) || looksPath(o.names[0].text) || contains(siteSuffixes, o.names[0].text[strings.IndexByte(o.names[0].text, '.')+1:])) {
		return nil
	}
	if o.class != "tool" && o.names[0].tok.group == 0 && !strings.ContainsAny(o.names[0].text, "_*") {
		return nil
	}
	return g.toolNames(o)
}

// typesOf returns the types of resource that d is about; all of them if it does
// not say.
func typesOf(d *deed) []act.ResourceType {
	var types []act.ResourceType
	kinds := d.kinds
	if len(kinds) == 0 {
		kinds = act.Kinds()
	}
	for _, k := range kinds {
		if !slices.Contains(types, k.On()) {
			types = append(types, k.On())
		}
	}
	return types
}
