package api

import "context"

// A MintRequest asks for a certificate that boxes trust.
type MintRequest struct {
	Host string `json:"host"` // canonical name
	Key  []byte `json:"key"`  // public, of P-256: PKIX, DER
}

type mintParams struct {
	Session string `json:"session"`
	MintRequest
}

// certificates are DER, a leaf first.
type certificates struct {
	Chain [][]byte `json:"chain"`
}

// Mint has the authority of the installation sign a certificate for host and the public
// key (P-256; PKIX, DER), and returns it and that of the authority, DER. ErrRefused if
// the session had no connection to host allowed.
func (s *Session) Mint(ctx context.Context, host string, public []byte) ([][]byte, error) {
	l, id, err := s.owner(ctx)
	if err != nil {
		return nil, err
	}
	var c certificates
	err = do(ctx, l, methodMint, mintParams{id, MintRequest{Host: host, Key: public}}, &c)
	return c.Chain, err
}

// Authority returns the certificate of the installation's authority, which boxes trust,
// PEM.
func (c *Client) Authority(ctx context.Context) ([]byte, error) {
	l, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	got, err := l.call(ctx, func(id uint64) ([]byte, error) { return encodeRequest(id, methodAuthority, nothing{}) }, nil, nil)
	return got.body, err
}

func mint(r *request, h Handler, p mintParams) (result, error) {
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	chain, err := h.Mint(r.ctx, r.conn.caller, p.Session, p.MintRequest)
	return result{value: certificates{Chain: chain}}, err
}

func authority(r *request, h Handler, _ nothing) (result, error) {
	cert, err := h.Authority(r.ctx, r.conn.caller)
	return result{body: cert}, err
}
