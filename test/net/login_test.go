//go:build linux

package net_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/test/rig"
)

// An issuer is an authorization server, and an MCP server that takes its tokens, each at a
// name and a port of its own, over TLS. It checks what it may check of a client.
type issuer struct {
	resource, at string // URLs

	mu      sync.Mutex
	log     []string          // what was asked of it
	wrong   []string          // what a client did that it must not
	back    []string          // redirect URIs of the client that has registered
	codes   map[string]string // challenges of codes that were not used
	refresh map[string]bool   // tokens that were not used
	good    map[string]bool   // access tokens that are accepted
	secrets []string          // everything that was given out
}

func newIssuer(t *testing.T, w *world) *issuer {
	t.Helper()
	i := &issuer{codes: map[string]string{}, refresh: map[string]bool{}, good: map[string]bool{}}
	s := mcp.NewServer(&mcp.Implementation{Name: "far", Version: "1"}, nil)
	type message struct {
		Text string `json:"message"`
	}
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, func(_ context.Context, _ *mcp.CallToolRequest, in message) (*mcp.CallToolResult, any, error) {
		i.mu.Lock()
		i.log = append(i.log, "called with "+in.Text)
		i.mu.Unlock()
		return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: in.Text}}}, nil, nil
	})
	behind := mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{DisableLocalhostProtection: true})
	far := http.NewServeMux()
	far.HandleFunc("/mcp", func(rw http.ResponseWriter, r *http.Request) {
		_, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		i.mu.Lock()
		good := i.good[token]
		i.mu.Unlock()
		if good {
			behind.ServeHTTP(rw, r)
			return
		}
		rw.Header().Set("WWW-Authenticate", `Bearer scope="notes", resource_metadata="`+strings.TrimSuffix(i.resource, "/mcp")+`/.well-known/oauth-protected-resource/mcp"`)
		rw.WriteHeader(http.StatusUnauthorized)
	})
	far.HandleFunc("GET /.well-known/oauth-protected-resource/mcp", func(rw http.ResponseWriter, _ *http.Request) {
		i.say(rw, "resource", map[string]any{"resource": i.resource, "authorization_servers": []string{i.at}})
	})
	i.resource = "https://" + allowed + ":" + serve(t, &http.Server{Handler: far, TLSConfig: w.config.Clone()}) + "/mcp"
	i.at = "https://" + modelsAt + ":" + serve(t, &http.Server{Handler: i.routes(), TLSConfig: w.config.Clone()})
	return i
}

func (i *issuer) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/oauth-authorization-server", func(rw http.ResponseWriter, _ *http.Request) {
		i.say(rw, "discovery", map[string]any{
			"issuer": i.at, "authorization_endpoint": i.at + "/authorize", "token_endpoint": i.at + "/token", "registration_endpoint": i.at + "/register",
			"code_challenge_methods_supported": []string{"S256"}, "token_endpoint_auth_methods_supported": []string{"none"},
			"authorization_response_iss_parameter_supported": true,
		})
	})
	mux.HandleFunc("POST /register", func(rw http.ResponseWriter, r *http.Request) {
		var asked struct {
			Redirects []string `json:"redirect_uris"`
		}
		err := json.NewDecoder(r.Body).Decode(&asked)
		i.mu.Lock()
		i.check(err == nil && len(asked.Redirects) > 0, "registered as %q, %v", asked.Redirects, err)
		i.back = asked.Redirects
		i.mu.Unlock()
		i.say(rw, "registration", map[string]any{"client_id": "c1", "redirect_uris": asked.Redirects, "token_endpoint_auth_method": "none"})
	})
	mux.HandleFunc("GET /authorize", func(rw http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		i.mu.Lock()
		i.log = append(i.log, "authorize")
		code := i.secret("code")
		i.codes[code] = q.Get("code_challenge")
		i.check(q.Get("client_id") == "c1" && q.Get("code_challenge_method") == "S256" && q.Get("resource") == i.resource &&
			slices.Contains(i.back, q.Get("redirect_uri")), "asked for a code with %v", q)
		i.mu.Unlock()
		http.Redirect(rw, r, q.Get("redirect_uri")+"?"+url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {i.at}}.Encode(), http.StatusFound)
	})
	mux.HandleFunc("POST /token", i.token)
	return mux
}

