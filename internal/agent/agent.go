// Package agent runs the loop of one agent: ask the model, run the tools it
// calls, tell it what came of them, until it has nothing more to call.
//
// It is not trusted and enforces nothing: its [Tools] stand behind the gate,
// and a refused call is a result like any other.
package agent

import (
	"context"
	"fmt"

	"ringfence/internal/llm"
)

// Tools is how the loop reaches tools.
type Tools interface {
	List(ctx context.Context) ([]llm.Tool, error)
	// Call runs one call. An error means that no tool can be reached any more;
	// a refusal or a failing tool is a Result.
	Call(ctx context.Context, c llm.Call) (llm.Result, error)
}

// An Event is one thing that happened in the loop, for whoever watches.
type Event struct {
	Message llm.Message // the model's, or the results
}

// A Loop is one agent. Watch may be nil.
type Loop struct {
	Model    llm.Model
	Tools    Tools
	MaxTurns int // 0 means 50
	Watch    func(Event)
}

const defaultTurns = 50

// Run works on task and returns the model's last words. It fails when the model
// or the tools do, or after MaxTurns answers of the model.
func (l *Loop) Run(ctx context.Context, task string) (string, error) {
	tools, err := l.Tools.List(ctx)
	if err != nil {
		return "", fmt.Errorf("listing tools: %w", err)
	}
	turns := l.MaxTurns
	if turns == 0 {
		turns = defaultTurns
	}
	history := []llm.Message{{Role: llm.RoleUser, Text: task}}
	for range turns {
		m, err := l.Model.Next(ctx, history, tools)
		if err != nil {
			return "", fmt.Errorf("asking the model: %w", err)
		}
		history = append(history, m)
		l.tell(m)
		if len(m.Calls) == 0 {
			return m.Text, nil
		}
		answer := llm.Message{Role: llm.RoleUser}
		for _, c := range m.Calls {
			r, err := l.Tools.Call(ctx, c)
			if err != nil {
				return "", fmt.Errorf("calling %s: %w", c.Tool, err)
			}
			r.CallID = c.ID
			answer.Results = append(answer.Results, r)
		}
		history = append(history, answer)
		l.tell(answer)
	}
	return "", fmt.Errorf("the agent did not come to an end in %d turns", turns)
}

func (l *Loop) tell(m llm.Message) {
	if l.Watch != nil {
		l.Watch(Event{Message: m})
	}
}
