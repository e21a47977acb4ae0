package constitution

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

type verbEntry struct {
	sense string
	form  verbForm
}

type verbForm uint8

const (
	plain verbForm = iota
	gerund
	participle
	nominal // "deletion", and the -s form, which is also a plural: "pushes"
)

type lexicon struct {
	verbs     map[string]verbEntry
	nouns     map[string]string
	languages map[string][]string
	compounds map[string][]compoundWords // by first word
	vocab     []string                   // every word that means something, sorted
}

type compoundWords struct {
	from []string
	to   string
}

// words returns the lexicon, built on first use.
var words = sync.OnceValue(func() *lexicon {
	l := &lexicon{
		verbs: map[string]verbEntry{}, nouns: map[string]string{},
		languages: map[string][]string{}, compounds: map[string][]compoundWords{},
	}
	for _, row := range rows(verbForms) {
		for _, w := range row[1:] {
			l.verbs[w] = verbEntry{row[0], irregular(w)}
		}
	}
	for _, row := range rows(verbWords) {
		for _, w := range row[1:] {
			for form, text := range formsOf(w) {
				if _, ok := l.verbs[text]; !ok {
					l.verbs[text] = verbEntry{row[0], verbForm(form)}
				}
			}
			l.verbs[w] = verbEntry{row[0], plain}
		}
	}
	for _, row := range rows(verbForms) { // forms of words that are not senses themselves
		for _, w := range row[1:] {
			l.verbs[w] = verbEntry{l.verbs[row[0]].sense, l.verbs[w].form}
		}
	}
	for _, row := range rows(nounWords) {
		for _, w := range row[1:] {
			l.nouns[w], l.nouns[plural(w)] = row[0], row[0]
		}
	}
	for _, row := range rows(languageWords) {
		l.languages[row[0]] = row[1:]
	}
	for line := range strings.Lines(strings.TrimSpace(compounds)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), ", ")
		f := strings.Fields(from)
		l.compounds[f[0]] = append(l.compounds[f[0]], compoundWords{f, to})
	}
	for _, c := range l.compounds {
		slices.SortStableFunc(c, func(a, b compoundWords) int { return len(b.from) - len(a.from) })
	}
	l.collect()
	return l
})

func irregular(w string) verbForm {
	switch {
	case strings.HasSuffix(w, "ing"):
		return gerund
	case strings.HasSuffix(w, "ion"), strings.HasSuffix(w, "al"), strings.HasSuffix(w, "s"):
		return nominal
	}
	return participle
}

// collect lists the words that an unknown word is compared with.
func (l *lexicon) collect() {
	seen := map[string]bool{}
	for w := range l.verbs {
		seen[w] = true
	}
	for w := range l.nouns {
		seen[w] = true
	}
	for _, table := range []string{branchWords, registryWords, determiners, grammarWords} {
		for w := range strings.FieldsSeq(table) {
			seen[w] = true
		}
	}
	for w := range seen {
		if len(w) > 2 {
			l.vocab = append(l.vocab, w)
		}
	}
	slices.Sort(l.vocab)
}

// rows splits a table into lines and words.
func rows(table string) [][]string {
	var out [][]string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// formsOf returns the forms of a regular verb, indexed by [verbForm].
func formsOf(w string) [4]string {
	stem := w
	switch {
	case strings.Contains(doubling, " "+w+" "):
		stem = w + w[len(w)-1:]
	case strings.HasSuffix(w, "e") && !strings.HasSuffix(w, "ee"):
		stem = w[:len(w)-1]
	}
	past := stem + "ed"
	if strings.HasSuffix(w, "y") && !vowel(w[len(w)-2]) {
		past = w[:len(w)-1] + "ied"
	}
	return [4]string{w, stem + "ing", past, plural(w)}
}

func plural(w string) string {
	switch {
	case strings.HasSuffix(w, "y") && !vowel(w[len(w)-2]):
		return w[:len(w)-1] + "ies"
	case strings.HasSuffix(w, "s"), strings.HasSuffix(w, "sh"), strings.HasSuffix(w, "ch"), strings.HasSuffix(w, "x"):
		return w + "es"
	}
	return w + "s"
}

func vowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }

// contains reports whether w is one of the words of a table, which begins and
// ends with a space.
func contains(table, w string) bool {
	if w == "" || strings.ContainsAny(w, " \n") {
		return false
	}
	for from := 0; ; {
		i := strings.Index(table[from:], w)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(w)
		if i > 0 && isSpace(table[i-1]) && end < len(table) && isSpace(table[end]) {
			return true
		}
		from = i + 1
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' }

// known reports whether w means something by itself: a verb, a noun or a
// conjunction.
func known(w string) bool {
	l := words()
	_, verb := l.verbs[w]
	_, noun := l.nouns[w]
	return verb || noun || w == "and" || w == "or"
}

func allKnown(parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !known(lower(p)) })
}

// numberOf reads a number in digits or words, up to a million.
func numberOf(w string) (int64, bool) {
	if i := slices.Index(numberWords, w); i >= 0 {
		return int64(i), true
	}
	head, tail, _ := strings.Cut(w, "-")
	if i := slices.Index(tens, head); i >= 0 {
		n := int64(i+2) * 10
		if tail == "" {
			return n, true
		}
		j := slices.Index(numberWords, tail)
		return n + int64(j), j > 0 && j < 10
	}
	switch w {
	case "hundred":
		return 100, true
	case "thousand":
		return 1000, true
	case "dozen":
		return 12, true
	}
	digits := strings.ReplaceAll(w, ",", "")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n <= 1_000_000
}

// compound joins words that the tables know as one, and reads numbers.
func compound(toks []token) []token {
	table := words().compounds
	out := toks[:0:0]
	for i := 0; i < len(toks); {
		t := toks[i]
		n := 1
		if looksPath(t.text) { // a path with spaces in quotation marks
			for t.group != 0 && i+n < len(toks) && toks[i+n].group == t.group {
				t.text += " " + toks[i+n].text
				n++
			}
			t.low = lower(t.text)
		}
		for _, c := range table[t.low] {
			if joins(toks[i:], c.from) {
				t.low, n = c.to, len(c.from)
				t.text = textOf(toks[i : i+n])
				t.kind = classify(c.to)
				break
			}
		}
		if v, ok := numberOf(t.low); ok {
			t.n = v
		}
		out = append(out, t)
		i += n
	}
	return out
}

func joins(toks []token, words []string) bool {
	if len(toks) < len(words) {
		return false
	}
	for i, w := range words {
		if toks[i].low != w || toks[i].group != toks[0].group {
			return false
		}
	}
	return true
}

// textOf returns toks as they read.
func textOf(toks []token) string {
	var b strings.Builder
	for i, t := range toks {
		if i > 0 && (t.kind != punct || t.text == "(" || t.text == "—") && toks[i-1].text != "(" {
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}
