package egress

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/registry"
)

// A judge asks the decider about packages, for one request of a package manager.
type judge struct{ x *exchange }

// Offered implements registry.Judge.
func (j judge) Offered(ctx context.Context, at string, offers []act.Resource) ([]int, error) {
	if len(offers) == 0 {
		return nil, nil
	}
	args, err := json.Marshal(j.facts(at))
	if err != nil {
		return nil, err
	}
	r := act.Request{Verb: act.VerbOffers, Args: args, Direct: make([]act.Effect, len(offers))}
	for i, o := range offers {
		r.Direct[i] = act.Effect{Kind: act.Install, Resource: o}
	}
	began := j.x.way.now()
	t, err := j.x.way.o.Decider.Decide(ctx, r)
	if err != nil {
		return nil, err
	}
	if t.Verdict != act.Allow {
		return nil, &registry.DeniedError{Reason: t.Reason}
	}
	withheld := make([]int, len(t.Filter.LeaveOut))
	for i, place := range t.Filter.LeaveOut {
		if withheld[i], err = strconv.Atoi(place); err != nil {
			break
		}
	}
	(&ticket{Ticket: t, way: j.x.way, began: began}).finish(ending{Offered: len(offers), Withheld: len(withheld), err: err})
	return withheld, err
}

// Install implements registry.Judge.
func (j judge) Install(ctx context.Context, at string, pkg act.Resource) (func(registry.Outcome), error) {
	return j.decide(ctx, at, act.Effect{Kind: act.Install, Resource: pkg}, fetchOf(at))
}

// Pass implements registry.Judge: who may install anything that a registry could have may
// read its signed indexes, and else whoever may fetch them.
func (j judge) Pass(ctx context.Context, at string) (func(registry.Outcome), error) {
	if ecosystem := j.ecosystem(at); ecosystem != "" {
		done, err := j.decide(ctx, at, act.Effect{Kind: act.Install, Resource: act.Resource{Type: act.Package, Text: string(ecosystem) + ":index", Facts: map[string]any{act.FactAgeHours: oldest}}}, fetchOf(at))
		if denied, ok := errors.AsType[*registry.DeniedError](err); err == nil || !ok || denied == nil {
			return done, err
		}
	}
	return j.decide(ctx, at, fetchOf(at))
}

// oldest is the age of an index, in hours: a rule about age does not hold it back.
const oldest = int64(1) << 32

func fetchOf(at string) act.Effect {
	return act.Effect{Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: at}}
}

// Refuse implements registry.Judge.
func (j judge) Refuse(ctx context.Context, at, why string) {
	j.x.refuse(ctx, act.Effect{Kind: act.Send, Resource: act.Resource{Type: act.URL, Text: at}}, j.facts(at), why)
}

// refuse records that a request was refused whatever the policy says of it.
func (x *exchange) refuse(ctx context.Context, e act.Effect, f facts, why string) {
	f.Refused = why
	if t, no := x.ask(ctx, question{effects: []act.Effect{e}, facts: f}); no == nil {
		t.finish(ending{err: &DeniedError{Reason: why}})
	}
}

func (j judge) facts(at string) facts {
	f := facts{Method: http.MethodGet, Via: j.x.via}
	if u, err := weburl.Parse(at); err == nil {
		f.Path = u.Path
	}
	if j.x.stream != nil {
		f.PID = j.x.stream.from.PID
	}
	return f
}

func (j judge) ecosystem(at string) registry.Ecosystem {
	u, err := weburl.Parse(at)
	if err != nil {
		return ""
	}
	return j.x.way.packages.Ecosystem(u)
}

// decide has effects decided, as one request.
func (j judge) decide(ctx context.Context, at string, effects ...act.Effect) (func(registry.Outcome), error) {
	t, no := j.x.ask(ctx, question{effects: effects, facts: j.facts(at)})
	if no != nil {
		return nil, &registry.DeniedError{Reason: no.Reason}
	}
	return func(o registry.Outcome) {
		e := ending{Status: o.Status, Received: o.Bytes}
		if o.Error != "" {
			e.err = errors.New(o.Error)
		}
		t.finish(e)
	}, nil
}
