package daemon

import (
	"context"
	"encoding/json"
	"strings"

	"ringfence/internal/daemon/api"
)

// entryBox is the entry of a box, written before its program starts.
const entryBox = "box"

// What a box record may hold at most, in bytes.
const (
	maxBoxLine   = 4 << 10
	maxBoxReport = 64 << 10
)

type boxEntry struct {
	Server string          `json:"server,omitempty"`
	Ticket string          `json:"ticket,omitempty"`
	Box    string          `json:"box"`
	Report json.RawMessage `json:"report"`
}

// RecordBox puts a box on record and has the decisions about the tools of a server
// repeat it. A ticket must be under way, before and after: what was denied, is over, or
// was given up when an engine before this one died, starts no program. When this returns
// without error the box is on disk, and so is the decision, which did not wait for that.
func (e *Engine) RecordBox(ctx context.Context, c api.Caller, id string, b api.BoxRecord) error {
	r := e.owned(id, c)
	if r == nil {
		return api.ErrNoSession
	}
	if b.Box == "" || len(b.Box) > maxBoxLine || len(b.Report) == 0 || b.Report[0] != '{' || len(b.Report) > maxBoxReport {
		return api.Errorf(api.CodeBadRequest, "a box record has a line of at most %d bytes and a report of at most %d", maxBoxLine, maxBoxReport)
	}
	server := r.gate.Servers[b.Server]
	switch {
	case (b.Server == "") == (b.Ticket == ""):
		return api.Errorf(api.CodeBadRequest, "a box is of a server or of a ticket")
	case b.Ticket != "" && !strings.HasPrefix(b.Ticket, id+"/"):
		return api.Errorf(api.CodeBadRequest, "session %s has no ticket %q", id, b.Ticket)
	case b.Server != "" && server == nil:
		return api.Errorf(api.CodeBadRequest, "session %s has no server %q", id, b.Server)
	case b.Ticket != "" && !r.gate.Session.UnderWay(b.Ticket):
		return api.Errorf(api.CodeRefused, "%s is not under way: it was not allowed, is over, or the engine has ended in between; ask again", b.Ticket)
	}
	if err := e.append(ctx, id, entryBox, boxEntry{Server: b.Server, Ticket: b.Ticket, Box: b.Box, Report: b.Report}); err != nil {
		return api.Errorf(api.CodeUnavailable, "recording the box: %v", err)
	}
	if b.Ticket != "" && !r.gate.Session.UnderWay(b.Ticket) {
		return api.Errorf(api.CodeRefused, "%s is over", b.Ticket)
	}
	if server != nil {
		server.SetBox(b.Box)
	}
	return nil
}
