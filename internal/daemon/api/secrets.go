package api

import (
	"context"
	"fmt"
	"time"

	"ringfence/internal/act/loan"
)

// Secrets keeps what the engine lends, and tokens.
type Secrets interface {
	// SetSecret keeps a secret, in the place of one of that name.
	SetSecret(ctx context.Context, c Caller, s SecretInfo, value []byte) error
	ListSecrets(ctx context.Context, c Caller) (SecretList, error)
	RemoveSecret(ctx context.Context, c Caller, name string) error
	// Sentinels takes what the client has for this session alone, and returns what
	// stands for each secret in it. It can be called again, and then returns the same
	// for each secret of before. have is what an engine before this one gave out, by
	// the name of the secret: boxes have it.
	Sentinels(ctx context.Context, c Caller, session string, own []loan.Own, have map[string]string) ([]loan.Sentinel, error)
	// LoadToken returns what SaveToken kept under key; ErrNotFound if there is nothing.
	LoadToken(ctx context.Context, c Caller, key string) ([]byte, error)
	SaveToken(ctx context.Context, c Caller, key string, value []byte) error
	DeleteToken(ctx context.Context, c Caller, key string) error
}

// A SecretInfo is what is known of a secret without its value.
type SecretInfo struct {
	Name     string         `json:"name"`
	Env      []string       `json:"env,omitempty"` // variables in which boxes see its sentinel
	Bindings []loan.Binding `json:"bindings,omitempty"`
	Set      time.Time      `json:"set,omitzero"`
	Used     time.Time      `json:"used,omitzero"` // when it was last lent
}

// A SecretList is all secrets of the installation.
type SecretList struct {
	Secrets    []SecretInfo `json:"secrets"`
	Protection string       `json:"protection"` // what keeps the values from others, for people
}

type (
	nameParams struct {
		Name string `json:"name"`
	}
	ownParams struct {
		Session string     `json:"session"`
		Own     []loan.Own `json:"own,omitempty"`

		Have map[string]string `json:"have,omitempty"`
	}
)

// SetSecret keeps value as the secret of that name, 8 bytes to 16 KiB. An error does not
// tell it.
func (c *Client) SetSecret(ctx context.Context, s SecretInfo, value []byte) error {
	_, err := c.bodied(ctx, methodSecretSet, s, value)
	return err
}

// Secrets returns the secrets of the installation, without their values.
func (c *Client) Secrets(ctx context.Context) (SecretList, error) {
	var l SecretList
	return l, c.do(ctx, methodSecretList, nothing{}, &l)
}

// RemoveSecret forgets a secret; ErrNotFound if there is none of that name.
func (c *Client) RemoveSecret(ctx context.Context, name string) error {
	return c.do(ctx, methodSecretRemove, nameParams{Name: name}, nil)
}

// TokenLoad returns what TokenSave kept under key; ErrNotFound if there is nothing.
func (c *Client) TokenLoad(ctx context.Context, key string) ([]byte, error) {
	return c.bodied(ctx, methodTokenLoad, nameParams{Name: key}, nil)
}

// TokenSave keeps value, at most 64 KiB, under key, 1 to 256 bytes, encrypted. When it
// returns nil, value is on disk.
func (c *Client) TokenSave(ctx context.Context, key string, value []byte) error {
	_, err := c.bodied(ctx, methodTokenSave, nameParams{Name: key}, value)
	return err
}

// TokenDelete forgets what was kept under key, if anything.
func (c *Client) TokenDelete(ctx context.Context, key string) error {
	return c.do(ctx, methodTokenDelete, nameParams{Name: key}, nil)
}

// bodied sends one request with a body, and returns that of the reply.
func (c *Client) bodied(ctx context.Context, method string, params any, body []byte) ([]byte, error) {
	l, err := c.connected(ctx)
	if err != nil {
		return nil, err
	}
	got, err := l.call(ctx, func(id uint64) ([]byte, error) { return encodeRequest(id, method, params) }, body, nil)
	return got.body, err
}

// Sentinels hands own to the engine, for this session alone, and returns what stands for
// each secret in its boxes. What it handed in it hands to a later engine too.
func (s *Session) Sentinels(ctx context.Context, own []loan.Own) ([]loan.Sentinel, error) {
	l, id, err := s.owner(ctx)
	if err != nil {
		return nil, fmt.Errorf("asking for sentinels: %w", err)
	}
	var out []loan.Sentinel
	if err := do(ctx, l, methodSentinels, ownParams{Session: id, Own: own}, &out); err != nil {
		return nil, fmt.Errorf("asking for sentinels: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.own, s.lent = own, map[string]string{}
	for _, one := range out {
		s.lent[one.Name] = one.Text
	}
	return out, nil
}

// lend tells an engine that has taken the session over what is its own. s.mu is held.
func (s *Session) lend(ctx context.Context, l *link, id string) error {
	if s.lent == nil {
		return nil
	}
	var out []loan.Sentinel // the same as before
	if err := do(ctx, l, methodSentinels, ownParams{id, s.own, s.lent}, &out); err != nil {
		return fmt.Errorf("handing in the secrets of this session again: %w", err)
	}
	return nil
}

func secretSet(r *request, h Handler, p SecretInfo) (result, error) {
	return result{}, h.SetSecret(r.ctx, r.conn.caller, p, r.body)
}

func secretList(r *request, h Handler, _ nothing) (result, error) {
	return valued(h.ListSecrets(r.ctx, r.conn.caller))
}

func secretRemove(r *request, h Handler, p nameParams) (result, error) {
	return result{}, h.RemoveSecret(r.ctx, r.conn.caller, p.Name)
}

func sentinels(r *request, h Handler, p ownParams) (result, error) {
	if err := r.owned(p.Session); err != nil {
		return result{}, err
	}
	out, err := h.Sentinels(r.ctx, r.conn.caller, p.Session, p.Own, p.Have)
	if out == nil && err == nil {
		out = []loan.Sentinel{}
	}
	return valued(out, err)
}

func tokenLoad(r *request, h Handler, p nameParams) (result, error) {
	value, err := h.LoadToken(r.ctx, r.conn.caller, p.Name)
	return result{body: value}, err
}

func tokenSave(r *request, h Handler, p nameParams) (result, error) {
	return result{}, h.SaveToken(r.ctx, r.conn.caller, p.Name, r.body)
}

func tokenDelete(r *request, h Handler, p nameParams) (result, error) {
	return result{}, h.DeleteToken(r.ctx, r.conn.caller, p.Name)
}
