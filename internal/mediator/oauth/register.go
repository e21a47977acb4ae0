package oauth

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// How a client says at the token endpoint who it is, RFC 7591, section 2, and RFC 7523.
const (
	methodNone  = "none"
	methodBasic = "client_secret_basic"
	methodPost  = "client_secret_post"
	methodKey   = "private_key_jwt"
)

// configured is the client that the entry of the server names, if it does.
func (c *Client) configured(f found) (r Registered, ok bool, err error) {
	o := c.o.Server.Ringfence.OAuth
	if o.Client == "" {
		return r, false, nil
	}
	// discover has refused every other issuer than that of the entry, if it names one.
	r = Registered{ID: o.Client, Secret: o.Secret, Method: methodNone}
	takes := func(method string) bool { return slices.Contains(f.methods, method) }
	switch {
	case o.Key != "":
		r.Method = methodKey
	case o.Secret == "":
	case len(f.methods) == 0 || takes(methodBasic):
		r.Method = methodBasic
	case takes(methodPost):
		r.Method = methodPost
	default:
		return r, false, errors.New("its authorization server takes no secret of a client, neither as Basic nor in the form")
	}
	return r, true, nil
}

// register returns who we are at the authorization server: the client that is configured,
// the one that a document describes, the one that we were there before, or a new one.
func (c *Client) register(ctx context.Context, f found, redirect string, before Registered) (Registered, error) {
	r, ok, err := c.configured(f)
	if ok || err != nil {
		r.Redirect = redirect
		return r, err
	}
	if at := c.o.Server.Ringfence.OAuth.Document; at != "" && f.documents {
		return Registered{ID: at, Method: methodNone, Redirect: redirect}, nil
	}
	if before.Dynamic && before.Redirect == redirect && (before.Ends.IsZero() || c.o.Now().Before(before.Ends)) {
		return before, nil
	}
	if f.registerAt == "" {
		return Registered{}, errors.New(`its authorization server registers nobody: register ringfence there, and write "oauth": {"client": …, "issuer": …} into "ringfence" of its entry`)
	}
	return c.dynamic(ctx, f, redirect)
}

// dynamic registers a client, RFC 7591.
func (c *Client) dynamic(ctx context.Context, f found, redirect string) (Registered, error) {
	ask := map[string]any{
		"client_name": "ringfence", "redirect_uris": []string{redirect}, "response_types": []string{"code"},
		"grant_types": grantTypes(f), "application_type": "native", "token_endpoint_auth_method": wantedMethod(f.methods),
	}
	body, err := json.Marshal(ask)
	if err != nil {
		return Registered{}, fmt.Errorf("registering: %w", err)
	}
	to, err := c.place(f.registerAt)
	if err != nil {
		return Registered{}, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(body))
	if err != nil {
		return Registered{}, errors.New("registering: its URL is not one")
	}
	r.Header.Set("Content-Type", "application/json")
	a, err := c.ask(ctx, r)
	if err != nil {
		return Registered{}, fmt.Errorf("registering: %w", err)
	}
	if a.status != http.StatusCreated && a.status != http.StatusOK || a.doc == nil {
		return Registered{}, fmt.Errorf("registering: %w", refusal(a))
	}
	return c.registered(a.doc, redirect, wantedMethod(f.methods))
}

func (c *Client) registered(doc document, redirect, asked string) (Registered, error) {
	got := Registered{ID: doc.text("client_id"), Secret: doc.text("client_secret"), Method: doc.text("token_endpoint_auth_method"), Redirect: redirect, Dynamic: true}
	if n := doc.number("client_secret_expires_at"); n > 0 {
		got.Ends = time.Unix(n, 0)
	}
	if got.Method == "" {
		got.Method = asked
		if got.Secret != "" && asked == methodNone {
			got.Method = methodBasic // what RFC 7591 has where nothing is said
		}
	}
	switch {
	case got.ID == "":
		return got, errors.New("registering: it gave us no name")
	case got.Method != methodNone && got.Method != methodBasic && got.Method != methodPost:
		return got, errors.New("registering: it wants us to say who we are in a way that was not asked for")
	case got.Method != methodNone && got.Secret == "":
		return got, errors.New("registering: it gave us no secret")
	}
	return got, nil
}

// wantedMethod is how we say who we are, where we choose: a program on a person's
// machine keeps no secret that is worth one.
func wantedMethod(takes []string) string {
	for _, m := range []string{methodNone, methodBasic, methodPost} {
		if slices.Contains(takes, m) {
			return m
		}
	}
	if len(takes) > 0 {
		return methodNone // it takes nothing that we could do; the answer says so
	}
	return methodBasic
}

func grantTypes(f found) []string {
	if f.grants == nil || slices.Contains(f.grants, "refresh_token") {
		return []string{"authorization_code", "refresh_token"}
	}
	return []string{"authorization_code"}
}

// An oauthError is a refusal of an authorization server, RFC 6749, section 5.2.
type oauthError struct {
	code   string // "" if it gave none that can be shown
	status int
}

func (e *oauthError) Error() string {
	if e.code == "" {
		return fmt.Sprintf("the authorization server refuses (HTTP %d)", e.status)
	}
	return fmt.Sprintf("the authorization server refuses: %s (HTTP %d)", e.code, e.status)
}

func refusal(a answered) error { return &oauthError{word(a.doc.text("error")), a.status} }

// refusedWith reports whether err is a refusal with one of these codes.
func refusedWith(err error, codes ...string) bool {
	e, ok := errors.AsType[*oauthError](err)
	return ok && slices.Contains(codes, e.code)
}

// form makes a request to the token endpoint, or one that is spoken to like it.
func (c *Client) form(ctx context.Context, at string, values url.Values) (*http.Request, error) {
	to, err := c.place(at)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), strings.NewReader(values.Encode()))
	if err != nil {
		return nil, errors.New("the token endpoint is no URL")
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	return r, nil
}
