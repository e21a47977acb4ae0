package oauth

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// have returns the grant in use, nil if there is none with a token.
func (c *Client) have() *Grant {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.grant == nil || c.grant.Access == "" {
		return nil
	}
	return c.grant
}

// keep makes g the grant in use. It is not changed afterwards.
func (c *Client) keep(g *Grant) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.grant, c.loaded, c.failed = g, true, nil
}

// load reads the grant that is stored, and makes it the one in use.
func (c *Client) load(ctx context.Context) error {
	g, ok, err := c.o.Store.Load(ctx, c.id, "")
	if err != nil {
		return fmt.Errorf("reading its token: %w", err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.loaded = true
	switch {
	case !ok:
		c.grant = nil
	default:
		c.grant = &g
	}
	return nil
}

// save stores g and makes it the grant in use.
func (c *Client) save(ctx context.Context, g Grant) error {
	if err := c.o.Store.Save(ctx, g); err != nil {
		return fmt.Errorf("keeping its token: %w", err)
	}
	c.keep(&g)
	return nil
}

// current returns the grant to use, renewed if it is about to end; nil if there is none.
func (c *Client) current(ctx context.Context) (*Grant, error) {
	c.mu.Lock()
	loaded := c.loaded
	c.mu.Unlock()
	if !loaded {
		if err := c.load(ctx); err != nil {
			c.o.Note(err.Error())
			return nil, nil // a server that wants no login needs no store, and another one says so
		}
	}
	g := c.have()
	if g == nil || !c.ending(g) {
		return g, nil
	}
	_, err := c.again(ctx, g.Access, c.early)
	if now := c.have(); now != nil && now.Access != g.Access {
		return now, nil
	}
	if err != nil && g.Expiry.After(c.o.Now()) {
		return g, nil // it is good for a while
	}
	return c.have(), err
}

// ending reports whether a token is used no more: a minute before its end, or a tenth of
// its life if that is less.
func (c *Client) ending(g *Grant) bool {
	if g.Expiry.IsZero() {
		return false
	}
	before := min(earliest, g.Expiry.Sub(g.Obtained)/10)
	return !c.o.Now().Before(g.Expiry.Add(-before))
}

// early renews a token that nobody has refused yet.
func (c *Client) early(ctx context.Context) error {
	g := c.have()
	switch {
	case g == nil:
		return c.loginHint("its login was ended")
	case g.Refresh != "":
		return c.refresh(ctx, *g)
	}
	// The server says what it wants, when it sees no token.
	over := *g
	over.Access = ""
	return c.save(ctx, over)
}

// renew gets a token in place of the one that the server did not accept, if there was one.
func (c *Client) renew(ctx context.Context, ch challenge) error {
	g := c.have()
	f, err := c.discover(ctx, ch)
	if err != nil {
		return err
	}
	if g != nil && g.Issuer == f.issuer {
		age := c.o.Now().Sub(g.Obtained)
		fresh := age >= 0 && age < freshTime
		if fresh && (g.Refresh == "" || !c.may(&c.renewals, maxRenewals, freshTime)) {
			return errors.New("it does not accept the token that was just obtained for it")
		}
		if g.Refresh != "" {
			if err := c.refresh(ctx, *g); err == nil || !errors.Is(err, ErrLogin) || fresh {
				return err
			}
		}
	}
	return c.obtain(ctx, f, ch.scopes)
}

// stepUp gets a token with more scopes.
func (c *Client) stepUp(ctx context.Context, ch challenge) error {
	g := c.have()
	if g == nil {
		return c.loginHint("its login was ended")
	}
	if c.o.Person == nil && c.o.Server.Ringfence.OAuth.Grant == "" {
		more := *g
		more.Wanted = union(g.Wanted, ch.scopes)
		more.Wanted = more.Wanted[:min(len(more.Wanted), maxScopes)]
		if err := c.save(ctx, more); err != nil {
			return err
		}
		return c.loginHint("it wants more rights than it was given")
	}
	if !c.may(&c.steps, maxStepUps, stepUpTime) {
		return errors.New("it wants more rights again and again, and is given none any more")
	}
	f, err := c.discover(ctx, ch)
	if err != nil {
		return err
	}
	var granted []string
	if g.Issuer == f.issuer {
		granted = g.Scopes
	}
	return c.obtain(ctx, f, union(granted, ch.scopes))
}

// may notes one more of times, unless there were most of them within the time before.
func (c *Client) may(times *[]time.Time, most int, within time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.o.Now()
	for len(*times) > 0 && now.Sub((*times)[0]) > within {
		*times = (*times)[1:]
	}
	if len(*times) >= most {
		return false
	}
	*times = append(*times, now)
	return true
}

// scopes are those to ask for: what the entry lists, or what the server wants, or what
// its metadata has.
func (c *Client) scopes(f found, wanted []string) ([]string, error) {
	if allowed := c.o.Server.Ringfence.OAuth.Scopes; len(allowed) > 0 {
		for _, s := range wanted {
			if !slices.Contains(allowed, s) {
				return nil, fmt.Errorf("it wants the scope %q, which its entry does not list", clip(s))
			}
		}
		return allowed, nil
	}
	if len(wanted) == 0 {
		wanted = f.scopes
	}
	// OpenID Connect: the scope that has a refresh token with it (SEP-2207).
	if slices.Contains(f.offers, "offline_access") && c.o.Server.Ringfence.OAuth.Grant == "" {
		wanted = union(wanted, []string{"offline_access"})
	}
	return wanted, nil
}

// obtain gets a grant anew: by itself where the entry says how, or else from a person.
func (c *Client) obtain(ctx context.Context, f found, wanted []string) error {
	before, _, err := c.o.Store.Load(ctx, c.id, f.issuer)
	if err != nil {
		return fmt.Errorf("reading what is stored for it: %w", err)
	}
	scopes, err := c.scopes(f, union(wanted, before.Wanted))
	if err != nil {
		return err
	}
	if c.o.Server.Ringfence.OAuth.Grant != "" {
		return c.asMachine(ctx, f, scopes)
	}
	if c.o.Person == nil {
		return c.loginHint("nobody is logged in")
	}
	return c.fromPerson(ctx, f, scopes, before.Client)
}

// refresh renews g. ErrLogin says that the grant is over.
func (c *Client) refresh(ctx context.Context, g Grant) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.Wait)
	defer cancel() // one that is broken off would lose the grant
	if c.o.Hold != nil {
		release, err := c.o.Hold(ctx, c.id)
		if err != nil {
			return fmt.Errorf("waiting for another process that renews its token: %w", err)
		}
		defer release()
		if err := c.load(ctx); err != nil {
			return err
		}
		now := c.have()
		switch {
		case now == nil:
			return c.loginHint("its login was ended")
		case now.Access != g.Access:
			return nil
		}
	}
	values := url.Values{"grant_type": {"refresh_token"}, "refresh_token": {g.Refresh}, "resource": {g.Resource}}
	doc, err := c.tokens(ctx, tokenRequest{at: g.TokenAt, issuer: g.Issuer, client: g.Client, values: values, key: g.Key})
	switch {
	case refusedWith(err, "invalid_grant", "invalid_client", "unauthorized_client"):
		over := Grant{Server: g.Server, Name: g.Name, Issuer: g.Issuer, Resource: g.Resource, TokenAt: g.TokenAt, Client: g.Client}
		if !refusedWith(err, "invalid_grant") && g.Client.Dynamic {
			over.Client = Registered{} // it has forgotten us: the next login registers again
		}
		c.o.Note("its login is over: " + err.Error())
		if err := c.save(ctx, over); err != nil {
			return err
		}
		return c.loginHint("its login is over")
	case err != nil:
		return fmt.Errorf("renewing its token: %w", err)
	}
	next := g
	if err := c.fill(&next, doc); err != nil {
		return fmt.Errorf("renewing its token: %w", err)
	}
	return c.save(ctx, next)
}

