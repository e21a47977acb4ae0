package oauth

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
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

// Records keep bytes under names. Load returns nil if there is nothing.
type Records interface {
	Load(ctx context.Context, name string) ([]byte, error)
	Save(ctx context.Context, name string, value []byte) error
	Delete(ctx context.Context, name string) error
}

// Bounds of what is kept of one server.
const (
	maxIssuers = 4
	maxRecord  = 64 << 10
)

// Kept returns a TokenStore over r: one record for each server. Of issuers but the last
// one only the client is kept, and of issuers before the last few nothing.
func Kept(r Records) TokenStore { return kept{r} }

type kept struct{ r Records }

// recordName is the name of a server's record.
func recordName(server string) string { return "oauth/" + server }

func (k kept) all(ctx context.Context, server string) ([]Grant, error) {
	raw, err := k.r.Load(ctx, recordName(server))
	if err != nil || raw == nil {
		return nil, err
	}
	var all []Grant
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, errors.New("what is kept for it cannot be read") // err may quote it
	}
	return all, nil
}

// Load implements [TokenStore].
func (k kept) Load(ctx context.Context, server, issuer string) (Grant, bool, error) {
	all, err := k.all(ctx, server)
	if err != nil {
		return Grant{}, false, err
	}
	for _, g := range slices.Backward(all) {
		if issuer == "" || g.Issuer == issuer {
			return g, true, nil
		}
	}
	return Grant{}, false, nil
}

// Save implements [TokenStore].
func (k kept) Save(ctx context.Context, g Grant) error {
	all, err := k.all(ctx, g.Server)
	if err != nil {
		return err
	}
	all = without(all, g.Issuer)
	for i, old := range all {
		all[i] = Grant{Server: old.Server, Name: old.Name, Issuer: old.Issuer, Client: old.Client}
	}
	all = append(all, g)
	for len(all) > 0 {
		raw, err := json.Marshal(all)
		if err != nil {
			return fmt.Errorf("writing a login: %w", err)
		}
		if len(all) <= maxIssuers && len(raw) <= maxRecord {
			return k.r.Save(ctx, recordName(g.Server), raw)
		}
		all = all[1:]
	}
	return errors.New("its tokens are too long to be kept")
}

// Delete implements [TokenStore].
func (k kept) Delete(ctx context.Context, server, issuer string) error {
	if issuer == "" {
		return k.r.Delete(ctx, recordName(server))
	}
	all, err := k.all(ctx, server)
	if err != nil {
		return err
	}
	rest := without(all, issuer)
	if len(rest) == 0 {
		return k.r.Delete(ctx, recordName(server))
	}
	raw, err := json.Marshal(rest)
	if err != nil {
		return fmt.Errorf("writing a login: %w", err)
	}
	return k.r.Save(ctx, recordName(server), raw)
}

func without(all []Grant, issuer string) []Grant {
	var rest []Grant
	for _, g := range all {
		if g.Issuer != issuer {
			rest = append(rest, g)
		}
	}
	return rest
}

// NewMemory returns a TokenStore that ends with the process.
func NewMemory() TokenStore { return Kept(&memory{all: map[string][]byte{}}) }

type memory struct {
	mu  sync.Mutex
	all map[string][]byte
}

// Load implements [Records].
func (m *memory) Load(_ context.Context, name string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all[name], nil
}

// Save implements [Records].
func (m *memory) Save(_ context.Context, name string, value []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.all[name] = value
	return nil
}

// Delete implements [Records].
func (m *memory) Delete(_ context.Context, name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.all, name)
	return nil
}
