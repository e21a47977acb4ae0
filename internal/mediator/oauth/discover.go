package oauth

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/oauthex"
)

// A found is what is known of how to log in.
type found struct {
	resource string // RFC 8707
	scopes   []string
	bound    bool // the resource takes only tokens that are bound to a key

	issuer      string // as it calls itself
	authorizeAt *url.URL
	tokenAt     string
	registerAt  string // "" if it registers nobody
	revokeAt    string
	methods     []string // of clients at the token endpoint, nil if it does not say
	grants      []string // nil if it does not say
	offers      []string // scopes_supported
	namesItself bool     // in its answers, RFC 9207
	documents   bool     // that describe clients
	proofs      []string // algorithms of RFC 9449
}

// discover finds the authorization server of the server.
func (c *Client) discover(ctx context.Context, ch challenge) (found, error) {
	if c.o.Server.Ringfence.Socket != "" {
		return found{}, errors.New("it is reached by a Unix socket, and who would log in to it there is not known")
	}
	f, issuers, err := c.resource(ctx, ch)
	if err != nil {
		return f, fmt.Errorf("finding out who gives tokens for it: %w", err)
	}
	issuer := issuers[0]
	if want := c.o.Server.Ringfence.OAuth.Issuer; want != "" {
		i := slices.IndexFunc(issuers, func(s string) bool { return sameIssuer(s, want) })
		if i < 0 {
			return f, fmt.Errorf("it takes tokens of %q, and its entry names %q as the issuer", clip(issuer), clip(want))
		}
		issuer = issuers[i]
	}
	if err := c.authServer(ctx, &f, issuer); err != nil {
		return f, fmt.Errorf("looking at the authorization server %q: %w", clip(issuer), err)
	}
	return f, nil
}

const wellKnownResource = "/.well-known/oauth-protected-resource"

// resource finds the metadata of the server: where its answer says, below the path of
// the server, and at the root. Without any, the server's own origin is its authorization
// server, as in revision 2025-03-26.
func (c *Client) resource(ctx context.Context, ch challenge) (f found, issuers []string, err error) {
	type candidate struct {
		at   *url.URL
		root bool
	}
	var all []candidate
	base := &url.URL{Scheme: c.server.Scheme, Host: c.server.Host}
	root := base.JoinPath(wellKnownResource)
	if ch.metadata != "" {
		at, err := c.place(ch.metadata)
		switch {
		case err != nil:
			return f, nil, err
		case !sameOrigin(at, c.server):
			return f, nil, fmt.Errorf("it says that it is described at %q, which is another host than its own", clip(origin(at)))
		}
		all = append(all, candidate{at, at.String() == root.String()})
	}
	if path := strings.Trim(c.server.EscapedPath(), "/"); path != "" {
		below := *root
		below.Path, below.RawPath = wellKnownResource+"/"+strings.TrimLeft(c.server.Path, "/"), ""
		all = append(all, candidate{&below, false})
	}
	all = append(all, candidate{root, true})
	for _, one := range all {
		doc, err := c.metadata(ctx, one.at)
		if err != nil {
			return f, nil, err
		}
		if doc != nil {
			return c.described(doc, one.root)
		}
	}
	return found{resource: c.canonical()}, []string{origin(base)}, nil
}

// canonical is the server as a resource: its URL without what is no part of its name.
func (c *Client) canonical() string {
	u := *c.server
	u.Scheme, u.Host, u.Fragment = strings.ToLower(u.Scheme), strings.ToLower(u.Host), ""
	return u.String()
}

// described reads the metadata of the server, RFC 9728. What it describes must be this
// server, or its whole origin if it was found at the root: otherwise one server could
// have us bring it a token for another.
func (c *Client) described(doc document, root bool) (f found, issuers []string, err error) {
	f.resource = doc.text("resource")
	is := oauthex.MatchesResource([]string{f.resource}, c.canonical()) || oauthex.MatchesResource([]string{f.resource}, c.server.String())
	if root && f.resource != "" {
		is = is || oauthex.MatchesResource([]string{f.resource}, strings.ToLower(origin(c.server)))
	}
	if !is {
		return f, nil, fmt.Errorf("what describes it is about the resource %q, and not about it", clip(f.resource))
	}
	issuers = doc.list("authorization_servers")
	if len(issuers) == 0 || len(issuers) > maxServers {
		return f, nil, errors.New("what describes it names no authorization server, or too many")
	}
	if methods := doc.list("bearer_methods_supported"); len(methods) > 0 && !slices.Contains(methods, "header") {
		return f, nil, errors.New("it takes tokens elsewhere than in a header, where they do not belong")
	}
	if f.scopes, err = readScopes(strings.Join(doc.list("scopes_supported"), " ")); err != nil {
		return f, nil, err
	}
	f.bound = doc.is("dpop_bound_access_tokens_required")
	return f, issuers, nil
}

