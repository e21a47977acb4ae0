package daemon

import (
	"context"
	"fmt"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
)

// resumed is what the record says, at the start of a session, of the one that it goes on
// with.
type resumed struct {
	Resumes string      `json:"resumes,omitempty"`
	Labels  []act.Label `json:"labels,omitempty"` // that it had
}

// resumed gives made what the session before it had touched: an agent that goes on knows
// what it read. The zero name is no session.
func (e *Engine) resumed(ctx context.Context, made *run, start *startEntry, before string) error {
	if before == "" {
		return nil
	}
	p, err := e.past(ctx, before)
	if err != nil {
		return fmt.Errorf("reading the session to go on with: %w", err)
	}
	if !p.started {
		return api.Errorf(api.CodeBadRequest, "there is no session %q to go on with", before)
	}
	made.gate.Session.Add(p.labels...)
	start.Resumes, start.Labels = before, made.gate.Session.Labels()
	return nil
}
