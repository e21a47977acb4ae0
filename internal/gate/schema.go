package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/google/jsonschema-go/jsonschema"

	"ringfence/internal/act/strictjson"
)

// A schema is the compiled input schema of a tool. It comes from a server, so
// what it takes to check arguments by it is bounded.
type schema struct {
	resolved *jsonschema.Resolved
	size     int          // schemas that can apply to one part of the arguments, and more
	plain    *plainSchema // says the same, if it says anything; nil if there is none
}

// Bounds of checking.
const (
	maxSchema = 10_000  // schemas in one, with everything that is referred to in its place
	maxCheck  = 1 << 31 // schemas times bytes of arguments
)

// schemaOf compiles the input schema of a definition; nil if it has none. A schema
// refers to nothing outside itself.
func schemaOf(def []byte) (*schema, error) {
	at, found, err := strictjson.Find(def, "/inputSchema")
	if !found {
		return nil, err
	}
	var tree any
	var s jsonschema.Schema
	if err := errors.Join(json.Unmarshal(at.Raw, &tree), json.Unmarshal(at.Raw, &s)); err != nil {
		return nil, err
	}
	u := &unfolding{root: tree}
	if err := u.walk(tree, nil); err != nil {
		return nil, err
	}
	resolved, err := s.Resolve(nil)
	return &schema{resolved, u.size, plainOf(tree)}, err
}

// check holds args against the pinned schema. Numbers are judged as doubles: an
// exact reading of 1e999999999 would not end, and one that no double holds is
// refused.
func (t *Tool) check(args []byte) error {
	if t.broken != "" {
		return fmt.Errorf("the schema that the server gives for them cannot be used: %s", t.broken)
	}
	members, err := strictjson.Members(args, strictjson.Limits{})
	if err == nil && t.schema != nil && t.schema.size*len(args) <= maxCheck && t.schema.plain.holds(args, members) {
		return nil
	}
	if err := strictjson.Check(args); err != nil {
		return err
	}
	var v map[string]any
	if err := json.Unmarshal(args, &v); err != nil || v == nil {
		return errors.New("arguments are one JSON object, with numbers that a double holds")
	}
	switch {
	case t.schema == nil:
		return t.prompt.check(args)
	case t.schema.size*len(args) > maxCheck:
		return fmt.Errorf("%d bytes are too many to be checked against a schema of %d parts", len(args), t.schema.size)
	}
	if err := t.schema.resolved.Validate(v); err != nil {
		return t.schema.told(v, err)
	}
	return nil
}

// told is err, which validating v gave, as who made the call can use it: of an argument
// that there is none of, with the one that was probably meant.
func (s *schema) told(v map[string]any, err error) error {
	const unknown = "validating root: unexpected additional properties"
	text := err.Error()
	known := slices.Sorted(maps.Keys(s.resolved.Schema().Properties))
	if strings.HasPrefix(text, unknown) && len(known) > 0 {
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if slices.Contains(known, name) {
				continue
			}
			if near := strictjson.Nearest(name, known); near != "" {
				return fmt.Errorf("there is no argument %q; did you mean %q?", cut(name, 64), cut(near, 64))
			}
			return fmt.Errorf("there is no argument %q; there are %s", cut(name, 64), cut(strings.Join(known, ", "), 512))
		}
	}
	return errors.New(strings.TrimPrefix(text, "validating root: "))
}

// An unfolding is a schema with everything that it refers to in its place. The
// validator walks it once for each part of the arguments, on the stack, so one
// without an end would end the process, and one that applies a schema twice at
// each level of nesting would never end.
type unfolding struct {
	root any
	size int
	open []*entered
}

// An entered schema is one that walk is within.
type entered struct {
	schema map[string]any
	place  []string   // in the arguments, as far as it is known
	again  [][]string // places beneath it where it applies again
}

// A step leads from a place in the arguments to one beneath it: the quoted name
// of a member, or one of these.
const (
	anyMember  = "{"
	anyElement = "["
)

// A keyword applies schemas (JSON Schema 2020-12, chapter 10, and draft-07).
type keyword struct {
	word string
	many bool   // its value is an object whose members are schemas
	step string // from the place where it stands to where they apply; "" is the same
}

