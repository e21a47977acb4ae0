package daemon

import (
	"context"
	"fmt"
	"slices"

	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
)

// entryRevoked says that a grant of a session was taken back, and by whom.
const entryRevoked = "grant-revoked"

// Grants returns what people granted sessions that are open.
func (e *Engine) Grants(_ context.Context, _ api.Caller, session string) ([]api.Grant, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if session != "" && e.runs[session] == nil {
		return nil, api.Errorf(api.CodeNotFound, "no session %q is open", session)
	}
	var all []api.Grant
	for id, r := range e.runs {
		if session != "" && session != id {
			continue
		}
		for _, g := range r.gate.Session.Grants() {
			all = append(all, api.Grant{Session: id, Host: g})
		}
		for _, s := range r.gate.Session.Scopes() {
			all = append(all, api.Grant{Session: id, ID: s.ID, Tool: s.Tool, Text: desk.Visible(s.Text, 4096), Used: s.Used})
		}
	}
	slices.SortStableFunc(all, func(a, b api.Grant) int { return slices.Compare([]string{a.Session}, []string{b.Session}) })
	return all, nil
}

// RevokeGrant takes a grant back. That only tightens, so whoever reaches this engine may.
func (e *Engine) RevokeGrant(ctx context.Context, c api.Caller, g api.Grant) error {
	e.mu.Lock()
	r := e.runs[g.Session]
	e.mu.Unlock()
	what, is := "host", g.Host
	if g.ID != "" {
		what, is = "grant", g.ID
	}
	if r == nil || g.ID == "" && !r.gate.Session.Revoke(g.Host) || g.ID != "" && !r.gate.Session.Withdraw(g.ID) {
		return api.Errorf(api.CodeNotFound, "session %q has no grant %q", g.Session, is)
	}
	who := identity(c.Peer)
	by := fmt.Sprintf("%s (uid %d, pid %d)", who.Name, who.UID, who.PID)
	return e.append(ctx, g.Session, entryRevoked, map[string]any{what: is, "by": by})
}

// entryClause is a clause that a person adds to a constitution.
const entryClause = "clause"

// AcceptClause puts on record that a person adds a clause, unless the person waits himself.
func (e *Engine) AcceptClause(ctx context.Context, c api.Caller, a api.AcceptedClause) error {
	who := identity(c.Peer)
	if e.waits(who) {
		return api.Errorf(api.CodeRefused, "%v", desk.ErrSelf)
	}
	if len(a.Proposal)+len(a.Text)+len(a.Constitution) > 8192 {
		return api.Errorf(api.CodeBadRequest, "a clause that long cannot be accepted")
	}
	return e.append(ctx, engineChain, entryClause, map[string]any{
		"proposal": a.Proposal, "text": a.Text, "constitution": a.Constitution, "by": person(who, true),
	})
}
