package draft

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A leaf is one value that a schema has a place for: no object or array of which
// the schema says more.
type leaf struct {
	pointer string
	list    string // pointer of the array that it is a direct element of, or ""
	words   []string
	about   string // what descriptions say of it, in lower case
	format  string
	text    bool            // it may be a string, or hold strings
	closed  bool            // as a string it is one of choices
	choices map[string]bool // the strings that the schema lists
}

// A place is where a schema stands.
type place struct {
	pointer string
	list    string
	name    string // of the nearest member
	about   string
	depth   int
}

// A walker reads the schema of the arguments of one tool, in the dialects that
// servers use (JSON Schema, drafts 4 to 2020-12). Keywords that it does not know
// are left out: what only they allow is covered by no pointer, and so denied.
type walker struct {
	root   any
	left   int  // how many schemas may still be looked at
	full   bool // there were more
	doubt  func(pointer, why string)
	leaves map[string]*leaf
}

// walk returns the leaves in the order of their pointers.
func (w *walker) walk() []leaf {
	w.leaves = map[string]*leaf{}
	schema, ok := w.root.(map[string]any)
	if !ok {
		w.doubt("", "it has no schema, so any argument is denied")
		return nil
	}
	w.object(schema, place{})
	var all []leaf
	for _, p := range slices.Sorted(maps.Keys(w.leaves)) {
		all = append(all, *w.leaves[p])
	}
	return all
}

// spend counts one more schema and reports whether it is to be looked at.
func (w *walker) spend(at place) bool {
	w.left--
	if w.left < 0 || len(w.leaves) > maxLeaves {
		w.full = true
		return false
	}
	if at.depth > maxDepth {
		w.doubt(at.pointer, "its schema is nested too deeply, so it is not covered, and a call that uses it is denied")
		return false
	}
	return true
}

// alternatives calls visit for every schema that speaks of the same value as
// schema, and reports whether there was one. With conditions it leaves out those
// that can only narrow what others allow and say nothing of types.
func (w *walker) alternatives(schema map[string]any, at place, visit func(map[string]any, place)) (found bool) {
	at.depth++
	see := func(s map[string]any) { found = true; visit(s, at) }
	if ref, ok := schema["$ref"].(string); ok {
		if target := w.lookUp(ref); target != nil {
			see(target)
		} else {
			w.doubt(at.pointer, "its schema refers to something that is not in it")
		}
	}
	if schema["$dynamicRef"] != nil || schema["$recursiveRef"] != nil {
		w.doubt(at.pointer, "its schema refers to something that is not followed")
	}
	for _, k := range []string{"anyOf", "oneOf"} {
		list, _ := schema[k].([]any)
		for _, s := range list {
			if m, ok := s.(map[string]any); ok {
				see(m)
			} else if s == true {
				see(map[string]any{})
			}
		}
	}
	conditions, _ := schema["allOf"].([]any)
	conditions = slices.Concat(conditions, []any{schema["if"], schema["then"], schema["else"]}, values(schema["dependentSchemas"]))
	for _, s := range conditions {
		if m, ok := s.(map[string]any); ok && says(m) {
			see(m)
		}
	}
	return found
}

// says reports whether a schema says what it is about, and not only which of
// the values that others allow.
func says(schema map[string]any) bool {
	for _, k := range []string{"$ref", "anyOf", "oneOf", "allOf"} {
		if schema[k] != nil {
			return true
		}
	}
	return len(typesOf(schema)) > 0
}

// values returns the members of an object in the order of their names.
func values(v any) (all []any) {
	m, _ := v.(map[string]any)
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, m[k])
	}
	return all
}

// lookUp follows a reference within the schema; nil if it leads nowhere.
func (w *walker) lookUp(ref string) map[string]any {
	path, ok := strings.CutPrefix(ref, "#")
	at := w.root
	for ok && path != "" {
		var token string
		if token, ok = strings.CutPrefix(path, "/"); !ok {
			break
		}
		token, path, _ = strings.Cut(token, "/")
		if path != "" {
			path = "/" + path
		}
		token = strings.NewReplacer("~1", "/", "~0", "~").Replace(token)
		switch v := at.(type) {
		case map[string]any:
			at = v[token]
		case []any:
			i, err := strconv.Atoi(token)
			if ok = err == nil && i >= 0 && i < len(v); ok {
				at = v[i]
			}
		default:
			ok = false
		}
	}
	m, _ := at.(map[string]any)
	if !ok {
		return nil
	}
	return m
}

// A shape is what the schemas of one object say of its members together.
type shape struct {
	named  bool // some have names, or a schema for any name
	open   bool // there may be others
	closed bool // there may be no others
}

// object reads the schema of an object, perhaps of all arguments.
func (w *walker) object(schema map[string]any, at place) {
	var s shape
	w.members(schema, at, &s)
	switch {
	case at.pointer == "" && (s.open || !s.named && !s.closed):
		w.doubt("", "it takes arguments that its schema does not name; a call with one of them is denied")
	case at.pointer == "":
	case s.named && s.open:
		w.doubt(at.pointer, "it takes members that its schema does not name; a call with one of them is denied")
	case s.named:
	case s.closed:
		w.add(at, nil, false)
	default:
		w.doubt(at.pointer, "it takes whatever members it is given, and they are judged by its name alone")
		w.add(at, nil, true)
	}
}

