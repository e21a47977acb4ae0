package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestGrants: a person is asked about each connection, nothing answers for them, and what
// they allow passes until it is given back.
func TestGrants(t *testing.T) {
	const to = "docs.example.org:443"
	tools := map[string]policy.ToolAnnotation{
		"add_proxy_domain": {
			Args:  map[string]policy.Arg{"/domain": {Role: policy.RoleHost, Effects: []act.Kind{act.Connect}}, "/justification": {Role: policy.RolePlain}},
			Grant: policy.GrantAsk,
		},
		"remove_proxy_domain": {Group: act.Observe, Args: map[string]policy.Arg{"/domain": {Role: policy.RolePlain}}, Grant: policy.GrantRevoke},
		"list_proxy_domains":  {Group: act.Observe, Args: map[string]policy.Arg{}, Grant: policy.GrantList},
	}
	says := policy.Decision{Rules: []string{policy.Default}, Reason: "denied: no rule.", Quiet: true}
	b := newBench(t, func(policy.Query) policy.Decision { return says })
	b.run.Servers["proxy"] = &Server{Name: "proxy", Dir: b.work, Pin: "launch", Annotation: &policy.Annotation{Name: "proxy", Tools: tools}}
	listed := b.decide(act.Request{Verb: act.VerbList, Tool: "proxy", Args: []byte(`{"tools":[{"name":"add_proxy_domain","inputSchema":{"type":"object"}},{"name":"remove_proxy_domain","inputSchema":{"type":"object"}},{"name":"list_proxy_domains","inputSchema":{"type":"object"}}]}`)})
	if listed.Verdict != act.Allow {
		t.Fatal(listed.Reason)
	}
	call := func(tool, domain string) act.Ticket {
		args := `{"domain":"` + domain + `"}`
		if domain == "" {
			args = `{}`
		}
		return b.decide(act.Request{Verb: act.VerbCall, Tool: "proxy." + tool, Args: []byte(args)})
	}
	connect := func() act.Ticket {
		r := direct(act.Connect, to)
		r.Direct[0].Tree = false
		return b.decide(r)
	}
	if got := connect(); got.Verdict != act.Deny {
		t.Errorf("%+v", got)
	}
	for _, domain := range []string{"127.0.0.1:443", "localhost:80", "a.internal:443", "metadata.google.internal:80"} {
		if got := call("add_proxy_domain", domain); got.Code != act.CodeTripwire || len(b.people.digests) > 0 {
			t.Errorf("%s: %+v", domain, got)
		}
	}
	says.Quiet = false
	if got := call("add_proxy_domain", to); got.Verdict != act.Deny || len(b.people.digests) > 0 {
		t.Errorf("what a clause speaks of was granted: %+v", got)
	}
	says.Verdict = act.Escalate
	if got := call("add_proxy_domain", to); got.Code != act.CodePolicy || len(b.people.digests) > 0 {
		t.Errorf("what a clause asks about inside was granted whole: %+v", got)
	}
	says.Verdict = act.Deny
	says.Quiet, says.Rules = true, []string{"c3.1"}
	if got := call("add_proxy_domain", to); got.Verdict != act.Deny || len(b.people.digests) > 0 {
		t.Errorf("what a clause forbids was granted: %+v", got)
	}
	says.Rules, b.people.answer.Approved = []string{policy.Default}, false
	if got := call("add_proxy_domain", to); got.Verdict != act.Deny || len(b.people.digests) != 1 || len(b.run.Session.Grants()) > 0 {
		t.Errorf("%+v", got)
	}
	b.people.answer.Approved = true
	if got := call("add_proxy_domain", "DOCS.example.org:443"); got.Verdict != act.Allow || !slices.Equal(b.run.Session.Grants(), []string{to}) {
		t.Errorf("%+v %q", got, b.run.Session.Grants())
	}
	if got := connect(); got.Verdict != act.Allow || !got.Filter.Tunnel || got.Rules[0] != grantRule {
		t.Errorf("%+v", got)
	}
	r := direct(act.Resolve, "docs.example.org")
	r.Direct[0].Tree = false
	if got := b.decide(r); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	if got := call("list_proxy_domains", ""); string(got.Bytes) != `{"domains":["`+to+`"]}` {
		t.Errorf("%s", got.Bytes)
	}
	if got := call("remove_proxy_domain", to); !strings.Contains(string(got.Bytes), `"removed":true`) || connect().Verdict != act.Deny {
		t.Errorf("%+v", got)
	}
	if got := call("add_proxy_domain", ""); got.Code != act.CodeInvalid {
		t.Errorf("a grant for nothing: %+v", got)
	}
	for i := 0; b.run.Session.Grant(fmt.Sprintf("d%d.example.org:443", i)); i++ {
	}
	if got, err := New(b.o).Decide(context.Background(), act.Request{Session: "s", Verb: act.VerbCall, Tool: "proxy.add_proxy_domain", Args: []byte(`{"domain":"one.more.example.org:443"}`)}); err == nil || got.Verdict != act.Deny {
		t.Errorf("one grant too many: %v %+v", err, got)
	}
	for args, want := range map[string]act.Verdict{`{"domain":"` + to + `"}`: act.Escalate, `{"domain":"localhost:80"}`: act.Deny} {
		if got := Evaluate(b.run, act.Request{Verb: act.VerbCall, Tool: "proxy.add_proxy_domain", Args: []byte(args)}, Given{}); got.Verdict != want {
			t.Errorf("%s is said to be %+v", args, got)
		}
	}
	if err := New(b.o).Orphan(context.Background(), b.run); err != nil {
		t.Error(err)
	}
}

// TestUngrantable: nobody is asked about what is no name of the public internet.
func TestUngrantable(t *testing.T) {
	for _, to := range []string{"", "a b:443", "[::1]:443", "printer.local:80"} {
		if ungrantable(to) == "" {
			t.Errorf("a person is asked about %q", to)
		}
	}
}
