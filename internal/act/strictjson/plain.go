package strictjson

import "unicode/utf8"

// A plainCanon writes the canonical form of a text in one pass: most of those that go on
// record were made by an encoder that is not ours, and are canonical but for the order of
// members, white space and needless escapes. What it writes, [Canonical] would have
// written without it; what it does not, it says nothing about.
//
// It leaves to the decoder: numbers that are not canonical, surrogates, and texts with
// more open objects, or more names in them, than it has room for.
type plainCanon struct {
	in      canon // reads
	out     []byte
	members [quickNames]placed // of all objects that are open
	held    int
}

// A placed is where in the output a member begins, where its name ends, and where it ends.
type placed struct{ start, name, end int }

// plainCanonical returns the canonical form of src; ok is false if that is left to the
// decoder.
func plainCanonical(src []byte) (out []byte, ok bool) {
	if len(src) > MaxSize || !utf8.Valid(src) {
		return nil, false
	}
	// The form is never longer than the text. What is behind it is for sorting.
	p := plainCanon{in: canon{src: src}, out: make([]byte, 0, 2*len(src))}
	if !p.value(0) {
		return nil, false
	}
	p.skip()
	return p.out, p.in.at == len(src)
}

// skip goes behind white space, and returns what comes then, 0 at the end.
func (p *plainCanon) skip() byte {
	for ; p.in.at < len(p.in.src); p.in.at++ {
		if c := p.in.src[p.in.at]; c > ' ' || c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
	}
	return 0
}

func (p *plainCanon) value(depth int) bool {
	switch c := p.skip(); c {
	case '{':
		return depth < quickDepth && p.object(depth+1)
	case '[':
		return depth < quickDepth && p.array(depth+1)
	case '"':
		return p.text()
	case 0:
		return false
	}
	start := p.in.at
	if !p.in.value(0) { // a number or a word
		return false
	}
	p.out = append(p.out, p.in.src[start:p.in.at]...)
	return true
}

// take consumes b, after white space, if it comes next, and writes it.
func (p *plainCanon) take(b byte) bool {
	if p.skip() != b {
		return false
	}
	p.in.at++
	p.out = append(p.out, b)
	return true
}

func (p *plainCanon) array(depth int) bool {
	p.take('[')
	if p.take(']') {
		return true
	}
	for {
		if !p.value(depth) {
			return false
		}
		if p.take(']') {
			return true
		}
		if !p.take(',') {
			return false
		}
	}
}

func (p *plainCanon) object(depth int) bool {
	p.take('{')
	if p.take('}') {
		return true
	}
	first, sorted := p.held, true
	for {
		m := placed{start: len(p.out)}
		if p.held == quickNames || p.skip() != '"' || !p.text() {
			return false
		}
		m.name = len(p.out)
		p.members[p.held] = m
		p.held++
		if !p.take(':') || !p.value(depth) {
			return false
		}
		own := p.members[first:p.held]
		last := len(own) - 1
		own[last].end = len(p.out)
		sorted = sorted && (last == 0 || p.before(own[last-1], own[last]))
		if p.take('}') {
			ok := sorted || p.sort(own)
			p.held = first
			return ok
		}
		if !p.take(',') {
			return false
		}
	}
}

// before reports whether the name of a sorts before that of b, and is another.
func (p *plainCanon) before(a, b placed) bool {
	return compareNames(p.out[a.start+1:a.name-1], p.out[b.start+1:b.name-1]) < 0
}

// sort brings the members of the object that has just been written into order; false if
// two have the same name.
func (p *plainCanon) sort(own []placed) bool {
	start, end := own[0].start, len(p.out)
	for i := 1; i < len(own); i++ {
		for j := i; j > 0 && !p.before(own[j-1], own[j]); j-- {
			if !p.before(own[j], own[j-1]) {
				return false
			}
			own[j-1], own[j] = own[j], own[j-1]
		}
	}
	p.out = append(p.out, p.out[start:end]...)
	was, to := p.out[end:], p.out[start:start]
	for i, m := range own {
		if i > 0 {
			to = append(to, ',')
		}
		to = append(to, was[m.start-start:m.end-start]...)
	}
	p.out = p.out[:end]
	return true
}

// text reads a string, and writes it with the fewest escapes.
func (p *plainCanon) text() bool {
	p.in.at++
	p.out = append(p.out, '"')
	start := p.in.at
	for i := start; ; {
		i += plainRun(p.in.src[i:])
		if i == len(p.in.src) {
			return false
		}
		switch c := p.in.src[i]; {
		case c == '"':
			p.out = append(append(p.out, p.in.src[start:i]...), '"')
			p.in.at = i + 1
			return true
		case c < ' ':
			return false
		case c == '\\':
			n := escapeLen(p.in.src[i:])
			if n == 0 {
				p.out = append(p.out, p.in.src[start:i]...)
				if n = p.escape(p.in.src[i:]); n == 0 {
					return false
				}
				start = i + n
			}
			i += n
		default:
			i++
		}
	}
}

// escape writes the character of an escape that is not canonical, and returns how long
// that is; 0 if it is none, or left to the decoder.
func (p *plainCanon) escape(b []byte) int {
	if len(b) >= 2 && b[1] == '/' {
		p.out = append(p.out, '/')
		return 2
	}
	if len(b) < 6 || b[1] != 'u' {
		return 0
	}
	r := rune(0)
	for _, c := range b[2:6] {
		switch {
		case c >= '0' && c <= '9':
			r = r<<4 | rune(c-'0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0
		}
	}
	switch {
	case r < ' ' || r >= 0xD800 && r < 0xE000:
		return 0
	case r == '"' || r == '\\':
		p.out = append(p.out, '\\', byte(r))
	default:
		p.out = utf8.AppendRune(p.out, r)
	}
	return 6
}
