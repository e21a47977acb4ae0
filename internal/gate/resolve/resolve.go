// Package resolve says what a call would really do: it turns the arguments of a
// tool into effects on canonical resources, and into the bytes to dispatch.
//
// It decides nothing and changes nothing; it looks at the file system and at
// git's configuration, runs no program and opens no connection. What it cannot
// resolve for certain it refuses: an error here is a denial.
//
// Invariants:
//
//	R1  Every argument is covered by the annotation, or the call is refused.
//	R2  A path in an effect is absolute and real: no component of it was a link
//	    when it was looked at, other than the last of what is deleted, moved or
//	    run.
//	R3  Resolution.Bytes differs from the given bytes only in values whose
//	    resolved form differs and in members that were absent and have a default.
//	R4  Effects have no duplicates, and their order depends only on the call and
//	    the annotation. There is at least one.
//	R5  Nothing here is unbounded: values, links, files read, commands.
package resolve

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// A View is the file system as one session sees it. All paths in it are
// absolute and real.
type View struct {
	Workspace string
	Home      string   // of the person; "~" in an argument
	OwnState  []string // our home, policy directories, our program: with all beneath
	Later     []string // files that this machine runs later, wherever they are: lists of servers; real paths
	Path      []string // where programs are looked for, in order; nothing an agent can write to
}

// A Call is one call of a tool.
type Call struct {
	Tool       string // "server.tool"
	Args       []byte // as received; an object, or empty
	Annotation *policy.ToolAnnotation
	Dir        string // the server's working directory, absolute and real
}

// A Resolution is what a call means.
type Resolution struct {
	Effects []act.Effect
	Bytes   []byte         // the arguments to dispatch
	Facts   map[string]any // JSON pointer to string, int64 or bool: the arguments as dispatched
	// Of an [Exec]: trees that its box does not have, and those that it cannot change.
	Absent, Fixed []string
	Review        bool // of an Exec: what it changes in the workspace waits for a person
}

// The bounds of one call.
const (
	maxLeaves  = 100_000  // strings, numbers and literals
	maxValues  = 1024     // of them that name a resource; also the words of one command
	maxEffects = 8192     // before duplicates are dropped
	maxFact    = 64 << 10 // bytes of a string that becomes a fact
)

// An Error says why a call or an effect could not be resolved.
type Error struct {
	Pointer string // the argument, as JSON pointer; "" for a named effect
	Value   string // what it was; may be cut
	Why     string // follows the value: "is outside …"
	Hint    string // what to write instead; may be ""
	// NotFound says that it is about the program of a command, which is not there.
	NotFound bool
}

// maxShown bounds how much of a value an error repeats, in bytes.
const maxShown = 160

// Error returns one line without control characters.
func (e *Error) Error() string {
	var b strings.Builder
	if e.Pointer != "" {
		fmt.Fprintf(&b, "argument %s: ", e.Pointer)
	}
	if e.Value != "" {
		v := e.Value
		if len(v) > maxShown {
			v = strings.ToValidUTF8(v[:maxShown], "") + "…"
		}
		fmt.Fprintf(&b, "%q ", v)
	}
	b.WriteString(e.Why)
	if e.Hint != "" {
		b.WriteString("; " + e.Hint)
	}
	return b.String()
}

// bad returns an Error without pointer and value; [valueError] adds them.
func bad(hint, why string, args ...any) *Error {
	return &Error{Why: fmt.Sprintf(why, args...), Hint: hint}
}

// valueError returns err as an Error about the given value at pointer.
func valueError(err error, pointer, value string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return &Error{Pointer: pointer, Value: value, Why: err.Error()}
	}
	out := *e
	if out.Pointer == "" {
		out.Pointer = pointer
	}
	if out.Value == "" {
		out.Value = value
	}
	return &out
}

// Call resolves c. Any error is an [*Error] or a [*strictjson.Error].
func (v View) Call(c Call) (Resolution, error) {
	if c.Annotation == nil {
		return Resolution{}, &Error{Value: c.Tool, Why: "has no annotation that says what its arguments mean"}
	}
	args, err := readArguments(c.Args, c.Annotation)
	if err != nil {
		return Resolution{}, err
	}
	r := resolver{view: v, call: c, args: args, targets: map[string]*target{}}
	args.isPath = r.isPath
	if err := r.resolveAll(); err != nil {
		return Resolution{}, err
	}
	effects, err := r.effects()
	if err != nil {
		return Resolution{}, err
	}
	if len(effects) == 0 {
		effects = []act.Effect{{
			Kind:     act.Call,
			Resource: act.Resource{Type: act.Tool, Text: c.Tool},
			Group:    c.Annotation.Group,
		}}
	}
	out, err := r.splice()
	if err != nil {
		return Resolution{}, err
	}
	facts, err := args.facts()
	return Resolution{Effects: effects, Bytes: out, Facts: facts}, err
}

// A resolver is the state of one call.
type resolver struct {
	view    View
	call    Call
	args    *arguments
	targets map[string]*target // by concrete pointer
	order   []*target          // in the order of the text, defaults last
}

// A target is one value that names a resource, resolved.
type target struct {
	arg     *policy.Arg
	pattern string  // the annotation pointer that covers it
	pointer string  // concrete
	leaves  []int   // the leaves it was read from: one, or the elements of an argv
	atLink  bool    // it is deleted or moved: a link itself, not what it leads to
	busy    bool    // being resolved, to find Base pointers that go in circles
	done    bool    //
	subject subject // what it names
}

