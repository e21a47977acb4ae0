//go:build unix

package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"ringfence/internal/mediator"
	"ringfence/internal/mediator/oauth"
	"ringfence/internal/mediator/remote"
)

// A given is what the suite tells the client that it tests about logging in.
type given struct {
	ClientID     string `json:"client_id"`
	ClientSecret string `json:"client_secret"`
	Issuer       string
	Key          string `json:"private_key_pem"`
	Assertion    string `json:"valid_jwt"`
	IDToken      string `json:"idp_id_token"`
	ExchangeAt   string `json:"idp_token_endpoint"`
	ExchangeAs   string `json:"idp_client_id"`
}

// farServer is the entry that a person would write with what the suite tells them.
func farServer(url string) (mediator.Server, error) {
	s := mediator.Server{Name: "far", URL: url}
	scenario, isLogin := strings.CutPrefix(os.Getenv("MCP_CONFORMANCE_SCENARIO"), "auth/")
	if !isLogin {
		return s, nil
	}
	var g given
	if text := os.Getenv("MCP_CONFORMANCE_CONTEXT"); text != "" {
		if err := json.Unmarshal([]byte(text), &g); err != nil {
			return s, err
		}
	}
	o := &s.Ringfence.OAuth
	o.Client, o.Secret, o.Issuer = g.ClientID, g.ClientSecret, g.Issuer
	o.Document = "https://conformance-test.local/client-metadata.json"
	var err error
	switch {
	case strings.HasPrefix(scenario, "client-credentials"):
		o.Grant = mediator.GrantClient
		if g.Key != "" {
			o.Key, err = secretFile("key.pem", g.Key)
		}
	case g.Assertion != "":
		o.Grant = mediator.GrantAssertion
		o.Assertion, err = secretFile("assertion", g.Assertion)
	case g.IDToken != "":
		o.Grant = mediator.GrantEnterprise
		o.Exchange = mediator.Exchange{URL: g.ExchangeAt, Client: g.ExchangeAs}
		o.Assertion, err = secretFile("assertion", g.IDToken)
	}
	return s, err
}

// secretFile writes a file that ends with the test.
func secretFile(name, text string) (string, error) {
	name = filepath.Join(os.Getenv(asClient), name)
	return name, os.WriteFile(name, []byte(text), 0o600)
}

// authorize logs in with a person who agrees to everything, at once.
func authorize(s mediator.Server, carrier http.RoundTripper) (remote.Authorizer, error) {
	return oauth.New(oauth.Options{
		Server: s, Carrier: carrier, Person: agrees,
		Note: func(text string) { fmt.Fprintln(os.Stderr, text) },
	})
}

// agrees opens a page as a browser does, and goes where it is sent.
func agrees(ctx context.Context, at string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return err
}
