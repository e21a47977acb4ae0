package policy

import (
	"strings"
	"testing"

	"ringfence/internal/act"
)

// TestMethods: what methods are, and what an annotation can say of them.
func TestMethods(t *testing.T) {
	a, err := ParseAnnotation("a.json", []byte(`{"name":"a","tools":{
		"resources/read":{"group":"remote","args":{"/uri":{"role":"uri"}}},
		"prompts/get/x":{"args":{}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	if m, ok := a.Method("resources/read"); !ok || m.Group != act.RemoteGroup {
		t.Errorf("what the annotation says of a method is not taken: %+v", m)
	}
	if _, ok := a.Method("prompts/get/x"); ok {
		t.Error("a prompt is a method")
	}
	if _, err := ParseAnnotation("a.json", []byte(`{"name":"a","tools":{"resources/raed":{"args":{}}}}`)); err == nil || !strings.Contains(err.Error(), `did you mean "resources/read"?`) {
		t.Errorf("a method that is none: %v", err)
	}
	asked := 0
	for _, name := range Methods() {
		m, ok := a.Method(name)
		if !ok || !IsMethod(name) {
			t.Errorf("%s is no method", name)
		}
		if err := m.check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if IsAsked(name) {
			asked++
		} else if m.Group == "" {
			t.Errorf("%s has no group", name)
		}
		if IsNotice(name) && IsAsked(name) {
			t.Errorf("%s is both", name)
		}
	}
	if asked != 3 || IsMethod("read_file") {
		t.Errorf("%d methods are asked", asked)
	}
}

// TestMC14Named: only a clause that names it allows what a server asks.
func TestMC14Named(t *testing.T) {
	effect := act.Effect{Kind: act.Answer, Resource: act.Resource{Type: act.Tool, Text: "files.roots/list"}}
	for text, want := range map[string]act.Verdict{
		`permit (principal, action, resource) when { context has tool && context.tool == Tool::"files.roots/list" };`:     act.Allow,
		`permit (principal, action, resource) when { context has tool && context.tool in Server::"files" };`:              act.Deny,
		`permit (principal, action == Action::"call", resource is Tool);`:                                                 act.Deny,
		`permit (principal, action, resource) when { context has tool && context.tool == Tool::"files.resources/read" };`: act.Deny,
	} {
		p := loadText(t, text)
		if d := p.Decide(Query{Principal: "default/agent", Tool: "files.roots/list", Effects: []act.Effect{effect}}); d.Verdict != want {
			t.Errorf("%s\n%s, want %s", text, d.Verdict, want)
		}
	}
}
