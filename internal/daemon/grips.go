package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

// entryGrips says how the policy of a session is held for what is started in it.
const entryGrips = "grips"

// gripsEntry is what the record has of it.
type gripsEntry struct {
	policy.Circumstances
	Absent  []string      `json:"absent,omitempty"` // trees that the box is not to have
	Fixed   []string      `json:"fixed,omitempty"`  // and not to change
	Clauses []api.Gripped `json:"clauses"`
}

// maxGripsEntry is from how many bytes on an entry has less of each clause.
const maxGripsEntry = 512 << 10

// A gripping is a program of which is asked how a policy is held for it.
type gripping struct {
	run    *gate.Run
	policy *policy.Policy
	in     inForce
	r      api.GripsRequest
}

// Grips says how a policy is held for a program.
func (e *Engine) Grips(ctx context.Context, c api.Caller, r api.GripsRequest) (api.Grips, error) {
	g, err := e.gripping(c, r)
	if err != nil {
		return api.Grips{}, err
	}
	told, now, err := g.tell(e)
	if err != nil || r.Session == "" {
		return told, err
	}
	entry := gripsEntry{Circumstances: now, Absent: told.Absent, Fixed: told.Fixed, Clauses: slices.Clone(told.Clauses)}
	for _, shorten := range []func(*api.Gripped){func(c *api.Gripped) { c.Text = "" }, func(c *api.Gripped) { c.Grips = nil }} {
		raw, err := json.Marshal(entry)
		if err != nil {
			return api.Grips{}, fmt.Errorf("encoding %s: %w", entryGrips, err)
		}
		for i := range entry.Clauses {
			if len(raw) > maxGripsEntry {
				shorten(&entry.Clauses[i])
			}
		}
	}
	// What it is about does not start before an entry that goes to the disk.
	if err := e.write(ctx, false, r.Session, entryGrips, entry); err != nil {
		return api.Grips{}, api.Errorf(api.CodeUnavailable, "recording what holds the policy: %v", err)
	}
	return told, nil
}

// gripping is the session of r, or what it would be.
func (e *Engine) gripping(c api.Caller, r api.GripsRequest) (gripping, error) {
	g := gripping{r: r}
	if r.Session != "" {
		made := e.owned(r.Session, c)
		if made == nil {
			return g, api.ErrNoSession
		}
		var open api.OpenRequest
		if err := json.Unmarshal(made.file.Open, &open); err != nil {
			return g, fmt.Errorf("reading what the session was opened with: %w", err)
		}
		g.run, g.r.PolicyDir, g.r.Workspace = made.gate, open.PolicyDir, made.gate.View.Workspace
	}
	workspace, err := checkOpen(api.OpenRequest{Principal: g.principal(), Workspace: g.r.Workspace})
	if err != nil {
		return g, err
	}
	g.r.Workspace = workspace
	if g.in, err = e.compiled.load(policySource{home: e.o.Home, user: e.user, layers: e.conf.Policies}, g.r.PolicyDir, workspace); err != nil {
		return g, api.Errorf(api.CodeBadRequest, "loading the policy: %v", err)
	}
	g.policy = g.in.policy
	if g.run != nil {
		if g.run.Policy.Hash() != g.policy.Hash() {
			return g, api.Errorf(api.CodeRefused, "the policy of the session has changed since it was opened: start again")
		}
		return g, nil
	}
	self, err := os.Executable()
	if err != nil {
		return g, fmt.Errorf("finding our own program: %w", err)
	}
	g.run = &gate.Run{
		Session: &session.Session{Principal: r.Principal, Workspace: workspace, Home: e.user}, Policy: g.policy,
		View: resolve.View{Workspace: workspace, Home: e.user, OwnState: ownState(e.o.Home, g.r.PolicyDir, self), Path: searchPath(workspace), Later: realPaths(e.lists.known())},
		Ask:  gate.Asking{Never: r.Never || e.conf.AskNever},
	}
	return g, nil
}

func (g gripping) principal() string {
	if g.run != nil {
		return g.run.Session.Principal
	}
	return g.r.Principal
}