// token gives tokens for a code whose verifier is right, or for a token that was not used.
func (i *issuer) token(rw http.ResponseWriter, r *http.Request) {
	err := r.ParseForm()
	i.mu.Lock()
	kind := r.Form.Get("grant_type")
	switch sum := sha256.Sum256([]byte(r.Form.Get("code_verifier"))); kind {
	case "authorization_code":
		challenge := i.codes[r.Form.Get("code")]
		i.check(challenge != "" && challenge == base64.RawURLEncoding.EncodeToString(sum[:]), "PKCE: %q", challenge)
		delete(i.codes, r.Form.Get("code"))
	case "refresh_token":
		i.check(i.refresh[r.Form.Get("refresh_token")], "refresh with a token that was used")
		delete(i.refresh, r.Form.Get("refresh_token"))
	default:
		i.check(false, "grant %q", kind)
	}
	i.check(err == nil && r.Form.Get("client_id") == "c1" && r.Form.Get("resource") == i.resource, "asked for a token with %v, %v", r.Form, err)
	access, again := i.secret("access"), i.secret("refresh")
	i.good[access], i.refresh[again] = true, true
	i.mu.Unlock()
	i.say(rw, kind, map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": 3600, "refresh_token": again, "scope": "notes"})
}

// check notes what a client did, unless it is right.
func (i *issuer) check(right bool, format string, args ...any) {
	if !right {
		i.wrong = append(i.wrong, fmt.Sprintf(format, args...))
	}
}

// secret makes one that is looked for.
func (i *issuer) secret(kind string) string {
	s := fmt.Sprintf("%s-%d-Kept0By1The2Vault3Alone", kind, len(i.secrets))
	i.secrets = append(i.secrets, s)
	return s
}

func (i *issuer) say(rw http.ResponseWriter, what string, v any) {
	i.mu.Lock()
	i.log = append(i.log, what)
	i.mu.Unlock()
	rw.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(rw).Encode(v)
}

// took returns what was asked since it was called last, without doubles.
func (i *issuer) took() []string {
	i.mu.Lock()
	defer i.mu.Unlock()
	all := slices.Compact(i.log)
	i.log = nil
	return all
}

// login runs the verb, with a person who opens the page and agrees, and returns what it said.
func (p *place) login(ctx context.Context, t *testing.T, policy, servers string) (string, error) {
	t.Helper()
	authority, err := os.ReadFile(p.world.ca)
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority)
	browser := &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, at string) (net.Conn, error) {
			_, port, _ := net.SplitHostPort(at)
			return new(net.Dialer).DialContext(ctx, network, "127.0.0.1:"+port)
		},
	}}
	c := p.Command(ctx, "servers", "login", "far", "--servers", servers, "--policy", policy, "--ask", "never")
	var out, errs bytes.Buffer
	c.Stdout = &out
	said, err := c.StderrPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(said); lines.Scan(); {
		fmt.Fprintln(&errs, lines.Text())
		if at := strings.TrimSpace(lines.Text()); strings.HasPrefix(at, "https://") {
			resp, err := browser.Get(at)
			if err != nil {
				t.Error(err)
				continue
			}
			resp.Body.Close()
		}
	}
	err = c.Wait()
	return errs.String() + out.String(), err
}

