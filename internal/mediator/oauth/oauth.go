// Package oauth logs in to MCP servers that are reached over HTTP: it finds out which
// authorization server a server trusts, registers, has a person agree, and keeps the
// tokens fresh. It is the client's side of OAuth 2.1 as MCP has it (revision 2025-11-25
// and later, with what 2025-03-26 had in place of discovery), with RFC 7591, 7636, 8252,
// 8414, 8707, 9207, 9449, 9728 and metadata documents of clients.
//
// It is not an authorization server, opens no browser, and sends no request of MCP. It
// keeps nothing on disk: a [TokenStore] does. It does not dial: an [Options.Carrier]
// does.
//
// Invariants:
//
//	O1  A token is shown to the origin of the server it was obtained for, and to nobody
//	    else. A refresh token, a code and a secret of a client go to the authorization
//	    server that they came from, and to nobody else.
//	O2  Nothing that came from a client of ours is passed on: tokens are those of this package.
//	O3  No token, code, secret, verifier or state is in an error, in a note or in a URL, but
//	    for the state and the challenge in the URL that a person opens.
//	O4  Who answers is who was asked: the resource that metadata describes is the server,
//	    its issuer is the one that was looked for, and an answer of the person's browser has
//	    our state and, where the issuer promises it, its name.
//	O5  Every request goes to https, or to the loopback address if the server is there too;
//	    no redirect is followed; every body and every wait has a bound.
//	O6  Tokens are obtained by one at a time, however many need them, and not again and
//	    again from a server that accepts none.
package oauth

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/mediator"
)

// Bounds that no option changes.
const (
	maxBody     = 256 << 10        // of an answer of an authorization server, in bytes
	maxToken    = 16 << 10         // of a token, in bytes
	maxText     = 2 << 10          // of any other text that metadata has, in bytes
	maxItems    = 256              // of a list in metadata
	maxServers  = 16               // authorization servers of one resource
	maxScopes   = 100              // of one grant
	exchange    = 30 * time.Second // for one request, unless an option says otherwise
	personTime  = 10 * time.Minute // for a person to agree
	earliest    = time.Minute      // before its end a token is not used any more
	freshTime   = 10 * time.Second // within which a token that is refused was just obtained
	maxRenewals = 2                // of tokens that were just obtained, within freshTime
	quietTime   = 30 * time.Second // after a failure, nothing is tried again
	maxStepUps  = 2                // within stepUpTime
	stepUpTime  = 10 * time.Minute //
	maxLifetime = 366 * 24 * 3600  // of a token, in seconds
	clockLead   = 60 * time.Second // validity of what we sign
	maxAnswers  = 64               // requests to the place of a redirect
)

