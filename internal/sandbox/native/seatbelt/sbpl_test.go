package seatbelt

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A node is a list, a word, or a string of SBPL. The reader is written from what is
// known of the language (TinyScheme), and not from what this package writes.
type node struct {
	list   []node
	word   string // if no list
	quoted bool
}

func (n node) head() string {
	if len(n.list) == 0 {
		return ""
	}
	return n.list[0].word
}

type reader struct{ s string }

var errEnd = errors.New("the text ends too early")

func read(text string) ([]node, error) {
	r := &reader{text}
	var all []node
	for {
		r.space()
		if r.s == "" {
			return all, nil
		}
		n, err := r.node()
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
}

func (r *reader) space() {
	for {
		r.s = strings.TrimLeft(r.s, " \t\r\n")
		if !strings.HasPrefix(r.s, ";") {
			return
		}
		_, r.s, _ = strings.Cut(r.s, "\n")
	}
}

func (r *reader) node() (node, error) {
	switch {
	case r.s == "":
		return node{}, errEnd
	case r.s[0] == '(':
		n := node{}
		for r.s = r.s[1:]; ; {
			r.space()
			if r.s == "" {
				return n, errEnd
			}
			if r.s[0] == ')' {
				r.s = r.s[1:]
				return n, nil
			}
			m, err := r.node()
			if err != nil {
				return n, err
			}
			n.list = append(n.list, m)
		}
	case r.s[0] == ')':
		return node{}, errors.New("a closing parenthesis too many")
	case r.s[0] == '"':
		return r.str()
	case strings.HasPrefix(r.s, `#"`):
		raw, rest, ok := strings.Cut(r.s[2:], `"`)
		if !ok {
			return node{}, errEnd
		}
		r.s = rest
		return node{word: raw, quoted: true}, nil
	}
	end := strings.IndexAny(r.s, "() \t\r\n\";")
	if end < 0 {
		end = len(r.s)
	}
	n := node{word: r.s[:end]}
	r.s = r.s[end:]
	return n, nil
}

func (r *reader) str() (node, error) {
	var b strings.Builder
	for i := 1; i < len(r.s); i++ {
		switch c := r.s[i]; {
		case c == '"':
			r.s = r.s[i+1:]
			return node{word: b.String(), quoted: true}, nil
		case c == '\\' && i+1 < len(r.s):
			i++
			if strings.IndexByte(`"\`, r.s[i]) < 0 {
				return node{}, fmt.Errorf(`the escape \%c`, r.s[i])
			}
			b.WriteByte(r.s[i])
		case c == '\n' || c == '\r':
			return node{}, errors.New("a line break in a string")
		default:
			b.WriteByte(c)
		}
	}
	return node{}, errEnd
}

// A query is one operation that a process attempts.
type query struct {
	op   string
	path string // or name of a service or setting
	what string // "ip", "same-sandbox", "others", "extension"
}

// A sbRule is one rule of a profile.
type sbRule struct {
	allow   bool
	ops     []string
	filters []node
}

func rulesOf(t *testing.T, text string) []sbRule {
	t.Helper()
	all, err := read(text)
	if err != nil {
		t.Fatalf("%v in\n%s", err, text)
	}
	var rules []sbRule
	for i, n := range all {
		r := sbRule{allow: n.head() == "allow"}
		switch {
		case i == 0:
			if n.head() != "version" || n.list[1].word != "1" {
				t.Fatal("the profile does not begin with its version")
			}
			continue
		case n.head() != "allow" && n.head() != "deny":
			t.Fatalf("a form %q", n.head())
		}
		for _, m := range n.list[1:] {
			switch {
			case m.list == nil && !m.quoted && r.filters == nil:
				r.ops = append(r.ops, m.word)
			case m.list != nil:
				r.filters = append(r.filters, m)
			default:
				t.Fatalf("%q among filters", m.word)
			}
		}
		rules = append(rules, r)
	}
	return rules
}

// allows evaluates rules: the last one that matches counts.
func allows(t *testing.T, rules []sbRule, q query) bool {
	t.Helper()
	for _, r := range slices.Backward(rules) {
		if !slices.ContainsFunc(r.ops, func(op string) bool { return covers(op, q.op) }) {
			continue
		}
		if len(r.filters) == 0 || slices.ContainsFunc(r.filters, func(f node) bool { return matches(t, f, q) }) {
			return r.allow
		}
	}
	t.Fatal("no rule for what no rule is about")
	return false
}

func covers(op, asked string) bool {
	prefix, any := strings.CutSuffix(op, "*")
	return op == "default" || op == asked || any && strings.HasPrefix(asked, prefix)
}

// expressions are compiled once: a profile has hundreds.
var expressions = map[string]*regexp.Regexp{}

func matches(t *testing.T, f node, q query) bool {
	t.Helper()
	args := f.list[1:]
	sub := func(f node) bool { return matches(t, f, q) }
	word := func(same func(string) bool) bool {
		return slices.ContainsFunc(args, func(n node) bool { return same(n.word) })
	}
	switch f.head() {
	case "require-any":
		return slices.ContainsFunc(args, sub)
	case "require-all":
		return !slices.ContainsFunc(args, func(n node) bool { return !sub(n) })
	case "require-not":
		return len(args) == 1 && !sub(args[0])
	case "literal", "global-name", "sysctl-name":
		return word(func(w string) bool { return w == q.path })
	case "sysctl-name-prefix":
		return word(func(w string) bool { return strings.HasPrefix(q.path, w) })
	case "subpath":
		return word(func(w string) bool { return q.path == w || strings.HasPrefix(q.path, strings.TrimSuffix(w, "/")+"/") })
	case "regex":
		return word(func(w string) bool {
			if expressions[w] == nil {
				expressions[w] = regexp.MustCompile(w)
			}
			return expressions[w].MatchString(q.path)
		})
	case "remote", "local", "target":
		return word(func(w string) bool { return w == q.what })
	case "extension":
		return q.what == "extension"
	}
	t.Fatalf("a filter %q", f.head())
	return false
}

// shape is the structure of a text without its strings.
func shape(n node) string {
	switch {
	case n.quoted:
		return `""`
	case n.list == nil:
		return n.word
	}
	var parts []string
	for _, m := range n.list {
		parts = append(parts, shape(m))
	}
	return "(" + strings.Join(parts, " ") + ")"
}
