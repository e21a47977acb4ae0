package resolve

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// arguments are the arguments of one call, flat.
type arguments struct {
	src     []byte
	leaves  []leaf         // in the order of the text; defaults last
	at      map[string]int // concrete pointer to index
	end     int            // offset of the closing brace; -1 if src is empty
	members bool           // the object has members
	isPath  func(pointer string) (bool, error)
	edits   []strictjson.Edit
	inserts [][]byte // members to add
}

// A leaf is a string, number, literal or empty container.
type leaf struct {
	pointer    string
	kind       strictjson.Kind
	start, end int    // -1 for a default
	text       string // of a string: its value; of a number: as written
	arg        *policy.Arg
	pattern    string // the annotation pointer that covers it
}

// readArguments reads src strictly and finds the annotation of every leaf.
func readArguments(src []byte, ann *policy.ToolAnnotation) (*arguments, error) {
	a := &arguments{src: src, at: map[string]int{}, end: -1}
	cover := coverage{args: ann.Args}
	if text := bytes.TrimLeft(src, " \t\r\n"); len(text) > 0 {
		if text[0] != '{' {
			return nil, &Error{Why: "the arguments must be an object"}
		}
		if err := strictjson.Walk(src, func(v strictjson.Value) error { return a.add(v, &cover) }); err != nil {
			return nil, err
		}
		a.end = bytes.LastIndexByte(src, '}')
	}
	return a, a.addDefaults(ann)
}

func (a *arguments) add(v strictjson.Value, cover *coverage) error {
	if v.Pointer == "" {
		return nil // the empty object
	}
	a.members = true
	if len(a.leaves) == maxLeaves {
		return &Error{Pointer: v.Pointer, Why: fmt.Sprintf("is more than the %d-th value of this call", maxLeaves)}
	}
	l := leaf{pointer: v.Pointer, kind: v.Kind, start: v.Start, end: v.End}
	switch v.Kind {
	case strictjson.String:
		s, err := v.Text()
		if err != nil {
			return err
		}
		l.text = s
	case strictjson.Digits:
		l.text = string(v.Raw)
	default: // has no text
	}
	empty := v.Kind == strictjson.Null || v.Kind == strictjson.Array || v.Kind == strictjson.Object
	var ok bool
	if l.pattern, l.arg, ok = cover.find(v.Pointer, empty); !ok {
		return cover.unknown(v.Pointer)
	}
	if err := l.check(); err != nil {
		return err
	}
	a.at[l.pointer] = len(a.leaves)
	a.leaves = append(a.leaves, l)
	return nil
}

// check applies Bool and Enum. Null counts as absent.
func (l *leaf) check() error {
	if l.kind == strictjson.Null {
		return nil
	}
	if l.arg.Bool && l.kind != strictjson.True && l.kind != strictjson.False {
		return &Error{Pointer: l.pointer, Value: l.text, Why: "must be true or false, not text or a number"}
	}
	if len(l.arg.Enum) > 0 && !slices.ContainsFunc(l.arg.Enum, l.equals) {
		all, _ := json.Marshal(l.arg.Enum)
		return &Error{Pointer: l.pointer, Value: l.text, Why: "must be one of " + string(all)}
	}
	return nil
}

// addDefaults adds a leaf for every absent argument that has a default. Only
// members of the outermost object can have one.
func (a *arguments) addDefaults(ann *policy.ToolAnnotation) error {
	var pointers []string
	for p, arg := range ann.Args {
		if arg.Default != nil {
			pointers = append(pointers, p)
		}
	}
	slices.Sort(pointers)
	for _, p := range pointers {
		arg := ann.Args[p]
		if strings.LastIndexByte(p, '/') != 0 || p == "/*" {
			return &Error{Pointer: p, Why: "has a default in the annotation, which only whole arguments can have"}
		}
		given, present := a.at[p]
		if present && a.leaves[given].kind != strictjson.Null || !present && a.beneath(p) {
			continue
		}
		l := leaf{pointer: p, start: -1, arg: &arg, pattern: p}
		if present {
			l.start, l.end = a.leaves[given].start, a.leaves[given].end
		}
		switch d := arg.Default.(type) {
		case string:
			l.kind, l.text = strictjson.String, d
		case bool:
			l.kind = strictjson.False
			if d {
				l.kind = strictjson.True
			}
		default:
			n, ok := number(d)
			if !ok {
				return &Error{Pointer: p, Why: "has a default in the annotation that is no string, number or boolean"}
			}
			l.kind, l.text = strictjson.Digits, n
		}
		if present {
			a.leaves[given] = l
			continue
		}
		a.at[p] = len(a.leaves)
		a.leaves = append(a.leaves, l)
	}
	return nil
}

// beneath reports whether any leaf lies beneath pointer.
func (a *arguments) beneath(pointer string) bool {
	for i := range a.leaves {
		rest, ok := strings.CutPrefix(a.leaves[i].pointer, pointer)
		if ok && strings.HasPrefix(rest, "/") {
			return true
		}
	}
	return false
}

// text returns the string at a concrete pointer, "" if there is none.
func (a *arguments) text(pointer string) string {
	if i, ok := a.at[pointer]; ok && a.leaves[i].kind == strictjson.String {
		return a.leaves[i].text
	}
	return ""
}

// holds reports whether w and all in its And hold. Defaults count as given.
func (a *arguments) holds(w policy.When) (bool, error) {
	if w.Arg != "" {
		ok, err := a.test(w)
		if err != nil || !ok {
			return false, err
		}
	}
	for _, and := range w.And {
		ok, err := a.holds(and)
		if err != nil || !ok {
			return false, err
		}
	}
	return true, nil
}

