package resolve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// gitChanges are what a program comes to that can change all files of a repository.
var gitChanges = []act.Kind{act.GitCommit, act.GitBranch, act.GitRewrite}

// Implied returns what effects come to besides, if a program is given the trees in
// them: it can list what it can read, and read and change the repositories there.
func Implied(effects []act.Effect) []act.Effect {
	var all []act.Effect
	add := func(k act.Kind, r act.Resource) {
		e := act.Effect{Kind: k, Resource: r, Tree: true, Implied: true}
		if !slices.ContainsFunc(all, func(o act.Effect) bool { return o.Kind == k && o.Resource.Text == r.Text }) {
			all = append(all, e)
		}
	}
	for _, e := range effects {
		if !e.Tree || e.Resource.Type != act.Path {
			continue
		}
		repo := act.Resource{Type: act.Repo, Text: "repo:" + e.Resource.Text}
		switch e.Kind {
		case act.Read:
			add(act.List, e.Resource)
			add(act.Stat, e.Resource)
			add(act.GitRead, repo)
		case act.Overwrite:
			for _, k := range gitChanges {
				add(k, repo)
			}
		default: // what creates or deletes comes with what overwrites
		}
	}
	return all
}

// Changes returns the effects of giving a box the trees, to read and to change.
func (v View) Changes(trees []string) ([]act.Effect, error) {
	return v.execPaths(slices.Clone(trees), true, false)
}

// RunsProgram reports whether effects are those of running a program.
func RunsProgram(effects []act.Effect) bool {
	return slices.ContainsFunc(effects, func(e act.Effect) bool { return e.Kind == act.Execute })
}

// Narrow returns r, the resolution of an [Exec], with hold and hide added to what its box
// holds and what is not there in it.
func (r Resolution) Narrow(hold, hide []string) (Resolution, error) {
	var e Exec
	if err := strictjson.Unmarshal(r.Bytes, &e); err != nil {
		return Resolution{}, err
	}
	e.Hold = slices.Concat(e.Hold, hold)
	e.Hide = slices.Concat(e.Hide, hide)
	slices.Sort(e.Hold)
	slices.Sort(e.Hide)
	e.Hold, e.Hide = slices.Compact(e.Hold), slices.Compact(e.Hide)
	text, err := e.encode()
	r.Bytes = text
	return r, err
}

// encode is e as JSON that people read.
func (e *Exec) encode() ([]byte, error) {
	var out bytes.Buffer
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(e); err != nil {
		return nil, fmt.Errorf("encoding a command: %w", err)
	}
	return bytes.TrimSpace(out.Bytes()), nil
}
