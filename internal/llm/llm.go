// Package llm is what we ask of a language model: one turn of a conversation,
// with tools it may call.
//
// It is vocabulary: providers live in its subpackages, and nothing here trusts
// what a model says.
package llm

import (
	"context"
	"encoding/json"
)

// A Tool is one tool that the model may call.
type Tool struct {
	Name        string
	Description string
	Schema      json.RawMessage // JSON schema of its arguments
}

// A Call is a tool call that the model asks for.
type Call struct {
	ID        string // the model's own, to match results
	Tool      string
	Arguments json.RawMessage
}

// A Result is what came of a call.
type Result struct {
	CallID string
	Text   string
	Failed bool // the tool reported an error, or the call was refused
}

// A Message is one entry of a conversation. The user and the model have Text;
// a message of the model may have Calls; a message with Results answers them.
type Message struct {
	Role    Role
	Text    string
	Calls   []Call
	Results []Result
}

// A Role says who speaks.
type Role string

// The roles.
const (
	RoleUser  Role = "user"
	RoleModel Role = "model"
)

// A Model answers a conversation with its next message.
type Model interface {
	// Next returns the model's next message, of RoleModel. A message without
	// calls ends the turn.
	Next(ctx context.Context, history []Message, tools []Tool) (Message, error)
}
