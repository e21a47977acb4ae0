package inspect

import "sync"

// triggers is what stops the scan over a text: the first two bytes of every
// shape and phrase, the latter in either case.
type triggers struct {
	bits     [1 << 16 / 64]uint64
	shapes   map[uint16][]shape
	specials map[uint16][]special
	phrases  map[uint16][]phrase
}

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

func (t *triggers) set(p uint16) { t.bits[p/64] |= 1 << (p % 64) }

func (t *triggers) has(p uint16) bool { return t.bits[p/64]&(1<<(p%64)) != 0 }

// trigger is made when it is first needed: most starts of this program scan nothing.
var trigger = sync.OnceValue(func() *triggers {
	t := &triggers{shapes: map[uint16][]shape{}, specials: map[uint16][]special{}, phrases: map[uint16][]phrase{}}
	for _, s := range shapes {
		p := pair(s.prefix[0], s.prefix[1])
		t.set(p)
		t.shapes[p] = append(t.shapes[p], s)
	}
	for _, s := range specials {
		p := pair(s.prefix[0], s.prefix[1])
		t.set(p)
		t.specials[p] = append(t.specials[p], s)
	}
	for _, ph := range phrases {
		for _, a := range cases(ph.text[0]) {
			for _, b := range cases(ph.text[1]) {
				p := pair(a, b)
				t.set(p)
				t.phrases[p] = append(t.phrases[p], ph)
			}
		}
	}
	return t
})

func cases(b byte) []byte {
	if 'a' <= b && b <= 'z' {
		return []byte{b, b - 'a' + 'A'}
	}
	return []byte{b}
}

// shapes makes the one pass over a text that finds tokens and signs.
func (s *scan) shapes(v view) {
	s.noEnd = 0
	text, trigger := v.text, trigger()
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c < ' ' || c == 0x7f:
			i += s.control(v, i)
			continue
		case c >= 0x80:
			i += s.beyond(v, i)
			continue
		}
		if i+1 < len(text) && trigger.has(pair(text[i], text[i+1])) {
			if end, ok := s.at(v, i); ok {
				i = end
				continue
			}
		}
		i++
		if s.f.Whole {
			return
		}
	}
}

// at looks for what begins at text[i]; if it is a token, it returns its end.
func (s *scan) at(v view, i int) (end int, ok bool) {
	p := pair(v.text[i], v.text[i+1])
	for _, sh := range trigger().shapes[p] {
		if !hasPrefix(v.text[i:], sh.prefix) {
			continue
		}
		if start, end, ok := sh.match(v.text, i); ok {
			s.add(mapped(start, end, v.steps), Token, sh.name)
			return end, true
		}
	}
	for _, sp := range trigger().specials[p] {
		if !hasPrefix(v.text[i:], sp.prefix) {
			continue
		}
		if start, end, ok := sp.match(s, v.text, i); ok {
			s.add(mapped(start, end, v.steps), Token, sp.name)
			return end, true
		}
	}
	if !s.signs {
		return 0, false
	}
	for _, ph := range trigger().phrases[p] {
		if end, ok := hasPhrase(v.text, i, ph); ok {
			s.sign(mapped(i, end, v.steps), Injection, "addresses-the-model")
			break
		}
	}
	return 0, false
}

func hasPrefix(text []byte, prefix string) bool {
	return len(text) >= len(prefix) && string(text[:len(prefix)]) == prefix
}