// keywords are all that apply schemas. What else a schema says is no schema.
var keywords = []keyword{
	{"allOf", false, ""},
	{"anyOf", false, ""},
	{"oneOf", false, ""},
	{"not", false, ""},
	{"if", false, ""},
	{"then", false, ""},
	{"else", false, ""},
	{"dependentSchemas", true, ""},
	{"dependencies", true, ""},
	{"propertyNames", false, anyMember},
	{"properties", true, "."},
	{"patternProperties", true, anyMember},
	{"additionalProperties", false, anyMember},
	{"unevaluatedProperties", false, anyMember},
	{"prefixItems", false, anyElement},
	{"items", false, anyElement},
	{"additionalItems", false, anyElement},
	{"contains", false, anyElement},
	{"unevaluatedItems", false, anyElement},
}

// misleading are keywords by which the target of a reference depends on more than
// what it says.
var misleading = []string{"$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"}

// walk enters node, which applies at place. What is no object applies nothing.
// Names of keywords are read as loosely as the validator may read them.
func (u *unfolding) walk(node any, place []string) error {
	m, ok := node.(map[string]any)
	if !ok {
		return nil
	}
	if u.size++; u.size > maxSchema {
		return fmt.Errorf("it has more than %d parts", maxSchema)
	}
	u.open = append(u.open, &entered{schema: m, place: place})
	defer func() { u.open = u.open[:len(u.open)-1] }()
	for name, v := range m {
		is := func(word string) bool { return strings.EqualFold(word, name) }
		if slices.ContainsFunc(misleading, is) || is("$id") && len(u.open) > 1 {
			return fmt.Errorf("%s is not understood", name)
		}
		if is("$ref") {
			if err := u.follow(v, place); err != nil {
				return err
			}
		}
		for _, k := range keywords {
			if !is(k.word) {
				continue
			}
			if err := u.apply(k, v, place); err != nil {
				return err
			}
		}
	}
	return nil
}

// apply walks the schemas in the value v of a keyword.
func (u *unfolding) apply(k keyword, v any, place []string) error {
	beneath := place
	if k.step != "" {
		beneath = append(slices.Clip(place), k.step)
	}
	members, object := v.(map[string]any)
	elements, array := v.([]any)
	switch {
	case array:
		for _, s := range elements {
			if err := u.walk(s, beneath); err != nil {
				return err
			}
		}
	case object && !k.many:
		return u.walk(v, beneath)
	case object:
		for name, s := range members {
			if k.step == "." {
				beneath = append(slices.Clip(place), strconv.Quote(name))
			}
			if err := u.walk(s, beneath); err != nil {
				return err
			}
		}
	}
	return nil
}

// follow walks what a reference refers to. A schema may apply to parts of what it
// applies to, once to each.
func (u *unfolding) follow(ref any, place []string) error {
	text, ok := ref.(string)
	target, err := u.find(text)
	if !ok || err != nil {
		return fmt.Errorf("the reference %.100q leads nowhere in it", ref)
	}
	id := reflect.ValueOf(target).Pointer()
	i := slices.IndexFunc(u.open, func(e *entered) bool { return reflect.ValueOf(e.schema).Pointer() == id })
	if i < 0 {
		return u.walk(target, place)
	}
	e := u.open[i]
	again := place[len(e.place):]
	if len(again) == 0 {
		return fmt.Errorf("the reference %.100q has no end", text)
	}
	if slices.ContainsFunc(e.again, func(other []string) bool { return overlap(other, again) }) {
		return fmt.Errorf("the reference %.100q applies twice to one part of the arguments", text)
	}
	e.again = append(e.again, again)
	return nil
}

// find returns the object that a reference within the document names (RFC 6901 in
// a fragment).
func (u *unfolding) find(ref string) (map[string]any, error) {
	pointer, ok := strings.CutPrefix(ref, "#")
	pointer, err := url.PathUnescape(pointer)
	if err == nil && (!ok || pointer != "" && pointer[0] != '/') {
		err = errors.New("not a place in this document")
	}
	node := u.root
	for _, part := range strings.Split(pointer, "/")[1:] {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch n := node.(type) {
		case map[string]any:
			node = n[part]
		case []any:
			i, e := strconv.ParseUint(part, 10, 31)
			if node = nil; e == nil && int(i) < len(n) {
				node = n[i]
			}
		default:
			node = nil
		}
	}
	m, isObject := node.(map[string]any)
	if err == nil && !isObject {
		err = errors.New("no schema")
	}
	return m, err
}

// overlap reports whether two places can be one, or one within the other.
func overlap(a, b []string) bool {
	for i := range min(len(a), len(b)) {
		x, y := a[i], b[i]
		if x != y && (x == anyElement || y == anyElement || x != anyMember && y != anyMember) {
			return false
		}
	}
	return true
}
