package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/constitution"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/keychain"
)

// network compiles a constitution into a bundle of the home.
func (f *fixture) network(text string) string {
	f.t.Helper()
	key, err := keychain.LoadOrCreate(PolicyKey(f.home))
	if err != nil {
		f.t.Fatal(err)
	}
	c, err := constitution.Compile(constitution.Source{Name: "net", Text: []byte(text)}, constitution.Options{Granting: true})
	if err != nil {
		f.t.Fatal(err)
	}
	dir := filepath.Join(f.home, "net")
	if err := constitution.Write(dir, c, "test", key); err != nil {
		f.t.Fatal(err)
	}
	return dir
}

const (
	keptValue = "gk-Zx81-kept-in-the-vault-0001"
	ownValue  = "sk-ant-api03-Own0Value1Of2This3Session4Alone5"
)

// loanCases are requests to the world of TestLend: what goes out with a secret, and what
// does not.
var loanCases = []struct {
	name, secret, method, url, args string
	code                            act.Code // "": it is lent
}{
	{"bound", "git-key", "GET", "https://git.example/api/x", "", ""},
	{"bound, by its own key", "anthropic", "POST", "https://api.anthropic.com/v1/messages", "", ""},
	{"CR-01 another host", "git-key", "GET", "https://other.example/api/x", "", act.CodePolicy},
	{"CR-01 a host whose name begins so", "git-key", "GET", "https://git.example.evil.example/api/x", "", act.CodePolicy},
	{"CR-10 downgrade", "git-key", "GET", "http://git.example/api/x", "", act.CodePolicy},
	{"another port", "git-key", "GET", "https://git.example:8443/api/x", "", act.CodePolicy},
	{"another path", "git-key", "GET", "https://git.example/apix", "", act.CodePolicy},
	{"another path, by dots", "git-key", "GET", "https://git.example/api/%2e%2e/admin", "", act.CodePolicy},
	{"another path, by escaped slashes", "git-key", "GET", "https://git.example/api/..%2fadmin", "", act.CodeUnresolved},
	{"another method", "git-key", "DELETE", "https://git.example/api/x", "", act.CodePolicy},
	{"a method that is not said", "git-key", "GET", "https://git.example/api/x", `{}`, act.CodeInvalid},
	{"a method that is not that of the effect", "git-key", "GET", "https://git.example/api/x", `{"method":"POST"}`, act.CodeInvalid},
	{"none of that name", "nothing", "GET", "https://git.example/api/x", "", act.CodePolicy},
	{"a clause forbids the secret", "barred-key", "GET", "https://git.example/api/x", "", act.CodePolicy},
	{"a clause forbids the address", "git-key", "GET", "https://git.example/api/private", "", act.CodePolicy},
}

// TestLend: a secret is lent to requests to the places that it is bound to, and no value
// is on record, in a file of the home or in an answer.
func TestLend(t *testing.T) {
	f := newFixture(t)
	dir := f.network("The agent may contact any host.\nThe agent must never use the secret barred-key.\nThe agent must never fetch https://git.example/api/private.\n")
	f.start(Options{})
	c := f.client()
	bound := []loan.Binding{{Host: "git.example", Prefix: "/api", Methods: []string{"get", "post"}}}
	for _, name := range []string{"git-key", "barred-key"} {
		if err := c.SetSecret(t.Context(), api.SecretInfo{Name: name, Env: []string{"GIT_TOKEN"}, Bindings: bound}, []byte(keptValue+name)); err != nil {
			t.Fatal(err)
		}
	}
	r := f.request()
	r.PolicyDir = dir
	s, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	anthropic, _ := loan.ProviderOf("api.anthropic.com")
	own := []loan.Own{{Name: anthropic.Name, Value: []byte(ownValue), Env: anthropic.Variables, Bindings: anthropic.Bindings}}
	sentinels, err := s.Sentinels(t.Context(), own)
	if err != nil || len(sentinels) != 3 {
		t.Fatalf("%d sentinels, %v", len(sentinels), err)
	}
	for _, c := range loanCases {
		kind := act.Send
		if c.method == "GET" {
			kind = act.Fetch
		}
		if c.args == "" {
			c.args = `{"method":"` + c.method + `"}`
		}
		ticket, err := s.Decide(t.Context(), act.Request{Verb: act.VerbEffect, Args: []byte(c.args), Direct: []act.Effect{
			{Kind: kind, Resource: act.Resource{Type: act.URL, Text: c.url}},
			{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: c.secret}},
		}})
		if err != nil || ticket.Code != c.code || (ticket.Verdict == act.Allow) != (c.code == "") {
			t.Errorf("%s: %s %q %s, %v", c.name, ticket.Verdict, ticket.Code, ticket.Reason, err)
		}
		if c.code != "" {
			if len(ticket.Lend) > 0 {
				t.Errorf("%s: lent", c.name)
			}
			continue
		}
		want := map[string]string{"git-key": keptValue + "git-key", "anthropic": ownValue}[c.secret]
		if len(ticket.Lend) != 1 || ticket.Lend[0].Value != want || ticket.Lend[0].Sentinel != sentinelOf(sentinels, c.secret) {
			t.Errorf("%s: lent %d, and not the secret with its sentinel", c.name, len(ticket.Lend))
		}
		reply, err := s.Finish(t.Context(), ticket, act.Outcome{Body: []byte(`{"echo":"` + want + `"}`)})
		if err != nil || strings.Contains(string(reply.Body), want) {
			t.Errorf("%s: the reply %s, %v", c.name, reply.Body, err)
		}
	}
	if l, err := c.Secrets(t.Context()); err != nil || len(l.Secrets) != 2 || l.Secrets[1].Used.IsZero() || !l.Secrets[0].Used.IsZero() {
		t.Errorf("listed %+v, %v", l, err)
	}

	// Another engine makes the same sentinels of it, and has what is the session's own.
	f.end()
	f.start(Options{})
	again, err := s.Sentinels(t.Context(), own)
	before, _ := json.Marshal(sentinels)
	if after, _ := json.Marshal(again); err != nil || !bytes.Equal(before, after) {
		t.Errorf("sentinels changed: %v", err)
	}
	f.end()
	assertNowhere(t, filepath.Dir(f.home), keptValue, ownValue)
}

