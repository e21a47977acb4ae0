package api

import "context"

// A Grant is what a person let pass in one session until it ends: a connection, or calls
// that would be asked about.
type Grant struct {
	Session string `json:"session"`
	Host    string `json:"host,omitempty"` // of a connection: "host:port"
	ID      string `json:"id,omitempty"`   // else: of the question that was answered so
	Tool    string `json:"tool,omitempty"` // whose calls pass, "" if no tool's
	Text    string `json:"text,omitempty"` // what passes, for people, safe to print
	Used    int    `json:"used,omitempty"` // how often something has passed by ID
}

// Grants returns what people granted a session, or all open ones for "".
func (c *Client) Grants(ctx context.Context, session string) ([]Grant, error) {
	var all []Grant
	return all, c.do(ctx, methodGrants, sessionParams{Session: session}, &all)
}

// RevokeGrant takes a grant back: nothing new passes by it. ErrNotFound if there is none.
func (c *Client) RevokeGrant(ctx context.Context, g Grant) error {
	return c.do(ctx, methodGrantRevoke, g, nil)
}

func grants(r *request, h Handler, p sessionParams) (result, error) {
	all, err := h.Grants(r.ctx, r.conn.caller, p.Session)
	if all == nil {
		all = []Grant{}
	}
	return result{value: all}, err
}

func grantRevoke(r *request, h Handler, g Grant) (result, error) {
	return result{}, h.RevokeGrant(r.ctx, r.conn.caller, g)
}

// An AcceptedClause is a sentence that a person adds to a constitution.
type AcceptedClause struct {
	Proposal     string `json:"proposal"` // its id
	Text         string `json:"text"`
	Constitution string `json:"constitution"` // hex SHA-256 of its text with that sentence
}

// AcceptClause puts it on record, before it is done. ErrRefused says that this process is, as
// far as the machine can tell, one that waits for answers itself.
func (c *Client) AcceptClause(ctx context.Context, a AcceptedClause) error {
	return c.do(ctx, methodClause, a, nil)
}

func acceptClause(r *request, h Handler, a AcceptedClause) (result, error) {
	return result{}, h.AcceptClause(r.ctx, r.conn.caller, a)
}
