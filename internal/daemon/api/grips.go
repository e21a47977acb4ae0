package api

import "context"

// A GripsRequest asks how a policy is held for a program that is to be started.
type GripsRequest struct {
	// Session is the one that it starts in. Without one nothing is recorded, and the next
	// four say what it would be opened with.
	Session   string `json:"session,omitempty"`
	Principal string `json:"principal,omitempty"`
	Workspace string `json:"workspace,omitempty"`
	PolicyDir string `json:"policy_dir,omitempty"`
	Never     bool   `json:"never,omitempty"` // nobody can be asked

	Argv  []string `json:"argv"`
	Dir   string   `json:"dir,omitempty"`
	Read  []string `json:"read,omitempty"`  // trees that it is to have, and read
	Write []string `json:"write,omitempty"` // and change
	Hide  []string `json:"hide,omitempty"`

	Boxed     bool `json:"boxed,omitempty"`      // its box hides, and holds, what it must
	Names     bool `json:"names,omitempty"`      // the box holds names: of what is not there yet, and on the way to it
	Network   bool `json:"network,omitempty"`    // it has a way out
	Hooks     bool `json:"hooks,omitempty"`      // its hooks ask
	ToolsOnly bool `json:"tools_only,omitempty"` // it has no tools of its own
	Review    bool `json:"review,omitempty"`     // changes of the workspace wait for a person
}

// Grips is how a policy is held for one program.
type Grips struct {
	Verdict string    `json:"verdict"`          // that its start comes to
	Reason  string    `json:"reason,omitempty"` // of a denial, and of a question
	Read    []string  `json:"read,omitempty"`   // trees that its box is to have, and read
	Write   []string  `json:"write,omitempty"`  // and change
	Absent  []string  `json:"absent,omitempty"` // of these, trees that it is not to have
	Fixed   []string  `json:"fixed,omitempty"`  // or not to change
	Notes   []string  `json:"notes,omitempty"`  // for the person
	Clauses []Gripped `json:"clauses"`          // the granting layer first
}

// A Gripped is a clause with what holds it. Package policy has the words.
type Gripped struct {
	Clause   string `json:"clause"`
	Line     int    `json:"line,omitempty"`
	Text     string `json:"text"`
	Modality string `json:"modality,omitempty"`
	Hold     string `json:"hold"`
	Changes  bool   `json:"changes,omitempty"` // it is about changing files
	Grips    []Grip `json:"grips,omitempty"`
}

// A Grip is what one level does for a clause.
type Grip struct {
	Level string `json:"level"`
	Hold  string `json:"hold"`
	By    string `json:"by"`
}

// Grips asks how a policy is held. For a session it is put on record, and the session must
// be one of this client.
func (c *Client) Grips(ctx context.Context, r GripsRequest) (Grips, error) {
	var g Grips
	return g, c.do(ctx, methodGrips, r, &g)
}

func grips(r *request, h Handler, p GripsRequest) (result, error) {
	if p.Session != "" {
		if err := r.owned(p.Session); err != nil {
			return result{}, err
		}
	}
	return valued(h.Grips(r.ctx, r.conn.caller, p))
}
