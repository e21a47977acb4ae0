package inspect

import (
	"bytes"
	"slices"
)

// withheld stands for content that could not be kept in part.
const withheld = "[redacted:withheld]"

func marker(m Match) string { return "[redacted:" + m.Name + "]" }

// Redact returns content with every match of f replaced by "[redacted:name]". f
// must be what a scan of these very bytes found. Content without matches is
// returned as it is, not copied.
//
// In JSON only the insides of strings change, and numbers become strings. If
// there were too many matches, or a secret would be left (one made of
// punctuation between strings, or put together by the replacement), the whole
// is replaced by "[redacted:withheld]", as a JSON string where it was JSON.
func (in *Inspector) Redact(content []byte, f Findings) []byte {
	if len(f.Matches) == 0 && !f.Whole {
		return content
	}
	out, ok := content, !f.Whole
	switch {
	case ok && f.json:
		out, ok = redactJSON(content, f.Matches)
	case ok:
		out = redactText(content, f.Matches)
	}
	if ok && !in.holds(out, f.json) {
		return out
	}
	if f.json {
		return []byte(`"` + withheld + `"`)
	}
	return []byte(withheld)
}

// holds reports whether a registered secret is in content.
func (in *Inspector) holds(content []byte, json bool) bool {
	held := false
	found := func(int, int, *pattern) bool { held = true; return false }
	in.secrets.find(content, 0, true, found)
	if !json || held {
		return held
	}
	var scratch []byte
	walk(content, func(t token) bool {
		if t.kind == stringToken && t.escaped {
			v := decode(content, t, scratch[:0])
			scratch = v.scratch
			in.secrets.find(v.text, 0, true, found)
		}
		return !held
	})
	return held
}

// An edit puts text in place of content[start:end].
type edit struct {
	start, end int
	text       string
}

// apply makes edits, which are in order and do not overlap.
func apply(content []byte, edits []edit) []byte {
	var out bytes.Buffer
	from := 0
	for _, e := range edits {
		out.Write(content[from:e.start])
		out.WriteString(e.text)
		from = e.end
	}
	out.Write(content[from:])
	return out.Bytes()
}

func redactText(content []byte, ms []Match) []byte {
	edits := make([]edit, len(ms))
	for i, m := range ms {
		edits[i] = edit{m.Start, m.End, marker(m)}
	}
	return apply(content, edits)
}

// redactJSON replaces matches within the tokens that they touch. It fails if
// one touches none.
func redactJSON(content []byte, ms []Match) ([]byte, bool) {
	var edits []edit
	touched := make([]bool, len(ms))
	next := 0 // first match that can touch this token or a later one
	walk(content, func(t token) bool {
		for next < len(ms) && ms[next].End <= t.start {
			next++
		}
		for i := next; i < len(ms) && ms[i].Start < t.end; i++ {
			e := within(content, t, ms[i])
			touched[i] = true
			if n := len(edits); n > 0 && e.start < edits[n-1].end {
				edits[n-1].end = max(edits[n-1].end, e.end)
				continue
			}
			edits = append(edits, e)
		}
		return next < len(ms)
	})
	if slices.Contains(touched, false) {
		return nil, false
	}
	return apply(content, edits), true
}

// within is the edit that m means for token t, which it touches: in a string the
// part that is m's, with whole escapes; anything else becomes a string.
func within(content []byte, t token, m Match) edit {
	if t.kind != stringToken {
		return edit{t.start, t.end, `"` + marker(m) + `"`}
	}
	e := edit{max(m.Start, t.start), min(m.End, t.end), marker(m)}
	if t.escaped {
		e.start, _ = wholeEscape(content, t, e.start)
		_, e.end = wholeEscape(content, t, e.end)
	}
	return e
}

// wholeEscape returns the escape of the string t that has p strictly inside it,
// or p twice.
func wholeEscape(content []byte, t token, p int) (start, end int) {
	for q := p - 1; q >= t.start && q > p-6; q-- {
		if content[q] != '\\' {
			continue
		}
		run := 1
		for q-run >= t.start && content[q-run] == '\\' {
			run++
		}
		if run%2 == 0 {
			continue // the second half of an escaped backslash
		}
		if n := escapeLen(content[q:t.end]); q+n > p {
			return q, q + n
		}
	}
	return p, p
}

// escapeLen is the length of the escape at the start of b.
func escapeLen(b []byte) int {
	if len(b) > 1 && b[1] == 'u' {
		return min(6, len(b))
	}
	return min(2, len(b))
}
