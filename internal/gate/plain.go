package gate

import (
	"errors"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A plain schema is one that says of an object only which members it may and must
// have, and of some of them what type they are: what most tools say. Arguments can be
// held against it without being decoded. It only ever says yes: what it does not
// know, and what it would refuse, is the validator's.
type plainSchema struct {
	members  map[string]types // of the members that it can judge
	other    bool             // members that it does not name may be there
	required []string
}

// types are those that a value may have.
type types struct {
	kinds    []strictjson.Kind // nil: any
	whole    bool              // a number has no fraction
	elements *types            // of an array; nil: any
}

var errNotPlain = errors.New("not certainly what the schema wants")

// saysNothing are keywords by which no value is refused.
var saysNothing = []string{"$schema", "$comment", "title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"}

// plainOf returns the plain schema that node is; nil if it is none. The names of
// keywords are compared exactly: in another case they are unknown here, and the
// validator may know them.
func plainOf(node any) *plainSchema {
	m, ok := node.(map[string]any)
	if !ok || m["type"] != "object" {
		return nil
	}
	p := &plainSchema{members: map[string]types{}, other: true}
	for word, v := range m {
		switch list, array := v.([]any); {
		case slices.Contains(saysNothing, word) || word == "type" || word == "$defs" || word == "definitions":
		case word == "additionalProperties":
			if p.other, ok = v.(bool); !ok {
				return nil
			}
		case word == "required" && array:
			for _, name := range list {
				text, ok := name.(string)
				if !ok {
					return nil
				}
				p.required = append(p.required, text)
			}
		case word == "properties":
			named, ok := v.(map[string]any)
			if !ok {
				return nil
			}
			for name, of := range named {
				if t, ok := typesOf(of, true); ok {
					p.members[name] = t
				}
			}
		default:
			return nil
		}
	}
	// A member that it cannot judge is not one that the schema does not name.
	if properties, _ := m["properties"].(map[string]any); len(p.members) < len(properties) {
		p.other = false
	}
	return p
}

// typesOf returns what a schema says, if that is no more than types.
func typesOf(node any, nest bool) (t types, ok bool) {
	m, ok := node.(map[string]any)
	if !ok {
		return t, node == true
	}
	for word, v := range m {
		switch {
		case slices.Contains(saysNothing, word):
		case word == "type":
			if t.kinds, t.whole, ok = kindsOf(v); !ok {
				return t, false
			}
		case word == "items" && nest:
			of, ok := typesOf(v, false)
			if !ok {
				return t, false
			}
			t.elements = &of
		default:
			return t, false
		}
	}
	return t, true
}

// kindsOf reads the value of "type".
func kindsOf(v any) (kinds []strictjson.Kind, whole, ok bool) {
	list, array := v.([]any)
	if !array {
		list = []any{v}
	}
	for _, name := range list {
		switch name {
		case "string":
			kinds = append(kinds, strictjson.String)
		case "boolean":
			kinds = append(kinds, strictjson.True, strictjson.False)
		case "null":
			kinds = append(kinds, strictjson.Null)
		case "object":
			kinds = append(kinds, strictjson.Object)
		case "array":
			kinds = append(kinds, strictjson.Array)
		case "number", "integer":
			kinds = append(kinds, strictjson.Digits)
		default:
			return nil, false, false
		}
		whole = whole || name == "integer"
	}
	return kinds, whole, len(kinds) > 0
}

// holds reports whether args, whose members are those, are certainly what p wants.
func (p *plainSchema) holds(args []byte, members []strictjson.Member) bool {
	if p == nil {
		return false
	}
	for _, name := range p.required {
		if !slices.ContainsFunc(members, func(m strictjson.Member) bool { return m.Name == name }) {
			return false
		}
	}
	for _, m := range members {
		t, named := p.members[m.Name]
		if !named && !p.other || named && !t.hold(args[m.Start:m.End]) {
			return false
		}
	}
	return true
}

func (t types) hold(raw []byte) bool {
	kind := strictjson.Kind(raw[0])
	if kind == '-' || kind >= '0' && kind <= '9' {
		kind = strictjson.Digits
	}
	switch {
	case t.kinds != nil && !slices.Contains(t.kinds, kind):
		return false
	case kind == strictjson.Digits && t.whole:
		return strings.Trim(string(raw), "-0123456789") == ""
	case kind != strictjson.Array || t.elements == nil:
		return true
	}
	// A leaf is an element, unless it lies deeper; an empty array has itself for a leaf.
	return strictjson.Walk(raw, func(v strictjson.Value) error {
		if v.Pointer != "" && (strings.Count(v.Pointer, "/") > 1 || !t.elements.hold(v.Raw)) {
			return errNotPlain
		}
		return nil
	}) == nil
}