// Options say which server is logged in to, and how.
type Options struct {
	Server mediator.Server
	// Carrier carries requests, to authorization servers too.
	Carrier http.RoundTripper
	// Store keeps grants; nil is the memory of this process.
	Store TokenStore
	// Person shows a person the URL at which they agree. It may wait, and need not: the
	// answer comes to this process. nil says that nobody is there, and then a server that
	// wants a login is an error.
	Person func(ctx context.Context, at string) error
	// Hold is called before a stored token is renewed, so that one process does it at a
	// time; release ends that. nil is nothing.
	Hold func(ctx context.Context, id string) (release func(), err error)
	// Note tells people what happened; nil tells nobody.
	Note func(text string)
	// Wait bounds one request, its answer and what decides about it included; 0 is 30 seconds.
	Wait time.Duration
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// A Client logs in to one server. Its methods may be called at the same time.
type Client struct {
	o      Options
	server *url.URL
	id     string
	http   http.Client
	turn   chan struct{} // held by who obtains a token

	mu       sync.Mutex
	loaded   bool
	grant    *Grant // nil if there is none
	nonces   map[string]string
	steps    []time.Time // at which more rights were asked for
	renewals []time.Time // of tokens that had just been obtained
	failed   error       // of the last try
	until    time.Time   // that is answered again
}

// ErrLogin marks that a person has to log in.
var ErrLogin = errors.New("it wants a login")

// New returns a Client. It sends nothing.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.Server.URL)
	if err != nil || u.Host == "" || u.User != nil {
		return nil, errors.New("its URL is not one that can be logged in to")
	}
	if o.Store == nil {
		o.Store = NewMemory()
	}
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Wait == 0 {
		o.Wait = exchange
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	c := &Client{o: o, server: u, id: ServerID(o.Server), turn: make(chan struct{}, 1), nonces: map[string]string{}}
	c.http = http.Client{Transport: o.Carrier, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return c, nil
}

// Sign puts the token into a request to the server, renewed if it is about to end. With
// no grant the request stays as it is.
func (c *Client) Sign(r *http.Request) error {
	if !sameOrigin(r.URL, c.server) {
		return errors.New("a token of it is not sent to another place")
	}
	g, err := c.current(r.Context())
	if err != nil || g == nil {
		return err
	}
	return c.show(r, g)
}

// show puts the token of g into r.
func (c *Client) show(r *http.Request, g *Grant) error {
	if g.Key == "" {
		r.Header.Set("Authorization", "Bearer "+g.Access)
		return nil
	}
	r.Header.Set("Authorization", "DPoP "+g.Access)
	return c.prove(r, g.Key, g.Access)
}

// Seen takes in what an answer of the server says about the next request.
func (c *Client) Seen(resp *http.Response) {
	if resp.Request != nil {
		c.nonce(resp.Request.URL, resp.Header)
	}
}

// Refused deals with an answer 401 or 403 to a request that [Client.Sign] has seen, and
// reports whether the same request may be sent once more, signed anew. Nothing of the
// body is read. An error is fit for an agent.
func (c *Client) Refused(r *http.Request, resp *http.Response) (again bool, err error) {
	if !sameOrigin(r.URL, c.server) {
		return false, nil
	}
	ch, err := readChallenge(resp.Header.Values("Www-Authenticate"))
	if err != nil {
		return false, err
	}
	_, used, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch {
	case resp.StatusCode == http.StatusUnauthorized && ch.code == "use_dpop_nonce" && used != "":
		return c.nonce(r.URL, resp.Header), nil
	case resp.StatusCode == http.StatusUnauthorized:
		return c.again(r.Context(), used, func(ctx context.Context) error { return c.renew(ctx, ch) })
	case resp.StatusCode == http.StatusForbidden && ch.code == "insufficient_scope" && used != "":
		return c.again(r.Context(), used, func(ctx context.Context) error { return c.stepUp(ctx, ch) })
	}
	return false, nil
}

// again has obtain get a token in place of used, unless somebody else has.
func (c *Client) again(ctx context.Context, used string, obtain func(context.Context) error) (bool, error) {
	release, err := c.take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	if err := c.load(ctx); err != nil { // another process may have got one
		return false, err
	}
	if g := c.have(); g != nil && g.Access != used {
		return true, nil
	}
	c.mu.Lock()
	failed := c.failed
	if !c.o.Now().Before(c.until) {
		failed = nil
	}
	c.mu.Unlock()
	if failed != nil {
		return false, failed
	}
	if err := obtain(ctx); err != nil {
		c.mu.Lock()
		c.failed, c.until = err, c.o.Now().Add(quietTime)
		c.mu.Unlock()
		return false, err
	}
	return true, nil
}

// take waits for the turn to obtain a token.
func (c *Client) take(ctx context.Context) (release func(), err error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, errors.New("the wait for its login was ended by us")
	}
	return func() { <-c.turn }, nil
}

// Login obtains a grant, whatever is stored. The server is asked first what it wants.
func (c *Client) Login(ctx context.Context) (Grant, error) {
	ch, _, err := c.probe(ctx)
	if err != nil {
		return Grant{}, err
	}
	release, err := c.take(ctx)
	if err != nil {
		return Grant{}, err
	}
	defer release()
	f, err := c.discover(ctx, ch)
	if err != nil {
		return Grant{}, err
	}
	if err := c.obtain(ctx, f, ch.scopes); err != nil {
		return Grant{}, err
	}
	return *c.have(), nil
}

// Wanted reports whether the server wants a login, and there is no token for it.
func (c *Client) Wanted(ctx context.Context) (bool, error) {
	if err := c.load(ctx); err != nil || c.have() != nil {
		return false, err
	}
	_, wanted, err := c.probe(ctx)
	return wanted, err
}

// probe sends the server a request without a token, of which it does nothing, and returns
// how it refuses that, if it does.
func (c *Client) probe(ctx context.Context) (ch challenge, refused bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.server.String(), strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`))
	if err != nil {
		return ch, false, errors.New("its URL is not one")
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range c.o.Server.Headers {
		r.Header.Set(name, value)
	}
	a, err := c.ask(ctx, r)
	if err != nil || a.status != http.StatusUnauthorized {
		return ch, false, err
	}
	ch, err = readChallenge(a.header.Values("Www-Authenticate"))
	return ch, true, err
}

// Logout forgets everything that is stored for the server, and asks the authorization
// server to end the grant, if it takes such requests. had is whether there was anything.
func (c *Client) Logout(ctx context.Context) (had bool, err error) {
	release, err := c.take(ctx)
	if err != nil {
		return false, err
	}
	defer release()
	g, had, err := c.o.Store.Load(ctx, c.id, "")
	if err != nil {
		return false, fmt.Errorf("reading what is stored for it: %w", err)
	}
	if had && g.Refresh != "" && g.RevokeAt != "" {
		if err := c.revoke(ctx, g); err != nil {
			c.o.Note("its authorization server was not told: " + err.Error())
		}
	}
	c.keep(nil)
	if err := c.o.Store.Delete(ctx, c.id, ""); err != nil {
		return had, fmt.Errorf("removing what is stored for it: %w", err)
	}
	return had, nil
}

// loginHint is what an agent and a person read when nobody is there.
func (c *Client) loginHint(why string) error {
	return fmt.Errorf("%w: %s; a person can type: ringfence servers login %s", ErrLogin, why, c.o.Server.Name)
}

// leastEcho is how long a token must be to be looked for in what a server sends.
const leastEcho = 8

// Holds reports whether a JSON text has the token in it, also where some of its letters
// are written as escapes.
func (c *Client) Holds(raw []byte) bool {
	g := c.have()
	if g == nil || len(g.Access) < leastEcho {
		return false
	}
	token := []byte(g.Access)
	if bytes.Contains(raw, token) {
		return true
	}
	return bytes.IndexByte(raw, '\\') >= 0 && bytes.Contains(unescaped(raw), token)
}

// unescaped is raw with the escapes of visible ASCII, as JSON has them, undone.
func unescaped(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' || i+1 == len(raw) {
			out = append(out, raw[i])
			continue
		}
		i++
		if raw[i] != 'u' || i+4 >= len(raw) {
			out = append(out, raw[i])
			continue
		}
		n, err := strconv.ParseUint(string(raw[i+1:i+5]), 16, 16)
		if err != nil || n > 0x7e {
			out = append(out, '?')
			continue
		}
		out = append(out, byte(n))
		i += 4
	}
	return out
}
