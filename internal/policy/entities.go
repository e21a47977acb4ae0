package policy

import (
	"fmt"
	"strings"
	"time"

	"github.com/cedar-policy/cedar-go/types"
	"github.com/cedar-policy/cedar-go/x/exp/eval"
)

// callFacts are the facts of a query that are the same for all its effects.
type callFacts struct {
	principal types.EntityUID
	persona   types.EntityUID
	tool      types.EntityUID // zero without a tool
	server    types.EntityUID
}

// theCall is the id of entities that exist once in a call.
const theCall = "call"

func (f *callFacts) set(q *Query) error {
	if !wellFormedPrincipal(q.Principal) {
		return fmt.Errorf(`the principal %q is not "persona/agent"`, clip(q.Principal))
	}
	persona, _, _ := strings.Cut(q.Principal, "/")
	f.principal, f.persona = uid(typeAgent, q.Principal), uid(typePersona, persona)
	if q.Tool != "" {
		server, tool, _ := strings.Cut(q.Tool, ".")
		if server == "" || tool == "" {
			return fmt.Errorf(`the tool %q is not "server.tool"`, clip(q.Tool))
		}
		f.tool = uid(typeTool, q.Tool)
		if !IsAsked(tool) { // what is allowed of all tools of a server is not what it asks
			f.server = uid(typeServer, server)
		}
	}
	for pointer, v := range q.Args {
		switch v.(type) {
		case string, int64, bool:
		default:
			return fmt.Errorf("the argument %q is a %T, want string, int64 or bool", clip(pointer), v)
		}
	}
	return nil
}

func uid(t types.EntityType, id string) types.EntityUID {
	return types.EntityUID{Type: t, ID: types.String(id)}
}

// wellFormedPrincipal reports whether s is "persona/agent".
func wellFormedPrincipal(s string) bool {
	persona, agent, ok := strings.Cut(s, "/")
	return ok && persona != "" && agent != "" && !strings.Contains(agent, "/")
}

// mostCount is what any larger count is taken for, so that sums stay in range.
const mostCount = 1 << 60

// count returns how many effects a limited clause of the layer has allowed in
// its window, those of this very call included. Without counts it is absent.
func (j *judge) count(local string) (types.Value, knowledge) {
	c := j.layer.clauses[local]
	if c == nil || c.limit == nil || j.q.Counts == nil {
		return nil, absent
	}
	return types.Long(min(max(0, j.q.Counts(c.id)), mostCount) + j.granted[c.id]), given
}

// env returns all that Cedar's evaluator may ask for.
func (j *judge) env(s *sheet, now approved) eval.Env {
	return eval.Env{
		Entities:  &entities{judge: j, sheet: s},
		Principal: j.facts.principal,
		Action:    j.actions[s.kind].UID,
		Resource:  s.res.uid,
		Context:   j.context(now),
	}
}

// entities are the entities that rules can ask for, made when they do.
type entities struct {
	judge *judge
	sheet *sheet
}

// Get implements types.EntityGetter.
func (e *entities) Get(id types.EntityUID) (types.Entity, bool) {
	j, facts := e.judge, &e.judge.facts
	switch id {
	case e.sheet.res.uid:
		return e.resource(), true
	case j.actions[e.sheet.kind].UID:
		return j.actions[e.sheet.kind], true
	case facts.principal:
		return types.Entity{UID: id, Parents: types.NewEntityUIDSet(facts.persona)}, true
	case facts.tool:
		return types.Entity{UID: id, Parents: types.NewEntityUIDSet(facts.server)}, true
	}
	switch id.Type {
	case typeText, typeNumber, typeFlag, typeCounts:
		return types.Entity{UID: id, Tags: j.tags(id.Type)}, true
	}
	return types.Entity{}, false
}

func (e *entities) resource() types.Entity {
	var parents []types.EntityUID
	for _, n := range e.sheet.near {
		parents = append(parents, n.uid)
	}
	attrs := types.RecordMap{}
	for _, v := range e.sheet.res.values {
		attrs[nameTexts[v.name]] = v.val
	}
	return types.Entity{
		UID: e.sheet.res.uid, Parents: types.NewEntityUIDSet(parents...), Attributes: types.NewRecord(attrs),
	}
}

// tags returns the arguments of one type, or the counts.
func (j *judge) tags(t types.EntityType) types.Record {
	tags := types.RecordMap{}
	for local := range j.layer.clauses {
		if n, known := j.count(local); t == typeCounts && known == given {
			tags[types.String(local)] = n
		}
	}
	for pointer, v := range j.q.Args {
		switch v := v.(type) {
		case string:
			put(tags, t == typeText, pointer, types.String(v))
		case int64:
			put(tags, t == typeNumber, pointer, types.Long(v))
		case bool:
			put(tags, t == typeFlag, pointer, types.Boolean(v))
		}
	}
	return types.NewRecord(tags)
}

func put(tags types.RecordMap, wanted bool, key string, v types.Value) {
	if wanted {
		tags[types.String(key)] = v
	}
}

// context returns the context of the call.
func (j *judge) context(now approved) types.Record {
	labels := make([]types.Value, len(j.q.Labels))
	for i, l := range j.q.Labels {
		labels[i] = types.String(l)
	}
	ids := make([]types.Value, len(now.ids))
	for i, id := range now.ids {
		ids[i] = types.String(id)
	}
	c := types.RecordMap{
		"approved": types.NewSet(ids...),
		"session":  types.NewRecord(types.RecordMap{"labels": types.NewSet(labels...)}),
		"counts":   uid(typeCounts, theCall),
		"args": types.NewRecord(types.RecordMap{
			"text": uid(typeText, theCall), "number": uid(typeNumber, theCall), "flag": uid(typeFlag, theCall),
		}),
	}
	if j.q.Tool != "" {
		c["tool"] = j.facts.tool
	}
	if !j.q.Now.IsZero() {
		c["hour"] = hour(j.q.Now)
	}
	return types.NewRecord(c)
}

// hour returns the hour of the day in UTC.
func hour(t time.Time) types.Long { return types.Long(t.UTC().Hour()) }
