package daemon

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
	"ringfence/internal/policy"
)

// entryAdmit is a person's word on a server, or on a file that lists servers.
const entryAdmit = "admit"

type admitEntry struct {
	Server  string            `json:"server,omitempty"`
	Tools   map[string]string `json:"tools,omitempty"`   // hash of the definition, by name
	Program string            `json:"program,omitempty"` // hash of what its program is known by
	File    string            `json:"file,omitempty"`
	Sum     string            `json:"sum,omitempty"`
	By      string            `json:"by"`
}

// Admit approves what a person was shown, after recording that they want it.
func (e *Engine) Admit(ctx context.Context, c api.Caller, r api.AdmitRequest, tools []byte) error {
	who := identity(c.Peer)
	if e.waits(who) {
		return api.Errorf(api.CodeRefused, "%v", desk.ErrSelf)
	}
	entry := admitEntry{Server: r.Server, File: r.File, Sum: r.Sum, By: person(who, true)}
	defs, err := listed(r.Server, tools)
	if err == nil && r.Server != "" {
		err = checkProgram(api.ServerInfo{Name: r.Server, Program: r.Program})
	}
	if err == nil && r.File != "" {
		err = checkSum(r.File, r.Sum)
	}
	if err != nil {
		return api.Errorf(api.CodeBadRequest, "admitting: %v", err)
	}
	if len(r.Program) > 0 {
		entry.Program = programOf(r.Program).Hash
	}
	for _, d := range defs {
		if entry.Tools == nil {
			entry.Tools = map[string]string{}
		}
		entry.Tools[d.Tool] = d.Hash
	}
	if err := e.append(ctx, engineChain, entryAdmit, entry); err != nil {
		return api.Errorf(api.CodeUnavailable, "recording what is admitted: %v", err)
	}
	if err := e.pins.admit(r.Server, defs); err != nil {
		return err
	}
	if d := programOf(r.Program); len(r.Program) > 0 && e.pins.program(r.Server, d.Hash) != gate.PinApproved {
		if err := e.pins.keep(r.Server, d, true); err != nil {
			return err
		}
	}
	if r.File == "" {
		return nil
	}
	return e.lists.admit(r.File, r.Sum)
}

// listed returns the definitions of a list of tools, which nobody has decided about.
func listed(server string, list []byte) ([]gate.Definition, error) {
	if server == "" {
		if len(list) > 0 {
			return nil, errors.New("a list of tools is that of a server")
		}
		return nil, nil
	}
	if !serverForm().MatchString(server) {
		return nil, fmt.Errorf("%q is no name for a server", server)
	}
	values, err := strictjson.Values(list, "/tools/*")
	if err != nil {
		return nil, fmt.Errorf("reading the tools of %s: %w", server, err)
	}
	out := make([]gate.Definition, 0, len(values))
	seen := map[string]bool{}
	for _, v := range values {
		name, ok, err := strictjson.Find(v.Raw, "/name")
		if err != nil || !ok {
			return nil, errors.Join(errors.New("a definition without a name"), err)
		}
		d := gate.Definition{Raw: v.Raw}
		if d.Tool, err = name.Text(); err == nil {
			d.Hash, err = policy.DefinitionHash(v.Raw)
		}
		switch {
		case err != nil:
			return nil, fmt.Errorf("reading the tools of %s: %w", server, err)
		case seen[d.Tool]:
			return nil, fmt.Errorf("reading the tools of %s: %q is listed twice", server, d.Tool)
		case len(v.Raw) > maxDefinition:
			continue // cannot be read, so cannot be approved
		}
		seen[d.Tool] = true
		out = append(out, d)
	}
	return out, nil
}

// admit approves definitions, in one write.
func (p *pins) admit(server string, defs []gate.Definition) error {
	if len(defs) == 0 {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(p.file.Tools)
	for _, d := range defs {
		name := server + "." + d.Tool
		r := next[name]
		r.Rejected = slices.DeleteFunc(slices.Clone(r.Rejected), func(h string) bool { return h == d.Hash })
		if r.Seen != nil && r.Seen.Hash == d.Hash {
			r.Seen = nil
		}
		if r.status(d.Hash) != gate.PinApproved {
			r.Approved = append(slices.Clip(r.Approved), *newPinned(d))
		}
		next[name] = r
	}
	return p.put(next)
}