// fill takes the tokens of an answer over into g.
func (c *Client) fill(g *Grant, doc document) error {
	kind := doc.text("token_type")
	g.Access = doc.long("access_token")
	switch {
	case !isTokenText(g.Access):
		return errors.New("the authorization server answers without a token that can be used")
	case strings.EqualFold(kind, "dpop") && g.Key != "":
	case strings.EqualFold(kind, "bearer"):
		g.Key = ""
	default:
		return errors.New("the authorization server gives a token of a kind that was not asked for")
	}
	if doc.has("refresh_token") {
		if g.Refresh = doc.long("refresh_token"); !isTokenText(g.Refresh) {
			return errors.New("the authorization server gives a refresh token that can be none")
		}
	}
	g.Obtained, g.Expiry = c.o.Now(), time.Time{}
	if n := doc.number("expires_in"); n > 0 && n <= maxLifetime {
		g.Expiry = g.Obtained.Add(time.Duration(n) * time.Second)
	}
	if doc.has("scope") {
		scopes, err := readScopes(doc.long("scope"))
		if err != nil {
			return err
		}
		g.Scopes = scopes
	}
	g.Wanted = nil
	return nil
}

// isTokenText reports whether s can stand in a header, RFC 6750, section 2.1, and is not
// longer than a token may be.
func isTokenText(s string) bool {
	return s != "" && len(s) <= maxToken && strings.IndexFunc(s, func(r rune) bool { return r <= 0x20 || r > 0x7e }) < 0
}

