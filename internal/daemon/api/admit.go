package api

import "context"

// An AdmitRequest says that a person looked at what is about to be used, and wants it.
// The body that goes with it is the list of tools that they were shown, {"tools":[…]},
// if Server is set.
type AdmitRequest struct {
	Server string `json:"server,omitempty"` // whose tools are approved as they are in the list
	// Program is what the program of Server is known by, a line for each file.
	Program []string `json:"program,omitempty"`
	File    string   `json:"file,omitempty"` // a list of servers, absolute
	Sum     string   `json:"sum,omitempty"`  // SHA-256 of File as it was shown, in hex
}

// Admit puts on record that the person whose process this is admits what r says, and
// does it. ErrRefused if this process, or its terminal, is that of an agent's client.
func (c *Client) Admit(ctx context.Context, r AdmitRequest, tools []byte) error {
	l, err := c.connected(ctx)
	if err != nil {
		return err
	}
	_, err = l.call(ctx, func(id uint64) ([]byte, error) { return encodeRequest(id, methodAdmit, r) }, tools, nil)
	return err
}

func admitServer(r *request, h Handler, p AdmitRequest) (result, error) {
	return result{}, h.Admit(r.ctx, r.conn.caller, p, r.body)
}
