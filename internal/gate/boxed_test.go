package gate

import (
	"fmt"
	"slices"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// TestOneQuestionForACallAndItsBox: a person who was shown what a command may change is
// not asked again when its box is decided on, once, and for nothing else.
func TestOneQuestionForACallAndItsBox(t *testing.T) {
	b := newBench(t, asks("c1"))
	b.file("a")
	s := b.run.Servers["files"]
	s.Boxes = true
	s.Annotation.Tools = map[string]policy.ToolAnnotation{"run": {Args: map[string]policy.Arg{
		"/command":   {Role: policy.RoleCommand, Effects: []act.Kind{act.Execute}, Base: "/workspace", Real: true},
		"/workspace": {Role: policy.RolePath, Effects: []act.Kind{act.Read}, Tree: true, Default: ".", Real: true},
	}}}
	b.run.View.Path = []string{"/usr/bin"}
	if got := b.decide(listRequest(`{"tools":[{"name":"run"}]}`)); got.Verdict != act.Allow {
		t.Fatalf("%+v", got)
	}
	asked := 0
	b.people.before = func() { asked++ }
	call := func() act.Ticket {
		return b.decide(act.Request{Verb: act.VerbCall, Tool: "files.run", Args: []byte(`{"command":"ls"}`)})
	}
	box := func(call, argv, more string) act.Ticket {
		return b.decide(act.Request{Verb: act.VerbExec, Args: fmt.Appendf(nil, `{"argv":[%s],"write":[%q]%s,"call":%q}`, argv, b.work, more, call)})
	}
	first := call()
	changes := slices.ContainsFunc(first.Effects, func(e act.Effect) bool { return e.Kind == act.Delete && e.Tree })
	if first.Verdict != act.Allow || asked != 1 || !changes {
		t.Fatalf("asked %d times: %+v", asked, first)
	}
	if got := box(first.ID, `"/usr/bin/ls"`, ""); got.Verdict != act.Allow || asked != 1 {
		t.Errorf("its box: asked %d times: %+v", asked, got)
	}
	for name, next := range map[string]func() act.Ticket{
		"a second box of one call":    func() act.Ticket { return box(first.ID, `"/usr/bin/ls"`, "") },
		"another program":             func() act.Ticket { return box(call().ID, `"/usr/bin/id"`, "") },
		"another tree":                func() act.Ticket { return box(call().ID, `"/usr/bin/ls"`, `,"read":["/usr"]`) },
		"the box of a call of nobody": func() act.Ticket { return box("s/999", `"/usr/bin/ls"`, "") },
	} {
		before := asked
		if name != "a second box of one call" && name != "the box of a call of nobody" {
			before++ // for the call
		}
		if got := next(); got.Verdict != act.Allow || asked != before+1 {
			t.Errorf("%s: asked %d times: %+v", name, asked-before, got)
		}
	}
	s.Changes = []string{"/not/there"}
	if got := call(); got.Code != act.CodeUnresolved {
		t.Errorf("%+v", got)
	}
}
