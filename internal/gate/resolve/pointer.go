package resolve

import (
	"maps"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// coverage finds the annotation of concrete pointers.
type coverage struct {
	args     map[string]policy.Arg
	used     map[string]*policy.Arg // those that were found
	patterns [][]string             // split, built when first needed
	names    []string               // the pointers of patterns
}

// find returns the annotation pointer that covers pointer: the longest, and of
// equally long ones the one that is exact earliest. An empty value is also
// covered by a pattern for what could be in it.
func (c *coverage) find(pointer string, empty bool) (pattern string, arg *policy.Arg, ok bool) {
	if _, ok := c.args[pointer]; ok && !strings.Contains(pointer, "*") {
		return pointer, c.use(pointer), true
	}
	c.split()
	tokens := strings.Split(pointer[1:], "/")
	best := -1
	for i, p := range c.patterns {
		if matches(p, tokens, empty) && (best < 0 || better(p, c.patterns[best])) {
			best = i
		}
	}
	if best < 0 {
		return "", nil, false
	}
	return c.names[best], c.use(c.names[best]), true
}

// use returns the annotation at a pattern; leaves share it.
func (c *coverage) use(pattern string) *policy.Arg {
	if a, ok := c.used[pattern]; ok {
		return a
	}
	if c.used == nil {
		c.used = map[string]*policy.Arg{}
	}
	arg := c.args[pattern]
	c.used[pattern] = &arg
	return &arg
}

func (c *coverage) split() {
	if c.patterns != nil {
		return
	}
	c.names = slices.Sorted(maps.Keys(c.args))
	c.patterns = make([][]string, len(c.names))
	for i, n := range c.names {
		c.patterns[i] = strings.Split(strings.TrimPrefix(n, "/"), "/")
	}
}

func matches(pattern, tokens []string, empty bool) bool {
	if len(pattern) > len(tokens) && !empty {
		return false
	}
	for i := range min(len(pattern), len(tokens)) {
		p := pattern[i]
		if p != "*" && p != tokens[i] && !(p == "~2" && tokens[i] == "*") {
			return false
		}
	}
	return true
}

// better reports whether p covers more closely than q, both matching the same.
func better(p, q []string) bool {
	if len(p) != len(q) {
		return len(p) > len(q)
	}
	for i := range p {
		if (p[i] == "*") != (q[i] == "*") {
			return q[i] == "*"
		}
	}
	return false
}

// unknown is the error for an argument that no annotation covers.
func (c *coverage) unknown(pointer string) error {
	var hint string
	if near := strictjson.Nearest(pointer, slices.Sorted(maps.Keys(c.args))); near != "" {
		hint = "did you mean " + near + "?"
	}
	return &Error{Pointer: pointer, Why: "is not covered by the annotation of this tool", Hint: hint}
}

// prefix returns the first n tokens of pointer.
func prefix(pointer string, n int) string {
	for i := 0; i < len(pointer); i++ {
		if pointer[i] == '/' {
			if n == 0 {
				return pointer[:i]
			}
			n--
		}
	}
	return pointer
}

func unescapeToken(t string) string {
	return strings.NewReplacer("~1", "/", "~0", "~", "~2", "*").Replace(t)
}
