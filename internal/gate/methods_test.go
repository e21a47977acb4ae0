package gate

import (
	"context"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
	"ringfence/internal/session"
)

const prompts = `{"prompts":[` +
	`{"name":"hello","arguments":[{"name":"who"}]},` +
	`{"name":"bare"},` +
	`{"name":"no good"}]}`

// prompted has the server "files" list its prompts too.
func (b *bench) prompted() *bench {
	b.t.Helper()
	b.list()
	if t := b.decide(act.Request{Verb: act.VerbList, Tool: "files.prompts/list", Args: []byte(prompts)}); t.Verdict != act.Allow {
		b.t.Fatalf("listing prompts: %s", t.Reason)
	}
	b.record.entries, b.record.durable = nil, nil
	return b
}

func method(name, args string) act.Request {
	return act.Request{Verb: act.VerbCall, Tool: "files." + name, Args: []byte(args)}
}

// TestR8Methods: what is no tool is decided like one, by the same steps (R8, MC-23).
func TestR8Methods(t *testing.T) {
	for _, c := range []struct {
		name  string
		setup func(*bench)
		req   act.Request
		code  act.Code // "" allows
		want  string   // part of the reason, or the effects
	}{
		{"a file", nil, method("resources/read", `{"uri":"file:///etc/x"}`), "", "read /etc/x"},
		{"a page", nil, method("resources/read", `{"uri":"https://a.org/x"}`), "", "fetch https://a.org/x"},
		{"another scheme", nil, method("resources/read", `{"uri":"note://x"}`), "", "call files.resources/read"},
		{"a subscription", nil, method("resources/subscribe", `{"uri":"file:///etc/x"}`), "", "read /etc/x"},
		{"MC-23 no URI", nil, method("resources/read", `{"uri":"/etc/x"}`), act.CodeUnresolved, "no absolute URI"},
		{"MC-23 a file that is forbidden", func(b *bench) { b.run.Policy = denies("c1.1") }, method("resources/read", `{"uri":"file:///etc/x"}`), act.CodePolicy, "no."},
		{"an argument too many", nil, method("resources/read", `{"uri":"note://x","as":"root"}`), act.CodeUnresolved, "/as"},
		{"a prompt", nil, method("prompts/get", `{"name":"hello","arguments":{"who":"x"}}`), "", "call files.prompts/get"},
		{"MC-23 an argument the prompt has not", nil, method("prompts/get", `{"name":"hello","arguments":{"whom":"x"}}`), act.CodeInvalid, "did you mean who?"},
		{"MC-23 an argument that is no text", nil, method("prompts/get", `{"name":"hello","arguments":{"who":{"$gt":""}}}`), act.CodeInvalid, "strings"},
		{"no prompt named", nil, method("prompts/get", `{"arguments":{}}`), act.CodeInvalid, "name of a prompt"},
		{"no such prompt", nil, method("prompts/get", `{"name":"helo"}`), act.CodeUnknown, "did you mean hello?"},
		{"a prompt with a name that nobody can be asked about", nil, method("prompts/get", `{"name":"no good"}`), act.CodeUnpinned, "rejected"},
		{
			"a prompt that nobody reviewed", func(b *bench) { b.o.Pins = pinboard{status: PinDrifted}; b.prompted() },
			method("prompts/get", `{"name":"hello"}`), act.CodeUnpinned, "ringfence tools review files.prompts/get/hello",
		},
		{"completing a prompt", nil, method("completion/complete", `{"ref":{"type":"ref/prompt","name":"hello"},"argument":{"name":"who","value":"x"}}`), "", "call files.completion/complete"},
		{"completing a prompt that is hidden", nil, method("completion/complete", `{"ref":{"type":"ref/prompt","name":"no good"}}`), act.CodeUnpinned, "rejected"},
		{"completing the name of a file", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/{name}"}}`), "", "list /etc and everything beneath"},
		{"D11 dots", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"../../sh"}}`), act.CodeInvalid, "relative path"},
		{"D11 a dot", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"a/."}}`), act.CodeInvalid, "relative path"},
		{"D11 absolute", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"/etc/"}}`), act.CodeInvalid, "relative path"},
		{"D11 escapes", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"..%2fetc"}}`), act.CodeInvalid, "relative path"},
		{"D11 a home", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"~root/"}}`), act.CodeInvalid, "relative path"},
		{"D11 no text", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":{"a":1}}}`), act.CodeInvalid, "relative path"},
		{"D11 a backslash", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"..\\etc"}}`), act.CodeInvalid, "relative path"},
		{"D11 beneath", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"a/b..c"}}`), "", "list /etc"},
		{"D11 in the context", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"file:///etc/l/{x}"},"argument":{"name":"x","value":"a"},"context":{"arguments":{"y":".."}}}`), act.CodeInvalid, "relative path"},
		{"D11 no file", nil, method("completion/complete", `{"ref":{"type":"ref/resource","uri":"note://{x}"},"argument":{"name":"x","value":"../a"}}`), "", "call files.completion/complete"},
		{"completing something else", nil, method("completion/complete", `{"ref":{"type":"ref/tool","name":"x"}}`), act.CodeUnresolved, "must be one of"},
		{"a level", nil, method("logging/setLevel", `{"level":"debug"}`), "", "call files.logging/setLevel"},
		{"no level", nil, method("logging/setLevel", `{"level":"loud"}`), act.CodeUnresolved, "must be one of"},
		{"no such method", nil, method("tasks/steal", `{}`), act.CodeUnknown, "no method"},
		{"a method of no server", nil, act.Request{Verb: act.VerbCall, Tool: "other.resources/read"}, act.CodeUnknown, "files"},
		{"un-annotated", func(b *bench) { b.run.Servers["files"].Annotation = nil }, method("resources/read", `{"uri":"note://x"}`), act.CodeUnannotated, "ringfence annotate-tools --servers FILE files"},
		{"a log message", nil, method("notifications/message", `{"level":"info","data":[1]}`), "", "call files.notifications/message"},
		{"a log message that somebody would be asked about", func(b *bench) { b.run.Policy = asks("c1") }, method("notifications/message", `{}`), act.CodeNoAnswer, "Nobody is asked"},
		{"MC-14 sampling", nil, method("sampling/createMessage", `{"maxTokens":1}`), "", "answer files.sampling/createMessage, infer client/any"},
		{"MC-14 elicitation", nil, method("elicitation/create", `{"message":"your age?"}`), "", "answer files.elicitation/create, ask client"},
		{"MC-14 roots", nil, method("roots/list", `{}`), "", "answer files.roots/list"},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := newBench(t, allow).prompted()
			if c.setup != nil {
				c.setup(b)
			}
			got := b.decide(c.req)
			text := got.Reason
			if c.code == "" {
				var effects []string
				for _, e := range got.Effects {
					effects = append(effects, e.String())
				}
				text = strings.Join(effects, ", ")
			}
			if got.Code != c.code || !strings.Contains(text, c.want) {
				t.Errorf("got %s %q: %s\nwant %q about %q", got.Verdict, got.Code, text, c.code, c.want)
			}
		})
	}
}

// TestLabelsOfMethods: what strangers wrote is labelled, a file of this machine is not.
func TestLabelsOfMethods(t *testing.T) {
	for _, c := range []struct {
		req  act.Request
		want []act.Label
	}{
		{method("resources/read", `{"uri":"file:///etc/x"}`), nil},
		{method("resources/read", `{"uri":"note://x"}`), []act.Label{act.LabelUntrusted}},
		{method("prompts/get", `{"name":"hello"}`), []act.Label{act.LabelUntrusted}},
		{method("completion/complete", `{"ref":{"type":"ref/prompt","name":"hello"}}`), nil},
	} {
		b := newBench(t, allow).prompted()
		reply, err := New(b.o).Finish(context.Background(), b.decide(c.req), act.Outcome{Body: []byte(`{}`)})
		if err != nil || !slices.Equal(reply.Labels, c.want) {
			t.Errorf("%s %s: %v, %v", c.req.Tool, c.req.Args, reply.Labels, err)
		}
	}
}

// TestMC14: what a server asks is shown, and recorded, without secrets of this machine,
// and the session knows that a stranger spoke.
func TestMC14(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	b := newBench(t, asks("c1")).list()
	got := b.decide(method("elicitation/create", `{"message":"is it `+token+`?"}`))
	if got.Verdict != act.Allow || strings.Contains(string(got.Bytes), token) || !strings.Contains(string(got.Bytes), "is it ") {
		t.Errorf("the client would be asked %s (%s)", got.Bytes, got.Reason)
	}
	if l := b.run.Session.Labels(); !slices.Contains(l, act.LabelUntrusted) || !slices.Contains(l, act.LabelSecret) {
		t.Errorf("labels: %v", l)
	}
	reply, err := New(b.o).Finish(context.Background(), got, act.Outcome{Body: []byte(`{"content":{"age":"` + token + `"}}`)})
	if err != nil || strings.Contains(string(reply.Body), token) {
		t.Errorf("the server would get %s, %v", reply.Body, err)
	}
}

// TestR8Lists: of each kind of list, what may be seen is shown byte for byte.
func TestR8Lists(t *testing.T) {
	notReading := func(q policy.Query) policy.Decision {
		if strings.Contains(q.Effects[0].Resource.Text, "secret") || q.Effects[0].Kind == act.Infer || q.Effects[0].Resource.Text == "files.roots/list" {
			return policy.Decision{Rules: []string{"c9"}}
		}
		return asks("c1")(q)
	}
	for _, c := range []struct{ name, kind, list, want, note string }{
		{"prompts", "prompts/list", prompts, `{"prompts":[{"name":"hello","arguments":[{"name":"who"}]},{"name":"bare"}]}`, "files.no good (rejected)"},
		{"a resource that may never be read", "resources/list", `{"resources":[{"uri":"file:///secret"},{"uri":"note://x","size":1}]}`, `{"resources":[{"uri":"note://x","size":1}]}`, `files."file:///secret" (policy)`},
		{"a resource without a URI", "resources/list", `{"resources":[{"name":"x"}]}`, `{"resources":[]}`, "without a URI"},
		{"templates", "resources/templates/list", `{"resourceTemplates":[{"uriTemplate":"note://{x}"}]}`, `{"resourceTemplates":[{"uriTemplate":"note://{x}"}]}`, ""},
		{"asks", "asks/list", `{"asks":["sampling/createMessage","roots/list","tools/call",1,"resources/read"]}`, `{"asks":["sampling/createMessage"]}`, "roots/list (policy)"},
	} {
		b := newBench(t, notReading)
		ticket := b.decide(act.Request{Verb: act.VerbList, Tool: "files." + c.kind, Args: []byte(c.list)})
		reply, err := New(b.o).Finish(context.Background(), ticket, act.Outcome{Body: []byte(c.list)})
		if err != nil || string(reply.Body) != c.want || !strings.Contains(reply.Note, c.note) {
			t.Errorf("%s: %v\n%s\nnote %q", c.name, err, reply.Body, reply.Note)
		}
	}
	b := newBench(t, allow)
	b.run.Servers["files"].Annotation = nil
	for kind, list := range map[string]string{
		"prompts/list": prompts, "resources/list": `{"resources":[{"uri":"note://x"}]}`, "asks/list": `{"asks":["roots/list"]}`,
	} {
		ticket := b.decide(act.Request{Verb: act.VerbList, Tool: "files." + kind, Args: []byte(list)})
		reply, err := New(b.o).Finish(context.Background(), ticket, act.Outcome{Body: []byte(list)})
		if err != nil || !strings.Contains(string(reply.Body), ":[]}") {
			t.Errorf("un-annotated, and shown: %s %v", reply.Body, err)
		}
	}
}

// TestR6Prompts: a prompt is used only as it was reviewed.
func TestR6Prompts(t *testing.T) {
	b := newBench(t, allow)
	b.o.Pins = pinboard{status: PinProposed}
	b.prompted()
	s := b.run.Servers["files"]
	hash := s.prompts["hello"].Pin
	use := method("prompts/get", `{"name":"hello"}`)
	s.Repin("prompts/get/hello", "another", PinApproved)
	s.Repin("prompts/get/nothing", hash, PinApproved)
	if got := b.decide(use); got.Code != act.CodeUnpinned {
		t.Errorf("a review of something else counted: %+v", got)
	}
	s.Repin("prompts/get/hello", hash, PinApproved)
	if got := b.decide(use); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	ticket := session.Open{Ticket: act.Ticket{ID: "t", Session: "s", Verb: act.VerbList, Tool: "files.prompts/list"}}
	for list, note := range map[string]string{
		`{"prompts":[{"name":"hello","title":"x"}]}`: "hello (not what was decided)",
		`{"prompts":[{"name":"new"}]}`:               "new (not decided)",
		`{"prompts":[{"name":"bare"}]}`:              "bare (proposed)",
	} {
		if err := b.run.Session.Open(ticket); err != nil {
			t.Fatal(err)
		}
		reply, err := New(b.o).Finish(context.Background(), ticket.Ticket, act.Outcome{Body: []byte(list)})
		if err != nil || string(reply.Body) != `{"prompts":[]}` || !strings.Contains(reply.Note, note) {
			t.Errorf("%s: %s %q %v", list, reply.Body, reply.Note, err)
		}
	}
	s.Annotation.Tools["prompts/get/bare"] = policy.ToolAnnotation{Pins: []string{s.prompts["bare"].Pin}}
	b.prompted()
	if got := b.decide(method("prompts/get", `{"name":"bare"}`)); got.Verdict != act.Allow {
		t.Errorf("a prompt that was shipped: %+v", got)
	}
}

// TestBadPrompts: a list of prompts that cannot be judged shows nothing.
func TestBadPrompts(t *testing.T) {
	for name, list := range map[string]string{
		"not JSON": `{`, "no name": `{"prompts":[{}]}`, "no object": `{"prompts":[1]}`, "twice": `{"prompts":[{"name":"a"},{"name":"a"}]}`,
		"an argument without a name": `{"prompts":[{"name":"a","arguments":[{"name":1}]}]}`,
		"too many":                   `{"prompts":[` + strings.Repeat(`{},`, maxTools) + `{}]}`,
	} {
		if got := newBench(t, allow).decide(act.Request{Verb: act.VerbList, Tool: "files.prompts/list", Args: []byte(list)}); got.Verdict != act.Deny {
			t.Errorf("%s: allowed", name)
		}
	}
	b := newBench(t, allow)
	b.o.Pins = pinboard{err: errFull}
	if got := b.decide(act.Request{Verb: act.VerbList, Tool: "files.prompts/list", Args: []byte(prompts)}); got.Verdict != act.Deny {
		t.Error("a list whose pins cannot be looked up is allowed")
	}
	if got := b.decide(act.Request{Verb: act.VerbList, Tool: "files.secrets/list", Args: []byte(`{}`)}); got.Code != act.CodeUnknown {
		t.Errorf("a list of no kind: %+v", got)
	}
}

// TestEvaluateMethods: a method is evaluated without a server that is up.
func TestEvaluateMethods(t *testing.T) {
	run := newBench(t, allow).run
	run.View = resolve.View{Workspace: "/", Home: "/"}
	if got := Evaluate(run, method("resources/read", `{"uri":"file:///etc/x"}`), Given{}); got.Verdict != act.Allow || got.Effects[0].String() != "read /etc/x" {
		t.Errorf("%+v", got)
	}
	if got := Evaluate(run, method("tasks/steal", `{}`), Given{}); got.Code != act.CodeUnknown {
		t.Errorf("%+v", got)
	}
}
