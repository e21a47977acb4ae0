package gate

import (
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// The entries of every call are written here, and not by package json, in the
// canonical form in which the ledger keeps them (RFC 8785): names in order, no
// spaces. What is not canonical all the same, such as a number that no double holds,
// is the ledger's to bring into that form, or to refuse.

// A jsonObject is an object in the making, which begins with its brace. Members are
// added in the order of their names; their values follow their names.
type jsonObject []byte

func (o jsonObject) member(name string) jsonObject {
	if o[len(o)-1] != '{' {
		o = append(o, ',')
	}
	return append(append(append(o, '"'), name...), `":`...)
}

func (o jsonObject) text(name, s string) jsonObject { return appendText(o.member(name), s) }

// some leaves out a text that is empty.
func (o jsonObject) some(name, s string) jsonObject {
	if s == "" {
		return o
	}
	return o.text(name, s)
}

func (o jsonObject) number(name string, n int) jsonObject {
	return strconv.AppendInt(o.member(name), int64(n), 10)
}

// flag leaves out what is false.
func (o jsonObject) flag(name string, yes bool) jsonObject {
	if !yes {
		return o
	}
	return append(o.member(name), "true"...)
}

// texts leaves out an empty list.
func texts[S ~string](o jsonObject, name string, list []S) jsonObject {
	if len(list) == 0 {
		return o
	}
	return appendTexts(o.member(name), list)
}

func appendTexts[S ~string](b []byte, list []S) []byte {
	b = append(b, '[')
	for i, s := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = appendText(b, string(s))
	}
	return append(b, ']')
}

// appendText appends a string. What is not UTF-8 is replaced, as package json does.
func appendText(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return appendUnusual(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

func appendUnusual(b []byte, s string) []byte {
	s = strings.ToValidUTF8(s, "\ufffd")
	quoted, err := strictjson.Quote(s)
	if err != nil { // U+0000: the ledger says so
		quoted, _ = json.Marshal(s)
	}
	return append(b, quoted...)
}

// appendEffects appends effects as package json writes them, and canonically.
func appendEffects(b []byte, effects []act.Effect) ([]byte, error) {
	b = append(b, '[')
	for i, e := range effects {
		if i > 0 {
			b = append(b, ',')
		}
		o := append(jsonObject(b), '{').some("group", string(e.Group)).flag("implied", e.Implied).text("kind", string(e.Kind))
		o = append(o.member("resource"), '{')
		if len(e.Resource.Facts) > 0 {
			var err error
			if o, err = appendFacts(o.member("facts"), e.Resource.Facts); err != nil {
				return nil, err
			}
		}
		o = append(o.text("text", e.Resource.Text).text("type", string(e.Resource.Type)), '}')
		b = append(o.flag("tree", e.Tree), '}')
	}
	return append(b, ']'), nil
}

func appendFacts(b []byte, facts map[string]any) ([]byte, error) {
	o := append(jsonObject(b), '{')
	for _, name := range slices.Sorted(maps.Keys(facts)) {
		if len(o) > 0 && o[len(o)-1] != '{' {
			o = append(o, ',')
		}
		o = append(appendText(o, name), ':')
		switch v := facts[name].(type) {
		case string:
			o = appendText(o, v)
		case bool:
			o = strconv.AppendBool(o, v)
		case int64:
			o = strconv.AppendInt(o, v, 10)
		case []string:
			o = appendTexts(o, v)
		default:
			raw, err := json.Marshal(v)
			if err != nil {
				return nil, err
			}
			o = append(o, raw...)
		}
	}
	return append(o, '}'), nil
}

// roomForEntry is more than most entries take, in bytes.
const roomForEntry = 512

func newObject(more int) jsonObject { return append(make(jsonObject, 0, roomForEntry+more), '{') }

func (e requestEntry) canonical() []byte {
	if string(e.Effects) == unwritable {
		return nil
	}
	o := newObject(len(e.Arguments)+len(e.Effects)).some("arguments", e.Arguments).text("digest", e.Digest)
	if len(e.Effects) > 0 {
		o = append(o.member("effects"), e.Effects...)
	}
	o = texts(o, "labels", e.Labels).some("pin", e.Pin).number("size", e.Size).some("tool", e.Tool)
	return append(o.text("verb", string(e.Verb)), '}')
}

func (e decisionEntry) canonical() []byte {
	o := texts(newObject(len(e.Reason)+len(e.Changed)), "approved", e.Approved)
	o = o.text("box", e.Box).some("changed", e.Changed).some("code", string(e.Code))
	o = texts(o, "counted", e.Counted).some("dispatch", e.Dispatch)
	o = strconv.AppendBool(o.member("durable"), e.Durable)
	o = texts(o.some("granted", e.Granted), "labels", e.Labels).text("policy", e.Policy).some("reason", e.Reason)
	return append(texts(o, "rules", e.Rules).text("verdict", e.Verdict.String()), '}')
}

func (e resultEntry) canonical() []byte {
	o := newObject(len(e.Error))
	if len(e.Carried) > 0 {
		o = append(o.member("carried"), e.Carried...)
	}
	o = o.some("digest", e.Digest).some("error", e.Error)
	o = texts(o, "labels", e.Labels)
	if e.Redacted != 0 {
		o = o.number("redacted", e.Redacted)
	}
	o = o.number("size", e.Size)
	if s := e.Spent; s != nil {
		o = append(append(o.member("spent"), '{').number("micro_usd", int(s.MicroUSD)).number("tokens", int(s.Tokens)), '}')
	}
	return append(o.text("ticket", e.Ticket), '}')
}
