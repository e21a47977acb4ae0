package mediator

import (
	"net/url"
	"path/filepath"
	"strings"

	"ringfence/internal/act/strictjson"
)

// How a server is logged in to without a person, [OAuth.Grant].
const (
	GrantClient     = "client_credentials" // as the client itself, with a secret or a key
	GrantAssertion  = "jwt_bearer"         // with a token that says which workload we are
	GrantEnterprise = "enterprise"         // with what an organisation's own login says of the person
)

// An OAuth is the member "oauth" of [Settings]: how a server with a URL is logged in to.
// The zero value finds everything out, and has a person agree.
type OAuth struct {
	Issuer   string   `json:",omitempty"` // the only authorization server whose tokens are used; "" is the first that the server names
	Client   string   `json:",omitempty"` // id of a client that is registered there
	Secret   string   `json:"-"`          // of that client
	Key      string   `json:",omitempty"` // file with the private key of that client, PEM; absolute
	Document string   `json:",omitempty"` // URL of a metadata document that describes us
	Scopes   []string `json:",omitempty"` // the only ones that are asked for; nil is what the server wants
	Grant    string   `json:",omitempty"` // GrantClient and so on; "" has a person agree
	Port     int      `json:",omitempty"` // of 127.0.0.1 that the browser comes back to; 0 is any
	// Assertion is the file with the token of GrantAssertion, or with the ID token of
	// GrantEnterprise; absolute.
	Assertion string   `json:",omitempty"`
	Exchange  Exchange `json:",omitzero"`
}

// An Exchange is where GrantEnterprise exchanges the ID token.
type Exchange struct {
	URL    string // of the token endpoint
	Client string `json:",omitempty"` // id of our client there
	Secret string `json:"-"`
}

// oauth reads the member "oauth".
func (r *serversReader) oauth(of strictjson.Member) (OAuth, error) {
	var o OAuth
	members, err := r.members(span{of.Start, of.End}, `"oauth"`)
	for _, m := range members {
		switch m.Name {
		case "issuer":
			o.Issuer, err = r.webURL(m)
		case "client":
			o.Client, err = r.expanded(m)
		case "secret":
			o.Secret, err = r.reference(m)
		case "key":
			o.Key, err = r.file(m)
		case "document":
			o.Document, err = r.webURL(m)
		case "scopes":
			o.Scopes, err = r.list(m, r.text)
		case "grant":
			o.Grant, err = r.text(m)
		case "port":
			var n int64
			if n, err = r.number(m); err == nil && n > 65535 {
				err = r.fail(m.Start, "port must be below 65536")
			}
			o.Port = int(n)
		case "assertion":
			o.Assertion, err = r.file(m)
		case "exchange":
			o.Exchange, err = r.exchange(m)
		default:
			return o, r.fail(m.At, `unknown key %s in "oauth"; there are issuer, client, secret, key, document, scopes, grant, port, assertion and exchange`, clip(m.Name))
		}
		if err != nil {
			return o, err
		}
	}
	if err != nil {
		return o, err
	}
	return o, r.oauthConsistent(o, of)
}

// oauthConsistent returns an error unless the parts of an OAuth go together. A secret
// without an issuer would be shown to whomever the server names.
func (r *serversReader) oauthConsistent(o OAuth, of strictjson.Member) error {
	say := func(text string) error { return r.fail(of.At, `"oauth": %s`, text) }
	switch {
	case o.Client != "" && o.Issuer == "":
		return say(`a "client" needs the "issuer" that it is registered with`)
	case (o.Secret != "" || o.Key != "" || o.Grant != "") && o.Client == "":
		return say(`"secret", "key" and "grant" need a "client"`)
	case o.Secret != "" && o.Key != "":
		return say(`a client has a "secret" or a "key", not both`)
	case o.Document != "" && !isDocument(o.Document):
		return say(`"document" must be https, with a path`)
	}
	switch o.Grant {
	case "":
		if o.Assertion != "" || o.Exchange != (Exchange{}) {
			return say(`"assertion" and "exchange" need a "grant"`)
		}
	case GrantClient:
		if o.Secret == "" && o.Key == "" {
			return say(`this "grant" needs a "secret" or a "key"`)
		}
	case GrantAssertion:
		if o.Assertion == "" {
			return say(`this "grant" needs an "assertion"`)
		}
	case GrantEnterprise:
		if o.Assertion == "" || o.Exchange.URL == "" || o.Exchange.Client == "" {
			return say(`this "grant" needs an "assertion", and an "exchange" with "url" and "client"`)
		}
	default:
		return say(`"grant" is none of client_credentials, jwt_bearer and enterprise`)
	}
	return nil
}

func isDocument(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && strings.Trim(u.Path, "/") != ""
}

func (r *serversReader) exchange(of strictjson.Member) (Exchange, error) {
	var x Exchange
	members, err := r.members(span{of.Start, of.End}, `"exchange"`)
	for _, m := range members {
		switch m.Name {
		case "url":
			x.URL, err = r.webURL(m)
		case "client":
			x.Client, err = r.expanded(m)
		case "secret":
			x.Secret, err = r.reference(m)
		default:
			return x, r.fail(m.At, `unknown key %s in "exchange"; there are url, client and secret`, clip(m.Name))
		}
		if err != nil {
			return x, err
		}
	}
	return x, err
}

// webURL reads a URL that somebody else is reached at.
func (r *serversReader) webURL(m strictjson.Member) (string, error) {
	text, err := r.expanded(m)
	if err != nil {
		return "", err
	}
	u, perr := url.Parse(text)
	if perr != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.Fragment != "" {
		return "", r.fail(m.Start, "%s must be a URL that begins with https://", clip(m.Name))
	}
	return text, nil
}

// reference reads a secret, which stands in the file by reference only.
func (r *serversReader) reference(m strictjson.Member) (string, error) {
	written, err := r.text(m)
	if err != nil {
		return "", err
	}
	if !strings.Contains(written, "${") {
		return "", r.fail(m.Start, `%s is a secret: write it by reference, as "${NAME}", and set that variable`, clip(m.Name))
	}
	value, err := r.expanded(m)
	if err == nil {
		r.secret(m.Name, value, true)
	}
	return value, err
}

func (r *serversReader) file(m strictjson.Member) (string, error) {
	path, err := r.expanded(m)
	if err == nil && !filepath.IsAbs(path) {
		err = r.fail(m.Start, "%s must be an absolute path", clip(m.Name))
	}
	return path, err
}
