package strictjson

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// A Number is a JSON number as it was written. It is never rounded.
type Number string

// MarshalJSON returns the text of n, or an error if that is no JSON number.
func (n Number) MarshalJSON() ([]byte, error) {
	v := jsontext.Value(n)
	if v.Kind() != '0' || !v.IsValid() || strings.ContainsAny(string(n), " \t\r\n") {
		return nil, fmt.Errorf("writing number: %w: %q", ErrType, clip(string(n)))
	}
	return v, nil
}

// UnmarshalJSON takes in a JSON number and refuses anything else.
func (n *Number) UnmarshalJSON(b []byte) error {
	if jsontext.Value(b).Kind() != '0' {
		return fmt.Errorf("%w: a number was expected", ErrType)
	}
	*n = Number(b)
	return nil
}

// Decode checks src and returns it as Go values: nil, bool, string, [Number],
// []any, map[string]any. Empty arrays and objects are not nil.
func Decode(src []byte) (any, error) { return DecodeLimits(src, Limits{}) }

// DecodeLimits is [Decode] with other bounds.
func DecodeLimits(src []byte, l Limits) (any, error) {
	var b builder
	if err := scan(src, l, b.see); err != nil {
		return nil, err
	}
	return b.root, nil
}

// A builder puts values together from the events of a scan.
type builder struct {
	root  any
	stack []open
}

// An open container: one of the two is not nil.
type open struct {
	object map[string]any
	array  []any
	name   string
}

func (b *builder) see(ev event) error {
	if ev.name {
		name, err := Text(ev.raw)
		b.stack[len(b.stack)-1].name = name
		return err
	}
	switch ev.kind {
	case '{':
		b.stack = append(b.stack, open{object: map[string]any{}})
	case '[':
		b.stack = append(b.stack, open{array: []any{}})
	case '}', ']':
		top := b.stack[len(b.stack)-1]
		b.stack = b.stack[:len(b.stack)-1]
		if top.object != nil {
			b.put(top.object)
			break
		}
		b.put(top.array)
	case '"':
		s, err := Text(ev.raw)
		b.put(s)
		return err
	case '0':
		b.put(Number(ev.raw))
	case 'n':
		b.put(nil)
	default:
		b.put(ev.kind == 't')
	}
	return nil
}

func (b *builder) put(v any) {
	if len(b.stack) == 0 {
		b.root = v
		return
	}
	top := &b.stack[len(b.stack)-1]
	if top.object != nil {
		top.object[top.name] = v
		return
	}
	top.array = append(top.array, v)
}

// Unmarshal checks src and decodes it into v as package json does, but strictly:
// names match exactly and members that v has no field for are refused, with the
// field that was probably meant. Errors are [*Error]s and begin with line:column.
//
// Fields may be of type [Number] for exact numbers, and of type json.RawMessage
// of the standard library for a value's own bytes.
func Unmarshal(src []byte, v any) error {
	if err := Check(src); err != nil {
		return withLines(err)
	}
	err := json.Unmarshal(src, v, json.RejectUnknownMembers(true))
	if err == nil {
		return nil
	}
	var s *json.SemanticError
	if !errors.As(err, &s) {
		return withLines(syntax(src, err))
	}
	return withLines(semantic(src, s))
}

func withLines(err error) error {
	if e, ok := errors.AsType[*Error](err); ok {
		e.lines = true
	}
	return err
}

func semantic(src []byte, s *json.SemanticError) *Error {
	offset := int(s.ByteOffset)
	if v, ok, err := Find(src, literal(string(s.JSONPointer))); err == nil && ok {
		offset = v.Start
	}
	name := s.JSONPointer.LastToken()
	var e *Error
	switch {
	case errors.Is(s.Err, json.ErrUnknownName):
		e = refuse(src, nameOffset(src, string(s.JSONPointer), offset), ErrUnknown, suggest(name, fields(s.GoType)))
	case s.Err != nil:
		e = refuse(src, offset, ErrType, fmt.Sprintf("%s: %v", called(s.JSONPointer), s.Err))
	default:
		e = refuse(src, offset, ErrType, fmt.Sprintf("%s: %s where %s was expected", called(s.JSONPointer), kindName(s.JSONKind), wanted(s.GoType)))
	}
	e.Pointer = string(s.JSONPointer)
	return e
}

// called is how a person finds the value at p: by its name, or as an element of what has one.
func called(p jsontext.Pointer) string {
	name, in := p.LastToken(), p.Parent().LastToken()
	if i, err := strconv.Atoi(name); err == nil && in != "" {
		return fmt.Sprintf("element %d of %q", i+1, clip(in))
	}
	return fmt.Sprintf("%q", clip(name))
}

// literal makes a plain RFC 6901 pointer one for [Values].
func literal(pointer string) string {
	tokens := strings.Split(pointer, "/")
	for i, t := range tokens {
		if t == "*" {
			tokens[i] = "~2"
		}
	}
	return strings.Join(tokens, "/")
}

// nameOffset returns where the name of the member at pointer stands.
func nameOffset(src []byte, pointer string, otherwise int) int {
	at := otherwise
	found := errors.New("found")
	err := Names(src, func(v Value) error {
		if v.Pointer != pointer {
			return nil
		}
		at = v.Start
		return found
	})
	if !errors.Is(err, found) {
		return otherwise
	}
	return at
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '{':
		return "an object"
	case '[':
		return "an array"
	case '0':
		return "a number"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	}
	return "a value"
}

// wanted is the JSON that a value of type t is read from, for people.
func wanted(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return "another value"
	}
	switch k := t.Kind(); {
	case k == reflect.Struct, k == reflect.Map:
		return "an object"
	case (k == reflect.Slice || k == reflect.Array) && t.Elem().Kind() == reflect.String:
		return "an array of strings"
	case k == reflect.Slice, k == reflect.Array:
		return "an array"
	case k == reflect.String:
		return "a string"
	case k == reflect.Bool:
		return "true or false"
	case k == reflect.Float32, k == reflect.Float64:
		return "a number"
	case k >= reflect.Int && k <= reflect.Uint64:
		return "a whole number"
	}
	return "another value"
}

// fields returns the member names that a struct type has fields for.
func fields(t reflect.Type) []string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	var names []string
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if name == "" {
			name = f.Name
		}
		if f.IsExported() && !f.Anonymous && name != "-" {
			names = append(names, name)
		}
	}
	return names
}

func suggest(name string, valid []string) string {
	s := fmt.Sprintf("%q", clip(name))
	if near := Nearest(name, valid); near != "" {
		s += fmt.Sprintf("; did you mean %q?", near)
	}
	return s
}

// Nearest returns the word of valid that was probably meant by word: the one
// with the smallest edit distance, if that is at most a third of its length
// plus one; "" if there is none. Of equals the first wins.
func Nearest(word string, valid []string) string {
	best, least := "", 0
	for _, v := range valid {
		if len(word) > 2*len(v)+8 {
			continue
		}
		d := distance(strings.ToLower(word), strings.ToLower(v))
		if d <= 1+len(v)/3 && (best == "" || d < least) {
			best, least = v, d
		}
	}
	return best
}

// distance is the Levenshtein distance in bytes.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
