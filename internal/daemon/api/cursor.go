package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"

	"ringfence/internal/act"
)

// The headers of decisions are read and written by hand: with reflection that
// costs as much as the round trip.

var errHeader = errors.New("malformed JSON")

// maxNesting bounds the depth of a value in a header.
const maxNesting = 64

// A cursor reads JSON from b at i.
type cursor struct {
	b []byte
	i int
}

// peek skips white space and returns the next byte, 0 at the end.
func (c *cursor) peek() byte {
	for c.i < len(c.b) {
		switch c.b[c.i] {
		case ' ', '\t', '\r', '\n':
			c.i++
		default:
			return c.b[c.i]
		}
	}
	return 0
}

// take consumes the byte want.
func (c *cursor) take(want byte) error {
	if c.peek() != want {
		return fmt.Errorf("%w at byte %d: want %q", errHeader, c.i, want)
	}
	c.i++
	return nil
}

// list reads members between two brackets, or null, which has none.
func (c *cursor) list(open, end byte, member func() error) error {
	if c.peek() == 'n' {
		return c.word("null")
	}
	if err := c.take(open); err != nil {
		return err
	}
	if c.peek() == end {
		c.i++
		return nil
	}
	for {
		if err := member(); err != nil {
			return err
		}
		if c.peek() == end {
			c.i++
			return nil
		}
		if err := c.take(','); err != nil {
			return err
		}
	}
}

// object calls field for each member, with the cursor at its value, which field
// must consume.
func (c *cursor) object(field func(name string) error) error {
	return c.list('{', '}', func() error {
		name, err := c.str()
		if err != nil {
			return err
		}
		if err := c.take(':'); err != nil {
			return err
		}
		return field(name)
	})
}

// array calls element with the cursor at each.
func (c *cursor) array(element func() error) error { return c.list('[', ']', element) }

// word consumes a literal.
func (c *cursor) word(w string) error {
	c.peek()
	if !bytes.HasPrefix(c.b[c.i:], []byte(w)) {
		return fmt.Errorf("%w at byte %d: want %s", errHeader, c.i, w)
	}
	c.i += len(w)
	return nil
}

func (c *cursor) boolean() (bool, error) {
	if c.peek() == 't' {
		return true, c.word("true")
	}
	return false, c.word("false")
}

// number reads an integer.
func (c *cursor) number() (int64, error) {
	c.peek()
	start := c.i
	for c.i < len(c.b) && (c.b[c.i] == '-' || '0' <= c.b[c.i] && c.b[c.i] <= '9') {
		c.i++
	}
	n, err := strconv.ParseInt(string(c.b[start:c.i]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%w at byte %d: %w", errHeader, start, err)
	}
	return n, nil
}

// text consumes a string and returns it raw, with its quotes.
func (c *cursor) text() (raw []byte, plain bool, err error) {
	if err := c.take('"'); err != nil {
		return nil, false, err
	}
	start := c.i - 1
	plain = true
	for c.i < len(c.b) {
		ch := c.b[c.i]
		c.i++
		switch {
		case ch == '"':
			return c.b[start:c.i], plain, nil
		case ch == '\\':
			plain = false
			c.i++ // whatever is escaped does not end the string
		case ch < ' ':
			return nil, false, fmt.Errorf("%w at byte %d: control character", errHeader, c.i-1)
		case ch >= utf8.RuneSelf:
			plain = false
		}
	}
	return nil, false, fmt.Errorf("%w: unfinished string", errHeader)
}

// words are those that most headers have: to read one of them makes no copy of it.
var words = wordsOf(
	"id", "method", "params", "result", "session", "verb", "tool", "direct", "ticket", "kind", "resource", "type", "text",
	"facts", "tree", "group", "verdict", "code", "rules", "reason", "effects", "filter", "leave_out", "tunnel", "budget", "spent", "tokens", "micro_usd", "lend", "name", "sentinel", "value", "labels", "redacted", "note", "error",
	methodDecide, methodFinish, act.Allow.String(), act.Deny.String(),
	string(act.VerbCall), string(act.VerbList), string(act.VerbEffect), string(act.VerbExec), string(act.VerbOffers),
	string(act.Read), string(act.List), string(act.Stat), string(act.Create), string(act.Overwrite), string(act.Fetch), string(act.Execute),
	string(act.Path), string(act.URL), string(act.Command), string(act.Tool), act.FactExists,
	string(act.Observe), string(act.Mutate), string(act.RemoteGroup), string(act.LabelUntrusted), string(act.LabelPrivate),
)

func wordsOf(list ...string) map[string]string {
	m := make(map[string]string, len(list))
	for _, w := range list {
		m[w] = w
	}
	return m
}

func (c *cursor) str() (string, error) {
	raw, plain, err := c.text()
	if err != nil {
		return "", err
	}
	if plain {
		raw = raw[1 : len(raw)-1]
		if w, ok := words[string(raw)]; ok {
			return w, nil
		}
		return string(raw), nil
	}
	if !utf8.Valid(raw) {
		return "", fmt.Errorf("%w: invalid UTF-8", errHeader)
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", fmt.Errorf("%w: %w", errHeader, err)
	}
	return s, nil
}

func (c *cursor) strs() (list []string, err error) {
	err = c.array(func() error {
		s, err := c.str()
		list = append(list, s)
		return err
	})
	return list, err
}

// raw consumes any value and returns its bytes. It finds where the value ends
// and checks no more: whoever decodes the bytes does that.
func (c *cursor) raw() (json.RawMessage, error) {
	c.peek()
	start, depth := c.i, 0
	for c.i < len(c.b) {
		switch ch := c.b[c.i]; ch {
		case '"':
			if _, _, err := c.text(); err != nil {
				return nil, err
			}
			c.i--
		case '{', '[':
			if depth++; depth > maxNesting {
				return nil, fmt.Errorf("%w: nested too deeply", errHeader)
			}
		case '}', ']', ',':
			if depth == 0 {
				return c.value(start)
			}
			if ch != ',' {
				depth--
			}
		}
		c.i++
		if depth == 0 && (c.i == len(c.b) || bytes.IndexByte([]byte("}]\""), c.b[c.i-1]) >= 0) {
			return c.value(start)
		}
	}
	return nil, fmt.Errorf("%w: unfinished value", errHeader)
}

func (c *cursor) value(start int) (json.RawMessage, error) {
	if c.i == start {
		return nil, fmt.Errorf("%w at byte %d: no value", errHeader, start)
	}
	return c.b[start:c.i], nil
}

// end requires that nothing is left.
func (c *cursor) end() error {
	if c.peek(); c.i < len(c.b) {
		return fmt.Errorf("%w: trailing text", errHeader)
	}
	return nil
}

// appendString appends s as a JSON string, in the way of encoding/json.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if ch := s[i]; ch < ' ' || ch == '"' || ch == '\\' || ch >= utf8.RuneSelf {
			quoted, err := json.Marshal(s)
			if err != nil { // a string always encodes
				return append(b, `""`...)
			}
			return append(b, quoted...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

// appendField appends `"name":"s",`, or nothing for an empty s.
func appendField(b []byte, name, s string) []byte {
	if s == "" {
		return b
	}
	b = append(append(append(b, '"'), name...), `":`...)
	return append(appendString(b, s), ',')
}

// closeList replaces the comma after the last member by the closing bracket.
func closeList(b []byte, end byte) []byte {
	if b[len(b)-1] == ',' {
		b[len(b)-1] = end
		return b
	}
	return append(b, end)
}