// TestLoginFar: a server of another machine is logged in to over TLS, each request of it
// through the way out and on record; its tools are called with the token, which is renewed, and
// is in no file and no record. What the policy does not allow, the login does not reach.
func TestLoginFar(t *testing.T) {
	p := newPlace(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	i := newIssuer(t, p.world)
	servers, err := p.Servers(map[string]any{"far": map[string]any{"url": i.resource, "ringfence": map[string]any{"annotations": "everything"}}})
	if err != nil {
		t.Fatal(err)
	}
	at := func(address string) []string {
		u, _ := url.Parse(address)
		return []string{"The agent may fetch pages from " + u.Host + ".", "The agent may send to " + u.Host + "."}
	}
	rules := append(at(i.resource), "The agent may use far.*.")
	half, err := p.Policy(ctx, rules...)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := p.login(ctx, t, half, servers); err == nil || !strings.Contains(said, "fetch "+i.at+"/.well-known/oauth-authorization-server is allowed by no rule") {
		t.Errorf("a login at a server that the policy does not name: %v\n%s", err, said)
	}
	if asked := i.took(); !slices.Equal(asked, []string{"resource"}) {
		t.Errorf("asked of it: %q", asked)
	}
	policy, err := p.Policy(ctx, append(rules, at(i.at)...)...)
	if err != nil {
		t.Fatal(err)
	}
	if said, err := p.login(ctx, t, policy, servers); err != nil || !strings.Contains(said, "logged in at "+i.at+", for notes; renewed by itself") {
		t.Fatalf("%v\n%s", err, said)
	}
	if asked, want := i.took(), []string{"resource", "discovery", "registration", "authorize", "authorization_code"}; !slices.Equal(asked, want) {
		t.Errorf("asked of it: %q, want %q", asked, want)
	}
	i.mu.Lock()
	clear(i.good) // the token must be renewed
	i.mu.Unlock()
	p.callFar(ctx, t, policy, servers)
	if asked := i.took(); !slices.Contains(asked, "refresh_token") || !slices.Contains(asked, "called with here") || slices.Contains(asked, "authorize") {
		t.Errorf("asked of it: %q", asked)
	}
	if len(i.wrong) > 0 {
		t.Errorf("the client did wrong: %q", i.wrong)
	}
	p.recorded(ctx, t, i)
}

// callFar has the tool of the server approved, and calls it.
func (p *place) callFar(ctx context.Context, t *testing.T, policy, servers string) {
	t.Helper()
	m, err := p.MCP(ctx, policy, servers)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close() // once more where something went wrong
	if _, err := m.Tools(ctx); err != nil {
		t.Fatal(err)
	}
	var pins []struct{ Hash string }
	out, _ := p.Command(ctx, "tools", "review", "far.echo", "--json").Output() // its status says that there is something to review
	if err := json.Unmarshal(out, &pins); err != nil || len(pins) != 1 {
		log, _ := os.ReadFile(p.Log())
		t.Fatalf("%v: %s\n%s", err, out, log)
	}
	pin := p.Command(ctx, "tools", "pin", "far.echo", pins[0].Hash)
	pin.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // whoever asks cannot approve
	if out, err := pin.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if r, err := m.Call(ctx, "echo", json.RawMessage(`{"message":"here"}`)); err != nil || r.IsError {
		t.Errorf("%+v, %v", r, err)
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
}

// recorded looks at what is left of it: requests on record, and no secret in the clear.
func (p *place) recorded(ctx context.Context, t *testing.T, i *issuer) {
	t.Helper()
	if _, err := p.Run(ctx, "ledger", "verify"); err != nil {
		t.Error(err)
	}
	out, err := p.Run(ctx, "ledger", "show", "--json")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{i.resource, i.at + "/register", i.at + "/token", i.at + "/.well-known/oauth-authorization-server"} {
		if !bytes.Contains(out, []byte(want)) {
			t.Errorf("the record has no %s", want)
		}
	}
	var forms [][]byte
	for _, s := range i.secrets {
		forms = append(forms, rig.Forms(s)...)
	}
	if found, err := p.InFiles(forms); err != nil || len(found) > 0 {
		t.Errorf("found in %q, %v", found, err)
	}
	for _, f := range forms {
		if bytes.Contains(out, f) {
			t.Errorf("the record has %s", f)
		}
	}
}
