package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/config"
	"ringfence/internal/gate"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
	"ringfence/internal/session"
	"ringfence/internal/sys/paths"
)

// An Evaluator says what a policy would decide. It needs no engine and changes
// nothing; bundles need no signature, because nothing is enforced.
type Evaluator struct {
	run    *gate.Run
	source string
	now    func() time.Time
}

// A Case is one line that `policy eval` reads.
type Case struct {
	ID        json.RawMessage `json:"id,omitempty"`
	Tool      string          `json:"tool,omitempty"` // server.tool
	Args      json.RawMessage `json:"args,omitempty"`
	Effect    act.Kind        `json:"effect,omitempty"` // in place of a tool
	Resource  string          `json:"resource,omitempty"`
	Principal string          `json:"principal,omitempty"`
	Context   struct {
		Labels   []act.Label      `json:"labels,omitempty"`
		Approved []string         `json:"approved,omitempty"`
		History  map[string]int64 `json:"history,omitempty"` // clause to count
	} `json:"context,omitzero"`
	Now time.Time `json:"now,omitzero"`
}

// A Result is one line that `policy eval` writes.
type Result struct {
	ID      json.RawMessage `json:"id,omitempty"`
	Verdict act.Verdict     `json:"verdict"`
	Rules   []string        `json:"rules"`
	Reason  string          `json:"reason"`
	Effects []act.Effect    `json:"effects"`
	Code    act.Code        `json:"code,omitempty"`
	Ask     []string        `json:"ask,omitempty"` // clauses that a person would be asked to approve
}

// NewEvaluator loads the policy in dir, or the default one if dir is "", bound
// to workspace, with the layers and annotations of home.
func NewEvaluator(home, dir, workspace string) (*Evaluator, error) {
	conf, _, err := config.Load(home)
	if err != nil {
		return nil, err
	}
	user, err := paths.UserHome()
	if err != nil {
		return nil, err
	}
	if workspace, err = filepath.Abs(workspace); err == nil {
		workspace, err = filepath.EvalSymlinks(workspace)
	}
	if err != nil {
		return nil, fmt.Errorf("finding the workspace: %w", err)
	}
	in, err := policySource{home: home, user: user, layers: conf.Policies, unsigned: true}.load(dir, workspace)
	if err != nil {
		return nil, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	known, err := openLists(Lists(home))
	if err != nil {
		return nil, err
	}
	servers := map[string]*gate.Server{}
	for name, a := range in.annotations {
		servers[name] = &gate.Server{Name: name, Dir: workspace, Annotation: a}
	}
	return &Evaluator{source: in.source, now: time.Now, run: &gate.Run{
		Session: &session.Session{Principal: "default/mcp", Workspace: workspace, Home: user},
		Policy:  in.policy, Servers: servers,
		View: resolve.View{
			Workspace: workspace, Home: user, OwnState: ownState(home, dir, self), Path: searchPath(workspace), Later: realPaths(known.known()),
		},
	}}, nil
}

// Serve makes the Evaluator suppose a server called name, whose tools do what a says.
func (e *Evaluator) Serve(name string, a *policy.Annotation) {
	e.run.Servers[name] = &gate.Server{Name: name, Dir: e.run.Session.Workspace, Annotation: a}
}

// Eval answers one case. An error says what is wrong with the line.
func (e *Evaluator) Eval(line []byte) (Result, error) {
	var c Case
	if err := strictjson.Unmarshal(line, &c); err != nil {
		return Result{}, err
	}
	r := act.Request{Verb: act.VerbCall, Tool: c.Tool, Args: c.Args, Principal: c.Principal}
	switch {
	case (c.Tool == "") == (c.Effect == ""):
		return Result{}, errors.New(`a line names either a "tool" or an "effect"`)
	case c.Effect != "":
		r.Verb = act.VerbEffect
		r.Direct = []act.Effect{{Kind: c.Effect, Resource: act.Resource{Text: c.Resource}}}
	case len(c.Args) == 0:
		r.Args = []byte("{}")
	}
	if c.Now.IsZero() {
		c.Now = e.now()
	}
	j := gate.Evaluate(e.run, r, gate.Given{
		Labels: c.Context.Labels, Approved: c.Context.Approved, Counts: c.Context.History, Now: c.Now,
	})
	out := Result{ID: c.ID, Verdict: j.Verdict, Code: j.Code, Rules: j.Rules, Reason: j.Reason, Effects: j.Effects}
	for _, a := range j.Ask {
		out.Ask = append(out.Ask, a.Clause)
	}
	if out.Rules == nil {
		out.Rules = []string{}
	}
	if out.Effects == nil {
		out.Effects = []act.Effect{}
	}
	return out, nil
}