// metadataPlaces are where an authorization server may describe itself, in this order:
// RFC 8414, and OpenID Connect Discovery with the path behind and before.
func metadataPlaces(issuer *url.URL) []*url.URL {
	at := func(path string) *url.URL { return &url.URL{Scheme: issuer.Scheme, Host: issuer.Host, Path: path} }
	path := strings.Trim(issuer.Path, "/")
	if path == "" {
		return []*url.URL{at("/.well-known/oauth-authorization-server"), at("/.well-known/openid-configuration")}
	}
	return []*url.URL{
		at("/.well-known/oauth-authorization-server/" + path), at("/.well-known/openid-configuration/" + path),
		at("/" + path + "/.well-known/openid-configuration"),
	}
}

// sameIssuer compares issuers: as they are written, but for a slash alone behind the host.
func sameIssuer(a, b string) bool {
	return a == b || bare(a) == bare(b) && bare(a) != ""
}

// bare is an issuer without a path, and without the slash; "" if it has a path.
func bare(issuer string) string {
	s := strings.TrimSuffix(issuer, "/")
	if u, err := url.Parse(s); err != nil || u.Path != "" || u.RawQuery != "" {
		return ""
	}
	return s
}

// authServer fills f with what the authorization server says of itself.
func (c *Client) authServer(ctx context.Context, f *found, issuer string) error {
	u, err := c.place(issuer)
	if err != nil {
		return err
	}
	if u.RawQuery != "" || u.ForceQuery {
		return errors.New("an issuer has no query")
	}
	for _, at := range metadataPlaces(u) {
		doc, err := c.metadata(ctx, at)
		if err != nil {
			return err
		}
		if doc != nil {
			return c.says(doc, f, issuer)
		}
	}
	if !sameOrigin(u, c.server) || strings.Trim(u.Path, "/") != "" {
		return errors.New("it does not describe itself")
	}
	// Revision 2025-03-26: a server that is its own, and says nothing.
	f.issuer = issuer
	f.authorizeAt = u.JoinPath("/authorize")
	f.tokenAt, f.registerAt = u.JoinPath("/token").String(), u.JoinPath("/register").String()
	return nil
}

// says reads the metadata of an authorization server, RFC 8414.
func (c *Client) says(doc document, f *found, issuer string) (err error) {
	f.issuer = doc.text("issuer")
	if !sameIssuer(f.issuer, issuer) {
		return fmt.Errorf("it calls itself %q", clip(f.issuer))
	}
	// Machines need neither an authorization endpoint nor a challenge.
	if at := doc.text("authorization_endpoint"); at != "" {
		if f.authorizeAt, err = c.place(at); err != nil {
			return fmt.Errorf("its authorization endpoint: %w", err)
		}
		if !slices.Contains(doc.list("code_challenge_methods_supported"), "S256") && c.o.Server.Ringfence.OAuth.Grant == "" {
			return errors.New("it does not say that it checks challenges (PKCE, code_challenge_methods_supported with S256), and without them a code that is stolen can be used")
		}
	}
	for name, to := range map[string]*string{"token_endpoint": &f.tokenAt, "registration_endpoint": &f.registerAt, "revocation_endpoint": &f.revokeAt} {
		if *to = doc.text(name); *to == "" {
			continue
		}
		if _, err := c.place(*to); err != nil {
			return fmt.Errorf("its %s: %w", name, err)
		}
	}
	if f.tokenAt == "" {
		return errors.New("it names no token endpoint")
	}
	f.methods, f.grants = doc.list("token_endpoint_auth_methods_supported"), doc.list("grant_types_supported")
	f.offers, f.proofs = doc.list("scopes_supported"), doc.list("dpop_signing_alg_values_supported")
	f.namesItself = doc.is("authorization_response_iss_parameter_supported")
	f.documents = doc.is("client_id_metadata_document_supported")
	return nil
}