// A subject is what a value names. It knows which effects there can be on it.
type subject interface {
	// on returns the effects of kind k; tree widens them to all beneath.
	on(k act.Kind, tree bool) ([]act.Effect, error)
	// real is the value to dispatch; ok is false if the given one must stay.
	real() (value string, ok bool)
}

func (r *resolver) resolveAll() error {
	for i := range r.args.leaves {
		if err := r.addTarget(i); err != nil {
			return err
		}
	}
	for _, t := range r.order {
		if err := r.resolve(t); err != nil {
			return err
		}
	}
	return nil
}

// addTarget notes leaf i if its role names a resource.
func (r *resolver) addTarget(i int) error {
	l := &r.args.leaves[i]
	inArgv := l.arg.Role == policy.RoleCommand && strings.Count(l.pointer, "/") > strings.Count(l.pattern, "/")
	if l.arg.Role == policy.RolePlain || l.kind == strictjson.Null && !inArgv {
		return nil
	}
	if l.kind == strictjson.Array {
		if l.arg.Role == policy.RoleCommand {
			return &Error{Pointer: l.pointer, Why: "is an empty command"}
		}
		return nil
	}
	if l.kind != strictjson.String {
		return &Error{Pointer: l.pointer, Why: fmt.Sprintf("must be a string: it names a %s", l.arg.Role)}
	}
	pointer := l.pointer
	if l.arg.Role == policy.RoleCommand {
		pointer = prefix(l.pointer, strings.Count(l.pattern, "/"))
	}
	t, ok := r.targets[pointer]
	if ok && len(t.leaves) < maxValues {
		t.leaves = append(t.leaves, i)
		return nil
	}
	if ok || len(r.order) == maxValues {
		return &Error{Pointer: l.pointer, Why: fmt.Sprintf("is more than the %d-th value that names something; split the call", maxValues)}
	}
	t = &target{arg: l.arg, pattern: l.pattern, pointer: pointer, leaves: []int{i}}
	r.targets[pointer] = t
	r.order = append(r.order, t)
	return nil
}

// effects returns the effects of every target and of the annotation as a whole.
func (r *resolver) effects() ([]act.Effect, error) {
	var all []act.Effect
	for _, t := range r.order {
		kinds := t.arg.Effects
		for _, w := range t.arg.When {
			holds, err := r.args.holds(w)
			if err != nil {
				return nil, err
			}
			if holds {
				kinds = w.Effects
				break
			}
		}
		t.atLink = slices.Contains(kinds, act.Move) || slices.Contains(kinds, act.Delete)
		for _, k := range kinds {
			got, err := r.on(t, k, t.arg.Tree, slices.Contains(kinds, act.Move))
			if err != nil {
				return nil, err
			}
			all = append(all, got...)
		}
	}
	for _, im := range r.call.Annotation.Effects {
		got, err := r.implied(im)
		if err != nil {
			return nil, err
		}
		all = append(all, got...)
		if len(all) > maxEffects {
			return nil, &Error{Why: fmt.Sprintf("this call has more than %d effects; split it", maxEffects)}
		}
	}
	widenMoves(all)
	return distinct(all), nil
}

// on returns the effects of kind k on t. With moved, t is an end of a move, and
// is overwritten only if something is there.
func (r *resolver) on(t *target, k act.Kind, tree, moved bool) ([]act.Effect, error) {
	p, ok := t.subject.(pathSubject)
	if ok && moved && k == act.Overwrite && !p.exists {
		return nil, nil
	}
	if ok && moved && k == act.Read {
		tree = tree || p.dir() // all of it goes where other rules hold
	}
	got, err := t.subject.on(k, tree)
	if err != nil {
		return nil, valueError(err, t.pointer, r.given(t))
	}
	return got, nil
}

// given returns the value of t as it was given, for messages.
func (r *resolver) given(t *target) string { return r.args.leaves[t.leaves[0]].text }

// implied returns the effects that im adds to this call.
func (r *resolver) implied(im policy.Implied) ([]act.Effect, error) {
	for _, w := range im.When {
		holds, err := r.args.holds(w)
		if err != nil || !holds {
			return nil, err
		}
	}
	if !strings.HasPrefix(im.On, "/") {
		e, err := r.fillTemplate(im)
		if err != nil {
			return nil, err
		}
		return []act.Effect{e}, nil
	}
	var all []act.Effect
	found := false
	for _, t := range r.order {
		if t.pattern != im.On && t.pointer != im.On {
			continue
		}
		found = true
		got, err := r.on(t, im.Kind, im.Tree, false)
		if err != nil {
			return nil, err
		}
		all = append(all, got...)
	}
	if !found {
		return nil, &Error{Pointer: im.On, Why: "is missing, and this call does something to what it names"}
	}
	return all, nil
}

// widenMoves makes every end of a move reach as far as the widest: what moves
// with a directory arrives beneath the other end.
func widenMoves(effects []act.Effect) {
	tree := slices.ContainsFunc(effects, func(e act.Effect) bool { return e.Kind == act.Move && e.Tree })
	for i := range effects {
		if effects[i].Kind == act.Move {
			effects[i].Tree = effects[i].Tree || tree
		}
	}
}

// distinct drops repeated effects and keeps the order of the first ones.
func distinct(effects []act.Effect) []act.Effect {
	if len(effects) < 2 {
		return effects
	}
	type key struct {
		kind act.Kind
		text string
		tree bool
	}
	seen := make(map[key]bool, len(effects))
	out := effects[:0]
	for _, e := range effects {
		k := key{e.Kind, e.Resource.Text, e.Tree}
		if !seen[k] {
			seen[k] = true
			out = append(out, e)
		}
	}
	return out
}
