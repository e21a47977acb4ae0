package policy

import (
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act"
)

// The methods of MCP are decided like tools, under the name of the method: no tool has
// a slash in its name (docs/decisions/0007).

// methods says what the methods of a server do, of a server whose annotation does not
// say otherwise. The protocol has all of them read; whoever knows better of a server
// writes an entry of that name among its tools.
var methods = map[string]ToolAnnotation{
	"resources/read":        {Group: act.Observe, Args: reading, Reads: strangers},
	"resources/subscribe":   {Group: act.Observe, Args: reading},
	"resources/unsubscribe": {Group: act.Observe, Args: map[string]Arg{"/uri": {Role: RolePlain}}},
	"prompts/get":           {Group: act.Observe, Args: anything, Reads: strangers},
	"completion/complete": {Group: act.Observe, Args: map[string]Arg{
		"/*":        {Role: RolePlain},
		"/ref/type": {Role: RolePlain, Enum: []any{"ref/prompt", "ref/resource"}},
		"/ref/uri":  {Role: RoleURI, Effects: []act.Kind{act.List}, Tree: true},
	}},
	"logging/setLevel": {Group: act.Observe, Args: map[string]Arg{"/level": {
		Role: RolePlain,
		Enum: []any{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"},
	}}},
	"tasks/get":              {Group: act.Observe, Args: anything},
	"tasks/result":           {Group: act.Observe, Args: anything},
	"tasks/cancel":           {Group: act.Observe, Args: anything},
	"tasks/update":           {Group: act.Observe, Args: anything},
	"notifications/message":  {Group: act.Observe, Args: anything},
	"notifications/progress": {Group: act.Observe, Args: anything},

	"sampling/createMessage": {Args: anything, Sets: strangers},
	"elicitation/create":     {Args: anything, Sets: strangers},
	"roots/list":             {Args: anything},
}

var (
	anything  = map[string]Arg{"/*": {Role: RolePlain}}
	reading   = map[string]Arg{"/uri": {Role: RoleURI, Effects: []act.Kind{act.Read, act.Fetch}, Real: true}}
	strangers = []act.Label{act.LabelUntrusted}
)

// PromptTool and the name of a prompt make the name under which the definition of the
// prompt is pinned, in an annotation and in a review.
const PromptTool = "prompts/get/"

// IsMethod reports whether name, without that of its server, is the name of a method
// rather than of a tool.
func IsMethod(name string) bool { return strings.Contains(name, "/") }

// Methods returns the names of all methods, sorted.
func Methods() []string { return slices.Sorted(maps.Keys(methods)) }

// IsAsked reports whether a method is one that a server asks its client for.
func IsAsked(name string) bool {
	return name == "sampling/createMessage" || name == "elicitation/create" || name == "roots/list"
}

// IsNotice reports whether a method is a text that a server sends unasked.
func IsNotice(name string) bool { return strings.HasPrefix(name, "notifications/") }

// Method returns what a method of the server does that a describes, false if there is no
// such method.
func (a *Annotation) Method(name string) (ToolAnnotation, bool) {
	m, ok := methods[name]
	if own, given := a.Tools[name]; ok && given {
		m = own
	}
	return m, ok
}