func (a *arguments) test(w policy.When) (bool, error) {
	i, ok := a.at[w.Arg]
	var l *leaf
	if ok && a.leaves[i].kind != strictjson.Null {
		l = &a.leaves[i]
	}
	switch {
	case w.Equals != nil:
		return l != nil && l.equals(w.Equals), nil
	case w.In != nil:
		return l != nil && slices.ContainsFunc(w.In, l.equals), nil
	}
	switch w.Is {
	case "present":
		return l != nil || a.beneath(w.Arg), nil
	case "absent":
		return l == nil && !a.beneath(w.Arg), nil
	case "truthy":
		return l != nil && l.kind == strictjson.True, nil
	case "falsy":
		return l == nil && !a.beneath(w.Arg) || l != nil && l.kind == strictjson.False, nil
	}
	if w.Is == "path" && a.isPath != nil {
		return a.isPath(w.Arg)
	}
	return false, &Error{Pointer: w.Arg, Why: fmt.Sprintf("has a condition in the annotation that tests nothing: is %q", w.Is)}
}

// equals compares with a value of an annotation.
func (l *leaf) equals(want any) bool {
	switch w := want.(type) {
	case string:
		return l.kind == strictjson.String && l.text == w
	case bool:
		return w && l.kind == strictjson.True || !w && l.kind == strictjson.False
	}
	n, ok := number(want)
	if !ok || l.kind != strictjson.Digits {
		return false
	}
	if n == l.text {
		return true
	}
	x, err1 := strconv.ParseFloat(n, 64)
	y, err2 := strconv.ParseFloat(l.text, 64)
	return err1 == nil && err2 == nil && x == y
}

// number returns the text of a number of an annotation, however it was decoded.
func number(v any) (string, bool) {
	switch n := v.(type) {
	case float64:
		return strconv.FormatFloat(n, 'f', -1, 64), true
	case strictjson.Number:
		return string(n), true
	}
	return "", false
}

// maxDeepFacts is how many arguments there may be for those beneath others to be
// facts too.
const maxDeepFacts = 4096

// facts returns the arguments for policy: long strings and fractions are absent,
// as is what lies deeper in very many; integers that no policy can hold are an
// error.
func (a *arguments) facts() (map[string]any, error) {
	facts := make(map[string]any, len(a.leaves))
	for i := range a.leaves {
		l := &a.leaves[i]
		if len(a.leaves) > maxDeepFacts && strings.LastIndexByte(l.pointer, '/') > 0 {
			continue
		}
		switch l.kind {
		case strictjson.String:
			if len(l.text) <= maxFact {
				facts[l.pointer] = l.text
			}
		case strictjson.True, strictjson.False:
			facts[l.pointer] = l.kind == strictjson.True
		case strictjson.Digits:
			n, whole, err := integer(l.text)
			if err != nil {
				return nil, valueError(err, l.pointer, l.text)
			}
			if whole {
				facts[l.pointer] = n
			}
		default: // is no fact
		}
	}
	return facts, nil
}

func integer(s string) (n int64, whole bool, err error) {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n, true, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil || math.Abs(f) >= 1<<63 {
		return 0, false, bad("", "is beyond the range of 64-bit integers")
	}
	if f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false, nil
	}
	return int64(f), true, nil
}

// splice returns the bytes to dispatch: those given, with every target whose
// real value differs changed. A remote that git would have chosen is named, even
// to a tool that takes no URL.
func (r *resolver) splice() ([]byte, error) {
	for _, t := range r.order {
		l := &r.args.leaves[t.leaves[0]]
		value, ok := t.dispatch(l.text)
		if !ok {
			continue
		}
		if err := r.args.replace(l, value); err != nil {
			return nil, err
		}
	}
	return r.args.dispatch()
}

// dispatch returns the value to dispatch for t in place of given, if another.
func (t *target) dispatch(given string) (value string, ok bool) {
	switch s := t.subject.(type) {
	case pathSubject:
		if t.arg.Real && t.atLink && s.link != "" {
			return s.link, true
		}
	case *remoteSubject:
		if !t.arg.Real && given == defaultRemote {
			return s.name, s.name != ""
		}
	}
	if !t.arg.Real {
		return "", false
	}
	return t.subject.real()
}

// replace makes value the text of l, in the facts and in what is dispatched.
func (a *arguments) replace(l *leaf, value string) error {
	quoted, err := strictjson.Quote(value)
	if err != nil {
		return fmt.Errorf("writing argument %s: %w", l.pointer, err)
	}
	given := a.written(l)
	l.text = value
	if l.start >= 0 {
		if value != given {
			a.edits = append(a.edits, strictjson.Edit{Start: l.start, End: l.end, New: quoted})
		}
		return nil
	}
	name, err := strictjson.Quote(unescapeToken(l.pointer[1:]))
	if err != nil {
		return fmt.Errorf("writing argument %s: %w", l.pointer, err)
	}
	a.inserts = append(a.inserts, slices.Concat(name, []byte(":"), quoted))
	return nil
}

// written returns the string that stands in src at l; "" for anything else.
func (a *arguments) written(l *leaf) string {
	if l.start < 0 {
		return ""
	}
	s, _ := strictjson.Text(a.src[l.start:l.end]) // what is no string reads as ""
	return s
}

func (a *arguments) dispatch() ([]byte, error) {
	if len(a.inserts) > 0 {
		list := bytes.Join(a.inserts, []byte(","))
		if a.end < 0 {
			return slices.Concat([]byte("{"), list, []byte("}")), nil
		}
		if a.members {
			list = append([]byte(","), list...)
		}
		a.edits = append(a.edits, strictjson.Edit{Start: a.end, End: a.end, New: list})
	}
	if len(a.edits) == 0 {
		return a.src, nil
	}
	return strictjson.Splice(a.src, a.edits)
}