// A tokenRequest is one to a token endpoint.
type tokenRequest struct {
	at, issuer string
	client     Registered
	values     url.Values
	key        string // that tokens are bound to, "" for none
}

// tokens sends a request to a token endpoint, and once more where it wants a number in
// the proof (RFC 9449, section 8).
func (c *Client) tokens(ctx context.Context, t tokenRequest) (document, error) {
	for again := false; ; again = true {
		r, err := c.identified(ctx, t)
		if err != nil {
			return nil, err
		}
		a, err := c.ask(ctx, r)
		if err != nil {
			return nil, err
		}
		fresh := t.key != "" && c.nonce(r.URL, a.header)
		switch {
		case a.status == http.StatusOK && a.doc != nil && !a.doc.has("error"):
			return a.doc, nil
		case fresh && !again && a.doc.text("error") == "use_dpop_nonce":
			continue
		}
		return nil, refusal(a)
	}
}

// identified is the request that t describes, with who we are.
func (c *Client) identified(ctx context.Context, t tokenRequest) (*http.Request, error) {
	values := maps.Clone(t.values)
	switch t.client.Method {
	case methodBasic:
	case methodPost:
		values.Set("client_id", t.client.ID)
		values.Set("client_secret", t.client.Secret)
	case methodKey:
		signed, err := c.assertion(t.client.ID, t.issuer)
		if err != nil {
			return nil, err
		}
		values.Set("client_assertion_type", "urn:ietf:params:oauth:client-assertion-type:jwt-bearer")
		values.Set("client_assertion", signed)
	default:
		values.Set("client_id", t.client.ID)
	}
	r, err := c.form(ctx, t.at, values)
	if err != nil {
		return nil, err
	}
	if t.client.Method == methodBasic {
		r.SetBasicAuth(url.QueryEscape(t.client.ID), url.QueryEscape(t.client.Secret))
	}
	if t.key != "" {
		if err := c.prove(r, t.key, ""); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// revoke asks the authorization server to end the grant, RFC 7009.
func (c *Client) revoke(ctx context.Context, g Grant) error {
	values := url.Values{"token": {g.Refresh}, "token_type_hint": {"refresh_token"}}
	r, err := c.identified(ctx, tokenRequest{at: g.RevokeAt, issuer: g.Issuer, client: g.Client, values: values})
	if err != nil {
		return err
	}
	a, err := c.ask(ctx, r)
	if err == nil && a.status/100 != 2 {
		err = refusal(a)
	}
	return err
}