// tell says what the box is to be and how each clause is held.
func (g gripping) tell(e *Engine) (api.Grips, policy.Circumstances, error) {
	given := gate.Given{Labels: g.run.Session.Labels(), Now: e.o.Now()}
	box := g.box(given)
	args, err := json.Marshal(box)
	if err != nil {
		return api.Grips{}, policy.Circumstances{}, fmt.Errorf("encoding a command: %w", err)
	}
	now, judged := gate.Grips(g.run, act.Request{Verb: act.VerbExec, Args: args}, given, policy.Circumstances{
		Boxed: g.r.Boxed, Network: g.r.Network, Hooks: g.r.Hooks, ToolsOnly: g.r.ToolsOnly, Review: g.r.Review && g.r.Boxed,
	})
	told := api.Grips{
		Verdict: judged.Verdict.String(), Reason: judged.Reason, Read: box.Read, Write: box.Write, Absent: box.Absent, Fixed: box.Fixed,
	}
	if slices.Contains(g.r.Write, g.r.Workspace) && !slices.Contains(box.Write, g.r.Workspace) {
		told.Notes = append(told.Notes, lessNote(g.r.Workspace, box.Write))
	}
	for _, c := range g.policy.Grips(g.in.clauses, now) {
		one := api.Gripped{Clause: c.Clause, Line: c.Line, Text: c.Text, Modality: string(c.Modality), Hold: string(c.Hold), Changes: c.Changes}
		for _, by := range c.Grips {
			one.Grips = append(one.Grips, api.Grip{Level: string(by.Level), Hold: string(by.Hold), By: by.By})
		}
		told.Clauses = append(told.Clauses, one)
	}
	return told, now, nil
}

// lessNote says what is left of a workspace to a box that was to change it.
func lessNote(workspace string, write []string) string {
	if !slices.ContainsFunc(write, func(p string) bool { return strings.HasPrefix(p, workspace+"/") }) {
		return fmt.Sprintf("the policy gives a box nothing of %s to change without a question: \"ringfence run --explain\" says why", workspace)
	}
	return fmt.Sprintf("the policy gives a box only some of %s to change: what of that is not there yet cannot be made", workspace)
}

// box is what the program asks for, less what the policy does not give of the workspace
// without another question. A box that cannot hide and hold is left as it is.
func (g gripping) box(given gate.Given) resolve.Exec {
	ws := g.r.Workspace
	e := resolve.Exec{Argv: g.r.Argv, Dir: g.r.Dir, Read: slices.Clone(g.r.Read), Write: slices.Clone(g.r.Write), Hide: slices.Clone(g.r.Hide), Review: g.r.Review && g.r.Boxed}
	write := slices.Contains(e.Write, ws)
	if !g.r.Boxed || !write && !slices.Contains(e.Read, ws) {
		return e
	}
	reach := g.policy.Reach(policy.Query{Principal: g.principal(), Labels: given.Labels, Now: given.Now}, ws)
	if !reach.Read || !g.r.Names && slices.ContainsFunc(slices.Concat(reach.Absent, reach.Fixed), g.slips) {
		return e // the gate says why
	}
	e.Absent = reach.Absent
	if !write {
		return e
	}
	if reach.Write {
		e.Fixed = reach.Fixed
		return e
	}
	if g.r.Review {
		return e // a review is of the whole workspace
	}
	e.Write = slices.DeleteFunc(e.Write, func(p string) bool { return p == ws })
	e.Read = append(e.Read, ws)
	e.Fixed = reach.Fixed
	for _, p := range reach.Open {
		if _, err := os.Lstat(p); err == nil && !slices.Contains(e.Write, p) {
			e.Write = append(e.Write, p)
		}
	}
	return e
}

// slips reports whether a place in the workspace can be got around by names, where a box
// does not hold them: it can be made, or moved with the directory that it is in.
func (g gripping) slips(place string) bool {
	fi, err := os.Lstat(place)
	return err != nil || fi.Mode()&os.ModeSymlink != 0 || filepath.Dir(place) != g.r.Workspace
}