// TestLendAsks: a binding is a permission, and a clause that asks before secrets are used
// still holds.
func TestLendAsks(t *testing.T) {
	f := newFixture(t)
	dir := f.network("The agent may contact any host.\nThe agent must ask before using any secret.\n")
	f.start(Options{})
	c := f.client()
	if err := c.SetSecret(t.Context(), api.SecretInfo{Name: "git-key", Bindings: []loan.Binding{{Host: "git.example"}}}, []byte(keptValue)); err != nil {
		t.Fatal(err)
	}
	r := f.request()
	r.PolicyDir = dir
	s, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	effects := []act.Effect{
		{Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: "https://git.example/"}},
		{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: "git-key"}},
	}
	for n, want := range map[int]act.Code{1: "", 2: act.CodeNoAnswer} {
		ticket, err := s.Decide(t.Context(), act.Request{Verb: act.VerbEffect, Args: []byte(`{"method":"GET"}`), Direct: effects[:n]})
		if err != nil || ticket.Code != want || len(ticket.Lend) > 0 {
			t.Errorf("%d effects: %q %s, %d loans, %v", n, ticket.Code, ticket.Reason, len(ticket.Lend), err)
		}
		if ticket.Verdict == act.Allow {
			if _, err := s.Finish(t.Context(), ticket, act.Outcome{}); err != nil {
				t.Error(err)
			}
		}
	}
}

// TestCR09: a key that is replaced during a session goes out as the new one, and the box
// keeps what it has in its place.
func TestCR09(t *testing.T) {
	f := newFixture(t)
	dir := f.network("The agent may contact any host.\n")
	f.start(Options{})
	c := f.client()
	set := func(value string) {
		t.Helper()
		if err := c.SetSecret(t.Context(), api.SecretInfo{Name: "git-key", Bindings: []loan.Binding{{Host: "git.example"}}}, []byte(value)); err != nil {
			t.Fatal(err)
		}
	}
	set(keptValue + "-old")
	r := f.request()
	r.PolicyDir = dir
	s, err := c.OpenSession(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	sentinels, err := s.Sentinels(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, value := range []string{keptValue + "-old", keptValue + "-of-another-length", keptValue + "-and-another-engine"} {
		set(value)
		if i == 2 { // which knows nothing of what was given out but from the client
			f.end()
			f.start(Options{})
		}
		ticket, err := s.Decide(t.Context(), act.Request{Verb: act.VerbEffect, Args: []byte(`{"method":"GET"}`), Direct: []act.Effect{
			{Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: "https://git.example/"}},
			{Kind: act.UseSecret, Resource: act.Resource{Type: act.Secret, Text: "git-key"}},
		}})
		if err != nil || len(ticket.Lend) != 1 || ticket.Lend[0].Value != value || ticket.Lend[0].Sentinel != sentinels[0].Text {
			t.Fatalf("%s: lent %+v, %v", value, ticket.Lend, err)
		}
		if _, err := s.Finish(t.Context(), ticket, act.Outcome{}); err != nil {
			t.Error(err)
		}
	}
}

func sentinelOf(all []loan.Sentinel, name string) string {
	for _, s := range all {
		if s.Name == name {
			return s.Text
		}
	}
	return ""
}

// assertNowhere looks for values in every file below dir.
func assertNowhere(t *testing.T, dir string, values ...string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		data, err := os.ReadFile(path)
		for _, v := range values {
			if bytes.Contains(data, []byte(v)) {
				t.Errorf("%s has a secret in it", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// TestTokens: tokens survive an engine, and what was deleted is gone.
func TestTokens(t *testing.T) {
	f := newFixture(t).start(Options{})
	c, ctx := f.client(), t.Context()
	if _, err := c.TokenLoad(ctx, "a"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("loaded before it was saved: %v", err)
	}
	if err := c.TokenDelete(ctx, "a"); err != nil {
		t.Errorf("deleting nothing: %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.home, "vault.age")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("asking made a vault")
	}
	if err := errors.Join(c.TokenSave(ctx, "a", []byte(keptValue)), c.TokenSave(ctx, "b", []byte("b")), c.TokenDelete(ctx, "b")); err != nil {
		t.Fatal(err)
	}
	f.end()
	f.start(Options{})
	c = f.client()
	if v, err := c.TokenLoad(ctx, "a"); err != nil || string(v) != keptValue {
		t.Errorf("loaded %q, %v", v, err)
	}
	if _, err := c.TokenLoad(ctx, "b"); !errors.Is(err, api.ErrNotFound) {
		t.Errorf("loaded what was deleted: %v", err)
	}
	f.end()
	assertNowhere(t, f.home, keptValue)
}