func (w *walker) members(schema map[string]any, at place, s *shape) {
	if !w.spend(at) {
		s.named = true // what is not looked at is not covered by the whole either
		return
	}
	w.alternatives(schema, at, func(m map[string]any, at place) { w.members(m, at, s) })
	props, _ := schema["properties"].(map[string]any)
	// No members at all are said of the arguments of many tools, and of nothing else.
	s.named = s.named || len(props) > 0 || at.pointer == "" && props != nil
	for _, name := range slices.Sorted(maps.Keys(props)) {
		if name == "" || len(name) > maxName || name != "*" && strings.Contains(name, "*") {
			w.doubt(at.pointer, "it has a member whose name no pointer can have, so a call that uses it is denied")
			continue
		}
		w.value(props[name], place{pointer: at.pointer + "/" + strictjson.Escape(name), name: name, depth: at.depth + 1})
	}
	free := values(schema["patternProperties"])
	switch more := schema["additionalProperties"].(type) {
	case bool:
		s.open, s.closed = s.open || more, s.closed || !more
	case map[string]any:
		free = append(free, more)
	}
	for _, v := range free {
		s.named = true
		others := place{pointer: at.pointer + "/*", name: at.name, about: at.about, depth: at.depth + 1}
		w.doubt(others.pointer, "the names of these members are free, and names are not judged")
		w.value(v, others)
	}
}

// value reads the schema of one value.
func (w *walker) value(schema any, at place) {
	if !w.spend(at) {
		return
	}
	m, ok := schema.(map[string]any)
	if !ok {
		if schema != false {
			w.doubt(at.pointer, "its schema does not say what it holds")
		}
		w.add(at, nil, schema != false)
		return
	}
	if about, ok := m["description"].(string); ok {
		at.about = clip(at.about+" "+strings.ToLower(clip(about, maxText)), maxText)
	}
	types := typesOf(m)
	if types["object"] {
		w.object(m, at)
	}
	if types["array"] {
		w.elements(m, at)
	}
	delete(types, "object")
	delete(types, "array")
	switch {
	case len(types) > 0:
		w.add(at, m, types["string"])
	case len(typesOf(m)) > 0:
	case w.alternatives(m, at, func(s map[string]any, at place) { w.value(s, at) }):
	default:
		w.doubt(at.pointer, "its schema does not say what it holds")
		w.add(at, m, true)
	}
}

// elements reads what schema says of the elements of an array.
func (w *walker) elements(schema map[string]any, at place) {
	each := place{pointer: at.pointer + "/*", list: at.pointer, name: at.name, about: at.about, depth: at.depth + 1}
	found := false
	for _, k := range []string{"prefixItems", "items", "additionalItems"} {
		v, ok := schema[k]
		if !ok {
			continue
		}
		list, isList := v.([]any)
		if !isList {
			list = []any{v}
		}
		for _, s := range list {
			w.value(s, each)
			found = true
		}
	}
	if !found {
		w.value(nil, each)
	}
}

// typesOf returns the types that a schema allows by itself; none if it leaves
// that to others.
func typesOf(schema map[string]any) map[string]bool {
	types := map[string]bool{}
	switch t := schema["type"].(type) {
	case string:
		types[t] = true
		return types
	case []any:
		for _, v := range t {
			if s, ok := v.(string); ok {
				types[s] = true
			}
		}
		return types
	}
	for k, t := range map[string]string{
		"properties": "object", "additionalProperties": "object", "patternProperties": "object",
		"items": "array", "prefixItems": "array",
	} {
		if schema[k] != nil {
			types[t] = true
		}
	}
	for _, v := range constants(schema) {
		if _, ok := v.(string); ok {
			types["string"] = true
		} else {
			types["other"] = true
		}
	}
	return types
}

// constants returns the values that a schema lists, nil if it lists none.
func constants(schema map[string]any) []any {
	if v, ok := schema["const"]; ok {
		return []any{v}
	}
	all, _ := schema["enum"].([]any)
	return all
}

// add adds a leaf, or what one more schema says of it.
func (w *walker) add(at place, schema map[string]any, text bool) {
	l := w.leaves[at.pointer]
	if l == nil {
		l = &leaf{pointer: at.pointer, list: at.list, words: split(at.name), closed: true, choices: map[string]bool{}}
		w.leaves[at.pointer] = l
	}
	if f, ok := schema["format"].(string); ok && l.format == "" {
		l.format = f
	}
	l.about = clip(l.about+at.about, maxText)
	if !text {
		return
	}
	l.text = true
	listed := constants(schema)
	l.closed = l.closed && len(listed) > 0
	for _, v := range listed {
		if s, ok := v.(string); ok {
			l.choices[s] = true
		}
	}
}

// clip returns the beginning of s, at most n bytes.
func clip(s string, n int) string {
	if len(s) > n {
		return strings.ToValidUTF8(s[:n], "")
	}
	return s
}
