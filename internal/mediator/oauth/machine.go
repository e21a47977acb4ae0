package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"strings"

	"ringfence/internal/mediator"
)

// Names of grants and tokens, RFC 7523, section 8, RFC 8693, section 3, and the draft of
// the identity assertion grant.
const (
	grantJWT      = "urn:ietf:params:oauth:grant-type:jwt-bearer"
	grantExchange = "urn:ietf:params:oauth:grant-type:token-exchange"
	typeIDToken   = "urn:ietf:params:oauth:token-type:id_token"
	typeIDJAG     = "urn:ietf:params:oauth:token-type:id-jag"
)

// asMachine obtains a grant for which no person has to agree: as the client itself, with
// what says that we are a workload, or with what an organisation's own login says of the
// person.
func (c *Client) asMachine(ctx context.Context, f found, scopes []string) error {
	client, ok, err := c.configured(f)
	if err != nil {
		return err
	}
	if !ok {
		return errors.New(`"oauth" of its entry names no client`)
	}
	values := url.Values{"resource": {f.resource}}
	if len(scopes) > 0 {
		values.Set("scope", strings.Join(scopes, " "))
	}
	switch o := c.o.Server.Ringfence.OAuth; o.Grant {
	case mediator.GrantClient:
		values.Set("grant_type", "client_credentials")
	case mediator.GrantAssertion:
		signed, err := readSecret(o.Assertion)
		if err != nil {
			return err
		}
		values.Set("grant_type", grantJWT)
		values.Set("assertion", signed)
	case mediator.GrantEnterprise:
		signed, err := c.enterprise(ctx, f, scopes)
		if err != nil {
			return err
		}
		values.Set("grant_type", grantJWT)
		values.Set("assertion", signed)
	default:
		return fmt.Errorf("%q is no way to log in", clip(o.Grant))
	}
	return c.granted(ctx, f, client, values, scopes)
}

// granted obtains tokens with values, and keeps them.
func (c *Client) granted(ctx context.Context, f found, client Registered, values url.Values, scopes []string) error {
	g := Grant{
		Server: c.id, Name: c.o.Server.Name, Issuer: f.issuer, Resource: f.resource, Scopes: scopes,
		TokenAt: f.tokenAt, RevokeAt: f.revokeAt, Client: client,
	}
	var err error
	if g.Key, err = c.keyFor(f); err != nil {
		return err
	}
	doc, err := c.tokens(ctx, tokenRequest{at: f.tokenAt, issuer: f.issuer, client: client, values: values, key: g.Key})
	if err != nil {
		return fmt.Errorf("obtaining its token: %w", err)
	}
	if err := c.fill(&g, doc); err != nil {
		return err
	}
	if f.bound && g.Key == "" {
		return errors.New("it takes only tokens that are bound to a key, and its authorization server gives another")
	}
	return c.save(ctx, g)
}

// enterprise exchanges what the organisation's own login says of the person for what the
// authorization server of the resource takes (SEP-990).
func (c *Client) enterprise(ctx context.Context, f found, scopes []string) (string, error) {
	o := c.o.Server.Ringfence.OAuth
	said, err := readSecret(o.Assertion)
	if err != nil {
		return "", err
	}
	values := url.Values{
		"grant_type": {grantExchange}, "requested_token_type": {typeIDJAG}, "audience": {f.issuer}, "resource": {f.resource},
		"subject_token": {said}, "subject_token_type": {typeIDToken},
	}
	if len(scopes) > 0 {
		values.Set("scope", strings.Join(scopes, " "))
	}
	idp := Registered{ID: o.Exchange.Client, Secret: o.Exchange.Secret, Method: methodNone}
	if idp.Secret != "" {
		idp.Method = methodBasic
	}
	doc, err := c.tokens(ctx, tokenRequest{at: o.Exchange.URL, client: idp, values: values})
	if err != nil {
		return "", fmt.Errorf("exchanging what the organisation says: %w", err)
	}
	token := doc.long("access_token")
	if doc.text("issued_token_type") != typeIDJAG || !isTokenText(token) {
		return "", errors.New("the organisation's login does not give what was asked for")
	}
	return token, nil
}

// readSecret reads a file that holds one token. It is read each time: who puts it there
// replaces it before it ends.
func readSecret(path string) (string, error) {
	text, err := readFile(path)
	if err != nil {
		return "", err
	}
	token := strings.TrimSpace(string(text))
	if !isTokenText(token) {
		return "", errors.New(`what "assertion" of its entry names holds no token`)
	}
	return token, nil
}

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading what logs in: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken+1))
	if err == nil && len(text) > maxToken {
		err = errors.New("it is too long")
	}
	if err != nil {
		return nil, fmt.Errorf("reading what logs in: %w", err)
	}
	return text, nil
}
