// Package draft writes the first annotation of a server that nobody has
// described, by rule, from what the server lists of its tools.
//
// It is not a reviewer and what it writes is not to be enforced as it is: the
// names and schemas it reads are the server's own words. A person corrects the
// draft before it decides anything. It does no I/O and asks no model.
//
// Invariants:
//
//	D1  A draft is an annotation that policy.ParseAnnotation accepts.
//	D2  Every member that a schema names is covered by a pointer, or a [Doubt]
//	    says that it is not; a call that uses one that is not is denied.
//	D3  What cannot be told is a Doubt. A tool with a Doubt has no group, and so
//	    counts as all but observing.
//	D4  Descriptions and hints of a server add roles, effects and doubts. They
//	    never make a role plain, take an effect away or give a group.
//	D5  The same list gives the same draft, and no list makes one without bound.
package draft

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// Bounds of a draft.
const (
	maxTools  = 2000
	maxNodes  = 4096 // schemas looked at for one tool, those behind references each time
	maxLeaves = 512  // values of one tool
	maxDepth  = 12   // schemas within schemas
	maxName   = 128  // bytes of the name of a tool or of a member
	maxText   = 4096 // bytes looked at of a description
)

// Somewhere stands for an address that nothing tells: the draft of a tool that may
// send something, to whom no argument says, has the effect of sending it there.
// The name cannot exist (RFC 2606), so no clause means it, and the call is not
// allowed for its other effects alone. Whoever knows better takes it out.
const Somewhere = "https://unknown.invalid/"

// A Doubt is what the rules could not tell of a tool.
type Doubt struct {
	Tool     string `json:"tool"`               // as the server wrote it, perhaps cut
	Argument string `json:"argument,omitempty"` // JSON pointer; "" for the tool as a whole
	Why      string `json:"why"`                // without words of the server
}

// Draft drafts the annotation named server from list, the result of a
// tools/list with all its pages: {"tools":[…]}. Doubts come in the order of the
// names of the tools, then of the pointers. A tool that cannot be drafted is left
// out, which a Doubt says, and stays denied. It is an error if list is not strict
// JSON, has too many tools or two of one name, or if server is no name.
func Draft(server string, list []byte) (policy.Annotation, []Doubt, error) {
	a := policy.Annotation{Name: server, Tools: map[string]policy.ToolAnnotation{}}
	defs, err := definitions(list)
	if err != nil {
		return policy.Annotation{}, nil, fmt.Errorf("reading the tools of %s: %w", server, err)
	}
	var doubts []Doubt
	seen := map[string]bool{}
	for _, def := range defs {
		name, _ := def["name"].(string)
		if !goodName(name) {
			doubts = append(doubts, Doubt{Tool: clip(name, maxName), Why: "its name is one that clients refuse, so it is left out"})
			continue
		}
		if seen[name] {
			return policy.Annotation{}, nil, fmt.Errorf("reading the tools of %s: %s is listed twice", server, name)
		}
		seen[name] = true
		drafted, own, ok := draftTool(server, name, def)
		if ok {
			a.Tools[name] = drafted
		}
		doubts = append(doubts, own...)
	}
	slices.SortStableFunc(doubts, func(x, y Doubt) int {
		return cmp.Or(cmp.Compare(x.Tool, y.Tool), cmp.Compare(x.Argument, y.Argument))
	})
	if _, err := policy.ParseAnnotation(server+".json", Format(a)); err != nil {
		return policy.Annotation{}, nil, fmt.Errorf("drafting: %w", err)
	}
	return a, doubts, nil
}

func definitions(list []byte) ([]map[string]any, error) {
	top, err := strictjson.Decode(list)
	if err != nil {
		return nil, err
	}
	object, _ := top.(map[string]any)
	tools, ok := object["tools"].([]any)
	if !ok {
		return nil, errors.New(`it is not {"tools": […]}`)
	}
	if len(tools) > maxTools {
		return nil, fmt.Errorf("%d tools, more than %d", len(tools), maxTools)
	}
	defs := make([]map[string]any, len(tools))
	for i, t := range tools {
		if defs[i], ok = t.(map[string]any); !ok {
			return nil, errors.New("a definition that is no object")
		}
	}
	return defs, nil
}

// A tool is what is known of one tool while it is drafted.
type tool struct {
	name   string
	words  []string // of its name
	does   class
	leaves []leaf
	args   map[string]policy.Arg
	doubts []Doubt

	files  bool // its name speaks of files
	git    bool // it is of a server for git
	repo   bool // an argument names a repository
	hosted bool // repositories are named as a hosting service names them
	abroad bool // it may reach beyond this machine, and no argument says where to
}

