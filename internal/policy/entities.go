package policy

import (
	"fmt"
	"strings"

	"github.com/cedar-policy/cedar-go/types"
)

// callFacts are the facts of a query that are the same for all its effects.
type callFacts struct {
	principal types.Entity
	tool      types.Entity // zero without a tool
	server    types.EntityUID
	args      map[types.EntityType]types.RecordMap // by the type that holds them
}

// The ids of the entities that exist once in a call.
const theCall = "call"

func (f *callFacts) set(q *Query) error {
	if !wellFormedPrincipal(q.Principal) {
		return fmt.Errorf(`the principal %q is not "persona/agent"`, clip(q.Principal))
	}
	persona, _, _ := strings.Cut(q.Principal, "/")
	f.principal = types.Entity{
		UID:     uid(typeAgent, q.Principal),
		Parents: types.NewEntityUIDSet(uid(typePersona, persona)),
	}
	if q.Tool != "" {
		server, tool, _ := strings.Cut(q.Tool, ".")
		if server == "" || tool == "" {
			return fmt.Errorf(`the tool %q is not "server.tool"`, clip(q.Tool))
		}
		f.server = uid(typeServer, server)
		f.tool = types.Entity{UID: uid(typeTool, q.Tool), Parents: types.NewEntityUIDSet(f.server)}
	}
	for pointer, v := range q.Args {
		if err := f.arg(types.String(pointer), v); err != nil {
			return err
		}
	}
	return nil
}

func (f *callFacts) arg(pointer types.String, v any) error {
	switch v := v.(type) {
	case string:
		f.put(typeText, pointer, types.String(v))
	case int64:
		f.put(typeNumber, pointer, types.Long(v))
	case bool:
		f.put(typeFlag, pointer, types.Boolean(v))
	default:
		return fmt.Errorf("the argument %q is a %T, want string, int64 or bool", clip(string(pointer)), v)
	}
	return nil
}

func (f *callFacts) put(t types.EntityType, pointer types.String, v types.Value) {
	if f.args == nil {
		f.args = map[types.EntityType]types.RecordMap{}
	}
	if f.args[t] == nil {
		f.args[t] = types.RecordMap{}
	}
	f.args[t][pointer] = v
}

func uid(t types.EntityType, id string) types.EntityUID {
	return types.EntityUID{Type: t, ID: types.String(id)}
}

// wellFormedPrincipal reports whether s is "persona/agent".
func wellFormedPrincipal(s string) bool {
	persona, agent, ok := strings.Cut(s, "/")
	return ok && persona != "" && agent != "" && !strings.Contains(agent, "/")
}

// entities are the entities that the rules of one part can ask for. It is what
// Cedar reads the hierarchy and attributes from; everything in it was worked out
// before, and what no rule reads is left out.
type entities struct {
	action   types.Entity
	resource types.Entity
	judge    *judge
	rules    []*rule
}

func (j *judge) entities(p *part, rules []*rule, near []*node) *entities {
	e := &entities{action: j.actions[p.kind], judge: j, rules: rules}
	e.resource = types.Entity{UID: p.res.uid}
	parents := make([]types.EntityUID, 0, 8)
	for _, n := range near {
		if n.uid != p.res.uid {
			parents = append(parents, n.uid)
		}
	}
	e.resource.Parents = types.NewEntityUIDSet(parents...)
	var attrs types.RecordMap
	wanted := reads(rules)
	for _, v := range p.res.values {
		if wanted.has(v.name) {
			if attrs == nil {
				attrs = types.RecordMap{}
			}
			attrs[nameTexts[v.name]] = v.val
		}
	}
	e.resource.Attributes = types.NewRecord(attrs)
	return e
}

// Get implements types.EntityGetter.
func (e *entities) Get(id types.EntityUID) (types.Entity, bool) {
	f := &e.judge.facts
	switch id {
	case e.resource.UID:
		return e.resource, true
	case e.action.UID:
		return e.action, true
	case f.principal.UID:
		return f.principal, true
	case f.tool.UID:
		return f.tool, true
	}
	switch id.Type {
	case typeText, typeNumber, typeFlag:
		return types.Entity{UID: id, Tags: types.NewRecord(f.args[id.Type])}, true
	case typeCounts:
		return types.Entity{UID: id, Tags: e.judge.tally(e.rules)}, true
	}
	return types.Entity{}, false
}

// mostCount is what any larger count is taken for, so that sums stay in range.
const mostCount = 1 << 60

// tally returns the counts of the limited clauses of rules, those included that
// effects of this very call have been allowed under.
func (j *judge) tally(rules []*rule) types.Record {
	counts := types.RecordMap{}
	for _, r := range rules {
		c := r.clause
		if c.limit == nil || j.q.Counts == nil {
			continue
		}
		local := strings.TrimPrefix(c.id, j.layer.prefix(""))
		counts[types.String(local)] = types.Long(min(max(0, j.q.Counts(c.id)), mostCount) + j.granted[c.id])
	}
	return types.NewRecord(counts)
}

// fixedArgs and fixedCounts are the parts of the context that are entities.
var (
	fixedArgs = types.NewRecord(types.RecordMap{
		nameTexts[nameText]:   uid(typeText, theCall),
		nameTexts[nameNumber]: uid(typeNumber, theCall),
		nameTexts[nameFlag]:   uid(typeFlag, theCall),
	})
	fixedCounts = uid(typeCounts, theCall)
)

// context returns those attributes of the context that are in wanted.
func (j *judge) context(wanted nameSet, a approved) types.Record {
	if wanted&setOf(nameApproved, nameSession, nameTool, nameArgs, nameCounts, nameHour) == 0 {
		return types.Record{}
	}
	c := types.RecordMap{}
	if wanted.has(nameApproved) {
		c[nameTexts[nameApproved]] = a.set
	}
	if wanted.has(nameSession) {
		labels := make([]types.Value, len(j.q.Labels))
		for i, l := range j.q.Labels {
			labels[i] = types.String(l)
		}
		c[nameTexts[nameSession]] = types.NewRecord(types.RecordMap{nameTexts[nameLabels]: types.NewSet(labels...)})
	}
	if wanted.has(nameTool) && j.q.Tool != "" {
		c[nameTexts[nameTool]] = j.facts.tool.UID
	}
	if wanted.has(nameArgs) {
		c[nameTexts[nameArgs]] = fixedArgs
	}
	if wanted.has(nameCounts) {
		c[nameTexts[nameCounts]] = fixedCounts
	}
	if wanted.has(nameHour) && !j.q.Now.IsZero() {
		c[nameTexts[nameHour]] = hour(j.q.Now)
	}
	return types.NewRecord(c)
}
