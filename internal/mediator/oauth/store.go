package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"sync"
	"time"

	"ringfence/internal/mediator"
)

// A Grant is what was obtained for one server from one authorization server: tokens, and
// who we are there. It is a secret as a whole.
type Grant struct {
	Server   string `json:"server"` // [ServerID]
	Name     string `json:"name"`   // of the server, for people
	Issuer   string `json:"issuer"`
	Resource string `json:"resource"` // that the token is for, RFC 8707

	Access   string    `json:"access,omitempty"` // "" if the grant is over and only the client is left
	Refresh  string    `json:"refresh,omitempty"`
	Expiry   time.Time `json:"expiry,omitzero"` // of Access; zero if the server did not say
	Obtained time.Time `json:"obtained,omitzero"`
	Scopes   []string  `json:"scopes,omitempty"`
	// Wanted are scopes that the server asked for when nobody was there to agree.
	Wanted []string `json:"wanted,omitempty"`
	// Key is the key that the tokens are bound to, PKCS #8 in base64; "" if they are not.
	Key string `json:"key,omitempty"`

	TokenAt  string     `json:"token_at"` // where Refresh may be used
	RevokeAt string     `json:"revoke_at,omitempty"`
	Client   Registered `json:"client"`
}

// A Registered is who we are to an authorization server.
type Registered struct {
	ID       string `json:"id"`
	Secret   string `json:"secret,omitempty"`
	Method   string `json:"method"`             // of RFC 7591, token_endpoint_auth_method
	Redirect string `json:"redirect,omitempty"` // where answers come back to
	// Dynamic says that the authorization server gave us the ID, and may have forgotten it.
	Dynamic bool      `json:"dynamic,omitempty"`
	Ends    time.Time `json:"ends,omitzero"` // of Secret
}

// A TokenStore keeps grants, one for each server and issuer. It is used by one caller at
// a time for one server.
type TokenStore interface {
	// Load returns the grant of a server from an issuer, or with issuer "" the one that
	// was saved last.
	Load(ctx context.Context, server, issuer string) (Grant, bool, error)
	// Save replaces the grant of its server and issuer.
	Save(ctx context.Context, g Grant) error
	// Delete removes that of an issuer, or with issuer "" all of the server. That there is
	// none is no error.
	Delete(ctx context.Context, server, issuer string) error
}

// ServerID names a server in a store: two entries of one name with other URLs are two
// servers. It tells nothing of the URL, which may hold a secret.
func ServerID(s mediator.Server) string {
	sum := sha256.Sum256([]byte(s.Name + "\x00" + s.URL))
	return s.Name + "-" + hex.EncodeToString(sum[:8])
}

// Memory is a TokenStore that ends with the process.
type Memory struct {
	mu     sync.Mutex
	grants map[string][]Grant // by server, the last one saved at the end
}

// NewMemory returns an empty Memory.
func NewMemory() *Memory { return &Memory{grants: map[string][]Grant{}} }

// Load implements [TokenStore].
func (m *Memory) Load(_ context.Context, server, issuer string) (Grant, bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	all := m.grants[server]
	for i := len(all) - 1; i >= 0; i-- {
		if issuer == "" || all[i].Issuer == issuer {
			return all[i], true, nil
		}
	}
	return Grant{}, false, nil
}

// Save implements [TokenStore].
func (m *Memory) Save(_ context.Context, g Grant) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.grants[g.Server] = append(without(m.grants[g.Server], g.Issuer), g)
	return nil
}

// Delete implements [TokenStore].
func (m *Memory) Delete(_ context.Context, server, issuer string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if issuer == "" {
		delete(m.grants, server)
		return nil
	}
	m.grants[server] = without(m.grants[server], issuer)
	return nil
}

func without(all []Grant, issuer string) []Grant {
	var kept []Grant
	for _, g := range all {
		if g.Issuer != issuer {
			kept = append(kept, g)
		}
	}
	return kept
}
