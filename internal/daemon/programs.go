package daemon

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strings"

	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/sys/paths"
)

// Bounds of what a program is known by.
const (
	maxProgramFiles = 64
	maxProgramLine  = 4096 + 80
)

// programs holds what servers would be started from against what is approved, and
// returns why which of them must not be. The first that is seen of a name is approved:
// whoever configured it chose it. It is on record before it is.
func (e *Engine) programs(ctx context.Context, infos []api.ServerInfo) (map[string]string, error) {
	blocked := map[string]string{}
	for _, in := range infos {
		if len(in.Program) == 0 && !e.pins.hasProgram(in.Name) {
			continue
		}
		if err := checkProgram(in); err != nil {
			return nil, api.Errorf(api.CodeBadRequest, "%v", err)
		}
		switch d := programOf(in.Program); e.pins.program(in.Name, d.Hash) {
		case gate.PinApproved:
		case gate.PinProposed:
			if err := e.append(ctx, engineChain, entryPin, map[string]any{
				"tool": in.Name, "hash": d.Hash, "approved": true, "by": "its first use",
			}); err != nil {
				return nil, api.Errorf(api.CodeUnavailable, "recording the program of server %s: %v", in.Name, err)
			}
			if err := e.pins.keep(in.Name, d, true); err != nil {
				return nil, err
			}
		default:
			if err := e.pins.keep(in.Name, d, false); err != nil {
				return nil, err
			}
			blocked[in.Name] = fmt.Sprintf("its program is not the one that was approved, so it is not started; a person can look at the difference with `ringfence tools review %s`, and start the client again", in.Name)
		}
	}
	return blocked, nil
}

func checkProgram(in api.ServerInfo) error {
	if !serverForm().MatchString(in.Name) {
		return fmt.Errorf("%q is no name for a server", in.Name)
	}
	if len(in.Program) > maxProgramFiles || slices.ContainsFunc(in.Program, func(l string) bool { return len(l) > maxProgramLine || strings.ContainsAny(l, "\n\x00") }) {
		return fmt.Errorf("the program of server %s is described by more than %d lines, or by one that is none", in.Name, maxProgramFiles)
	}
	return nil
}

// programOf is a program as pins keep it.
func programOf(lines []string) pinned {
	text := strings.Join(lines, "\n")
	sum := sha256.Sum256([]byte("program/v1\x00" + text))
	return pinned{Hash: hex.EncodeToString(sum[:]), Definition: text}
}

// program returns the status of the program of a server. A record of a program stands
// under the name of the server alone, which no tool has.
func (p *pins) program(server, hash string) gate.PinStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.file.Tools[server].status(hash)
}

// hasProgram reports whether a program of that server is approved that is known by more
// than what a runner of packages has fetched, which is not there before it has run.
func (p *pins) hasProgram(server string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.ContainsFunc(p.file.Tools[server].Approved, func(a pinned) bool {
		for line := range strings.Lines(a.Definition) {
			if !strings.Contains(line, "/_npx/") {
				return true
			}
		}
		return false
	})
}

// keep notes a program as approved, or as one to review.
func (p *pins) keep(server string, d pinned, approve bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.file.Tools[server]
	switch {
	case approve:
		r.Approved = append(slices.Clip(r.Approved), d)
		r.Rejected = slices.DeleteFunc(slices.Clone(r.Rejected), func(h string) bool { return h == d.Hash })
		if r.Seen != nil && r.Seen.Hash == d.Hash {
			r.Seen = nil
		}
	case r.status(d.Hash) == gate.PinRejected || r.Seen != nil && r.Seen.Hash == d.Hash:
		return nil
	default:
		r.Seen = &d
	}
	next := maps.Clone(p.file.Tools)
	next[server] = r
	return p.put(next)
}

// OutOfUse are the tools of a list, {"tools":[…]}, whose definitions changed since they were
// approved, or were rejected: what no agent can call before a review. It needs no engine.
func OutOfUse(home, server string, list []byte) ([]string, error) {
	p, err := openPins(paths.PinsFile(home))
	if err != nil || len(list) == 0 {
		return nil, err
	}
	defs, err := listed(server, list)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, d := range defs {
		if st := p.file.Tools[server+"."+d.Tool].status(d.Hash); st == gate.PinDrifted || st == gate.PinRejected {
			out = append(out, d.Tool)
		}
	}
	return out, nil
}

// CheckProgram returns an error if a server must not be started from what it would be: what
// a session would block it for. It needs no engine and approves nothing.
func CheckProgram(home, server string, lines []string) error {
	p, err := openPins(paths.PinsFile(home))
	if err != nil {
		return err
	}
	if len(lines) == 0 && !p.hasProgram(server) {
		return nil
	}
	switch p.program(server, programOf(lines).Hash) {
	case gate.PinApproved, gate.PinProposed:
		return nil
	default:
		return fmt.Errorf("its program is not the one that was approved, so it is not started; look at the difference with `ringfence tools review %s`, once a client has connected", server)
	}
}
