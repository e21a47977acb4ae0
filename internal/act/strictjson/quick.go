package strictjson

import "unicode/utf8"

// The texts that agents and servers write are mostly short and plain. A quick reads
// those in one pass, in little code and without memory, and leaves all others to the
// decoder. What it passes, the decoder passes, with the same events; what it does
// not pass, it says nothing about.
//
// It leaves to the decoder: escapes by number, names with escapes, numbers with an
// exponent or of more than maxPlainNumber bytes, and texts with more open objects, or
// more names in them, than it has room for.
type quick struct {
	src   []byte
	at    int
	most  int // nested containers
	depth int
	opens [quickDepth]opened
	names [quickNames]span // of all objects that are open
	held  int32            // of names
}

const (
	quickDepth     = 24
	quickNames     = 48
	maxPlainNumber = 300
	quickSize      = 1 << 30
)

// An opened is a container that is not closed yet.
type opened struct {
	array bool
	begun bool  // there was an element or a member
	value bool  // of an object: the value of the last name has still to come
	first int32 // of the names held, its own first
}

type span struct{ start, end int32 }

// plainly reports whether src is acceptable, and shows its events if so and see is
// not nil. It returns what see does.
func plainly(src []byte, l Limits, see func(event) error) (ok bool, err error) {
	if len(src) > min(l.Size, quickSize) || !utf8.Valid(src) {
		return false, nil
	}
	q := quick{src: src, most: min(l.Depth, quickDepth)}
	if !q.all(nil) {
		return false, nil
	}
	if see != nil {
		q.at, q.held = 0, 0
		q.all(func(ev event) bool { err = see(ev); return err == nil })
	}
	return true, err
}

// all reads the whole text, as long as see, unless it is nil, returns true.
func (q *quick) all(see func(event) bool) bool {
	for first := true; first || q.depth > 0; first = false {
		start, kind, name := q.next()
		if kind == 0 {
			return false
		}
		if see == nil {
			continue
		}
		ev := event{name: name, kind: kind, start: start, end: q.at}
		if kind != '{' && kind != '[' && kind != '}' && kind != ']' {
			ev.raw = q.src[start:q.at]
		}
		if !see(ev) {
			return false
		}
	}
	q.skip()
	return q.at == len(q.src)
}

// skip goes behind white space, and returns what comes then, 0 at the end.
func (q *quick) skip() byte {
	for ; q.at < len(q.src); q.at++ {
		if c := q.src[q.at]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

// next goes behind one token, and returns where it starts and what it is, as an event
// has it; 0 if it is left to the decoder.
func (q *quick) next() (start int, kind byte, name bool) {
	c := q.skip()
	if q.depth == 0 {
		return q.value(c)
	}
	top := &q.opens[q.depth-1]
	if top.value {
		if c != ':' {
			return 0, 0, false
		}
		q.at++
		top.value = false
		return q.value(q.skip())
	}
	if c == '}' && !top.array || c == ']' && top.array {
		q.depth--
		q.held = top.first
		q.at++
		return q.at - 1, c, false
	}
	if top.begun {
		if c != ',' {
			return 0, 0, false
		}
		q.at++
		c = q.skip()
	}
	top.begun = true
	if top.array {
		return q.value(c)
	}
	return q.name(c, top)
}

func (q *quick) name(c byte, top *opened) (start int, kind byte, name bool) {
	start = q.at
	if c != '"' || !q.text(false) || q.held == quickNames {
		return 0, 0, false
	}
	for _, n := range q.names[top.first:q.held] {
		if string(q.src[n.start:n.end]) == string(q.src[start:q.at]) {
			return 0, 0, false
		}
	}
	q.names[q.held] = span{int32(start), int32(q.at)}
	q.held++
	top.value = true
	return start, '"', true
}

func (q *quick) value(c byte) (start int, kind byte, name bool) {
	start = q.at
	var ok bool
	switch c {
	case '{', '[':
		if ok = q.depth < q.most; ok {
			q.opens[q.depth] = opened{array: c == '[', first: q.held}
			q.depth++
			q.at++
		}
	case '"':
		ok = q.text(true)
	case 't':
		ok = q.literal("true")
	case 'f':
		ok = q.literal("false")
	case 'n':
		ok = q.literal("null")
	default:
		c = '0'
		ok = q.number()
	}
	if !ok {
		return 0, 0, false
	}
	return start, c, false
}

func (q *quick) literal(word string) bool {
	end := q.at + len(word)
	if end > len(q.src) || string(q.src[q.at:end]) != word {
		return false
	}
	q.at = end
	return true
}

// text goes behind a string.
func (q *quick) text(escapes bool) bool {
	for i := q.at + 1; i < len(q.src); i++ {
		c := q.src[i]
		if c == '"' {
			q.at = i + 1
			return true
		}
		if c < ' ' {
			return false
		}
		if c != '\\' {
			continue
		}
		if i++; !escapes || i == len(q.src) {
			return false
		}
		switch q.src[i] {
		case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		default:
			return false
		}
	}
	return false
}

// number goes behind a number (RFC 8259 §6).
func (q *quick) number() bool {
	start := q.at
	if q.at < len(q.src) && q.src[q.at] == '-' {
		q.at++
	}
	whole := q.at
	if n := q.digits(); n == 0 || q.src[whole] == '0' && n > 1 {
		return false
	}
	if q.at < len(q.src) && q.src[q.at] == '.' {
		q.at++
		if q.digits() == 0 {
			return false
		}
	}
	exponent := q.at < len(q.src) && (q.src[q.at] == 'e' || q.src[q.at] == 'E')
	return !exponent && q.at-start <= maxPlainNumber
}

// digits goes behind digits, and returns how many there were.
func (q *quick) digits() int {
	start := q.at
	for q.at < len(q.src) && q.src[q.at] >= '0' && q.src[q.at] <= '9' {
		q.at++
	}
	return q.at - start
}
