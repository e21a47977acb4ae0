// Package llmtest is a model that follows a script: for demonstrations and
// tests, where what the model does must be known and no network is there.
//
// It is not a simulation of a model: it says its lines whatever it is told.
package llmtest

import (
	"context"
	"fmt"

	"ringfence/internal/llm"
)

// A Script is an [llm.Model] that answers with one message after the other. A
// Script is used by one conversation at a time.
type Script struct {
	Lines []llm.Message
	next  int
}

// Next returns the next line. It is an error to ask for more than there are.
func (s *Script) Next(ctx context.Context, _ []llm.Message, _ []llm.Tool) (llm.Message, error) {
	if err := ctx.Err(); err != nil {
		return llm.Message{}, fmt.Errorf("asking the script: %w", err)
	}
	if s.next >= len(s.Lines) {
		return llm.Message{}, fmt.Errorf("asking the script: it has %d lines and no more", len(s.Lines))
	}
	m := s.Lines[s.next]
	s.next++
	m.Role = llm.RoleModel
	for i := range m.Calls {
		if m.Calls[i].ID == "" {
			m.Calls[i].ID = fmt.Sprintf("call-%d-%d", s.next, i+1)
		}
	}
	return m, nil
}