func draftTool(server, name string, def map[string]any) (policy.ToolAnnotation, []Doubt, bool) {
	t := &tool{name: name, words: split(name), args: map[string]policy.Arg{}}
	w := walker{root: def["inputSchema"], left: maxNodes, doubt: t.doubt}
	if t.leaves = w.walk(); w.full {
		t.doubts = nil
		t.doubt("", "its schema is too large, so it is left out")
		return policy.ToolAnnotation{}, t.doubts, false
	}
	t.files = slices.ContainsFunc(t.words, speaksOfFiles)
	t.git = slices.Contains(split(server), "git") || slices.Contains(t.words, "git")
	t.repo = slices.ContainsFunc(t.leaves, func(l leaf) bool { return l.text && isRepo(l.words) })
	t.hosted = t.repo && (t.has("owner") || t.has("org") || t.has("organization"))
	t.does = classOf(t.words)
	t.choices()
	t.settle()
	for _, l := range t.leaves {
		t.draftArg(l)
	}
	out := policy.ToolAnnotation{Args: t.args}
	if t.hints(def) {
		out.Reads = []act.Label{act.LabelUntrusted}
	}
	if t.does == observes && len(t.doubts) == 0 {
		out.Group = act.Observe
	}
	effects := slices.ContainsFunc(slices.Collect(maps.Values(t.args)), func(a policy.Arg) bool { return len(a.Effects) > 0 })
	if effects && (t.abroad || t.does&unclear != 0) {
		out.Effects = []policy.Implied{{Kind: act.Send, On: Somewhere}}
	}
	return out, t.doubts, true
}

func (t *tool) doubt(pointer, why string) {
	d := Doubt{Tool: t.name, Argument: pointer, Why: why}
	if !slices.Contains(t.doubts, d) {
		t.doubts = append(t.doubts, d)
	}
}

// has reports whether the last word of any argument is word.
func (t *tool) has(word string) bool {
	return slices.ContainsFunc(t.leaves, func(l leaf) bool {
		return len(l.words) > 0 && singular(l.words[len(l.words)-1]) == word
	})
}

// choices lets an argument that selects what the tool does count like its name.
func (t *tool) choices() {
	for _, l := range t.leaves {
		if !l.text || len(l.words) != 1 || !selectors.has(l.words[0]) {
			continue
		}
		if !l.closed {
			if selectsFreely.has(l.words[0]) {
				t.does |= unclear
				t.doubt(l.pointer, "it selects what the tool does, and the schema does not list what there is")
			}
			continue
		}
		var all class
		unknown := false
		for choice := range maps.Keys(l.choices) {
			c := classOf(split(choice))
			all |= c
			unknown = unknown || c == 0
		}
		if all == 0 {
			continue
		}
		if unknown {
			all |= unclear
		}
		if t.does|all != t.does {
			t.does |= all
			t.doubt(l.pointer, "it selects what the tool does, and the draft takes all of that together")
		}
	}
}

// settle decides what is taken for the verb of the tool.
func (t *tool) settle() {
	var why string
	switch {
	case (t.git || t.repo) && !t.hosted && t.does != observes:
		why = "it works on a repository, and effects on repositories and remotes are not drafted"
	case t.does == 0:
		why = "nothing in its name says what it does"
	case t.does&unclear != 0:
		why = "its name does not say clearly what it does"
	default:
		return
	}
	t.does |= unclear
	t.doubt("", why+", so the widest effects are assumed")
}

// draftArg gives l its role, and the effects that follow from it.
func (t *tool) draftArg(l leaf) {
	role, why := t.guess(l)
	pointer := l.pointer
	if role == policy.RoleCommand && l.list != "" {
		pointer = l.list // an argv is one value
	}
	if why != "" {
		t.doubt(pointer, why)
	}
	t.abroad = t.abroad || why == aRemote.why || why == aPackage.why
	a := policy.Arg{Role: role}
	switch role {
	case policy.RolePath:
		a.Effects, a.Tree = t.onPath(l)
		a.Real = true
	case policy.RoleURL:
		a.Effects, a.Real = t.onURL(), true
	case policy.RoleHost:
		a.Effects = []act.Kind{act.Resolve, act.Connect}
	case policy.RoleCommand:
		a.Effects = []act.Kind{act.Execute}
	case policy.RoleRecipient:
		a.Effects, a.Real = []act.Kind{act.Message}, true
	default: // the others have no effects of their own
	}
	t.args[pointer] = a
}

// hints looks for signs in the rest of the definition that the name of the tool
// says too little, and reports whether strangers may have written its results.
func (t *tool) hints(def map[string]any) (strangers bool) {
	hints, _ := def["annotations"].(map[string]any)
	says := func(hint string, value bool) bool { b, ok := hints[hint].(bool); return ok && b == value }
	if t.does == observes && (says("destructiveHint", true) || says("readOnlyHint", false)) {
		t.doubt("", "its name says that it only looks, and its hints say otherwise")
	}
	about, _ := def["description"].(string)
	reaches := t.does&(fetches|sends) != 0 || says("openWorldHint", true) ||
		slices.ContainsFunc(t.words, func(w string) bool { return webWords.has(w) }) || speaksOfWeb().MatchString(clip(about, maxText))
	named := false // where to
	for _, a := range t.args {
		strangers = strangers || a.Role == policy.RoleURL || a.Role == policy.RoleHost
		named = named || a.Role == policy.RoleURL || a.Role == policy.RoleHost || a.Role == policy.RoleRecipient
	}
	if reaches && !named {
		t.abroad = true
		t.doubt("", "it may reach beyond this machine, and no argument says where to")
	}
	return strangers || reaches
}

// goodName reports whether clients can call a tool by that name.
func goodName(name string) bool {
	for _, c := range []byte(name) {
		if c != '_' && c != '-' && c != '.' && (c < '0' || c > '9') && (c < 'A' || c > 'Z') && (c < 'a' || c > 'z') {
			return false
		}
	}
	return name != "" && len(name) <= maxName
}
