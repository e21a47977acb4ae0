package provider

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// translated are the wires that requests of a wire can be translated into.
var translated = map[Wire][]Wire{Messages: {Chat}, Chat: {Messages}}

// A Translation has clients of one wire speak with a service of another. Of what has no
// counterpart the service is not told, and the record is; what would be another question
// without it is refused. Its methods may be called concurrently.
type Translation struct {
	From    Wire   // of the client
	To      Wire   // of the service
	Said    string // the model, as the client names it
	Model   string // as the service does
	Hide    bool   // the client did not ask for the usage that a stream of From ends with
	Created int64  // seconds since 1970, of an answer
}

// object is a JSON object that goes out; its members are written in order of their names.
type object = map[string]any

// A turning is one request that is being translated.
type turning struct {
	Translation
	left []string
}

// Request translates a request that came out of [Endpoint.Clean] for From. left is what
// was left out. The error is a *[RefusedError].
func (t Translation) Request(clean []byte) (body []byte, left []string, err error) {
	q := &turning{Translation: t}
	var out object
	switch {
	case t.From == t.To:
		var all map[string]json.RawMessage
		if err := json.Unmarshal(clean, &all); err != nil {
			return nil, nil, cannot("the request cannot be read: %v", err)
		}
		out = object{}
		for name, v := range all {
			out[name] = v
		}
		out["model"] = t.Model
	case t.From == Messages && t.To == Chat:
		out, err = q.toChat(clean)
	case t.From == Chat && t.To == Messages:
		out, err = q.toMessages(clean)
	default:
		err = cannot("what is %s is not translated into %s", t.From, t.To)
	}
	if err != nil {
		return nil, nil, err
	}
	if body, err = json.Marshal(out); err != nil {
		return nil, nil, cannot("the request cannot be written again: %v", err)
	}
	slices.Sort(q.left)
	return body, slices.Compact(q.left), nil
}

// leave notes what has no counterpart.
func (q *turning) leave(format string, args ...any) {
	q.left = append(q.left, fmt.Sprintf(format, args...))
}

// read decodes an object into v, a pointer to a struct, and notes members that v has not.
func (q *turning) read(raw json.RawMessage, v any) error {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil || all == nil {
		return cannot("it has something else where an object belongs: %.60s", raw)
	}
	known := reflect.TypeOf(v).Elem()
	for name, member := range all {
		if given(member) && !hasMember(known, name) {
			q.leave("member %s", name)
		}
	}
	if err := json.Unmarshal(raw, v); err != nil {
		return cannot("the request cannot be read: %v", err)
	}
	return nil
}

func hasMember(t reflect.Type, name string) bool {
	for field := range t.Fields() {
		if field.Tag.Get("json") == name {
			return true
		}
	}
	return false
}

// given reports whether a member is there, and not null.
func given(raw json.RawMessage) bool { return len(raw) > 0 && string(raw) != "null" }

// each calls read for the entries of a list, or for a text as if it were the only entry.
func each(raw json.RawMessage, text func(string), entry func(json.RawMessage) error) error {
	if !given(raw) {
		return nil
	}
	var s string
	if json.Unmarshal(raw, &s) == nil {
		text(s)
		return nil
	}
	var all []json.RawMessage
	if err := json.Unmarshal(raw, &all); err != nil {
		return cannot("its content is neither a text nor a list: %.60s", raw)
	}
	for _, one := range all {
		if err := entry(one); err != nil {
			return err
		}
	}
	return nil
}

// plainOrParts is a list of texts as OpenAI's form has it: one is a text by itself.
func plainOrParts(texts []string) any {
	if len(texts) == 1 {
		return texts[0]
	}
	parts := []object{}
	for _, s := range texts {
		parts = append(parts, object{"type": "text", "text": s})
	}
	return parts
}

// set puts v into o if it is given.
func set(o object, name string, v json.RawMessage) {
	if given(v) {
		o[name] = v
	}
}

// checked refuses what a service says that has not one meaning.
func checked(data []byte, v any) error {
	if err := strictjson.CheckLimits(data, strictjson.Limits{Size: maxEvent, Depth: 4 * strictjson.MaxDepth}); err != nil {
		return fmt.Errorf("reading what the service says: %w", err)
	}
	if err := json.Unmarshal(data, v); err != nil {
		return fmt.Errorf("reading what the service says: %w", err)
	}
	return nil
}

// dataURL splits "data:TYPE;base64,DATA".
func dataURL(at string) (media, data string, ok bool) {
	rest, ok := strings.CutPrefix(at, "data:")
	if !ok {
		return "", "", false
	}
	media, data, ok = strings.Cut(rest, ";base64,")
	return media, data, ok && media != "" && data != ""
}
