package filesystem

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

const (
	maxPattern  = 1024 // bytes
	maxPatterns = 200
	maxBraces   = 256 // patterns that one with braces may stand for
)

// A glob is a pattern for paths that are relative to where a search starts.
//
// The language is the common part of the npm package minimatch with the option
// dot: * and ? within a component, ** as a whole component for any number of
// them, [a-z] and [!a-z], {a,b}, and \ before a character that means itself. Every
// pattern becomes a regular expression of package regexp, which matches in linear
// time whatever the pattern.
type glob struct{ re []*regexp.Regexp }

type globs []glob

func compileAll(patterns []string) (globs, error) {
	if len(patterns) > 3*maxPatterns {
		return nil, fmt.Errorf("at most %d patterns", maxPatterns)
	}
	var all globs
	for _, p := range patterns {
		g, err := compile(p)
		if err != nil {
			return nil, err
		}
		all = append(all, g)
	}
	return all, nil
}

func (g glob) match(rel string) bool {
	return slices.ContainsFunc(g.re, func(re *regexp.Regexp) bool { return re.MatchString(rel) })
}

func (gs globs) match(rel string) bool {
	return slices.ContainsFunc(gs, func(g glob) bool { return g.match(rel) })
}

// compile reads a pattern. One that could mean something outside of where the
// search starts is refused, although nothing there is ever looked at: who wrote it
// expects something else than what would happen.
func compile(pattern string) (glob, error) {
	if len(pattern) > maxPattern || strings.IndexByte(pattern, 0) >= 0 {
		return glob{}, fmt.Errorf("pattern must have at most %d bytes and no NUL", maxPattern)
	}
	expanded, err := braces(pattern)
	if err != nil {
		return glob{}, err
	}
	var g glob
	for _, p := range expanded {
		if strings.HasPrefix(p, "/") || slices.Contains(strings.Split(p, "/"), "..") {
			return glob{}, fmt.Errorf("pattern %q leads out of the path that is searched; patterns are relative to it", pattern)
		}
		re, err := regexp.Compile(`(?s)\A` + translate(p) + `\z`)
		if err != nil {
			return glob{}, fmt.Errorf("pattern %q: %w", pattern, err)
		}
		g.re = append(g.re, re)
	}
	return g, nil
}

// braces expands the alternatives of a pattern: "a{b,c{d,e}}" is ab, acd, ace.
// Braces without a comma, or without a partner, stand for themselves.
func braces(p string) ([]string, error) {
	open, commas, end := group(p)
	if end < 0 {
		return []string{p}, nil
	}
	var out []string
	from := open + 1
	for _, to := range append(commas, end) {
		rest, err := braces(p[from:to] + p[end+1:])
		if err != nil {
			return nil, err
		}
		for _, r := range rest {
			out = append(out, p[:open]+r)
		}
		if len(out) > maxBraces {
			return nil, fmt.Errorf("pattern stands for more than %d patterns", maxBraces)
		}
		from = to + 1
	}
	return out, nil
}

// group finds the first pair of braces with a comma between them; end is -1 if
// there is none.
func group(p string) (open int, commas []int, end int) {
	for start := 0; start < len(p); start++ {
		switch p[start] {
		case '\\':
			start++
		case '{':
			if commas, end := closing(p, start); end >= 0 && len(commas) > 0 {
				return start, commas, end
			}
		}
	}
	return 0, nil, -1
}

func closing(p string, open int) (commas []int, end int) {
	depth := 0
	for i := open; i < len(p); i++ {
		switch p[i] {
		case '\\':
			i++
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return commas, i
			}
		case ',':
			if depth == 1 {
				commas = append(commas, i)
			}
		}
	}
	return nil, -1
}

// translate turns a pattern without braces into a regular expression.
func translate(p string) string {
	parts := strings.Split(p, "/")
	var b strings.Builder
	for i, part := range parts {
		last := i == len(parts)-1
		switch {
		case part == "" && i > 0 && !last:
			// a//b is a/b
		case part == "**" && last:
			b.WriteString(`.+`)
		case part == "**":
			b.WriteString(`(?:[^/]+/)*`)
		default:
			b.WriteString(component(part))
			if !last {
				b.WriteByte('/')
			}
		}
	}
	return b.String()
}

func component(p string) string {
	if strings.Trim(p, "*") == "" && p != "" {
		return `[^/]+`
	}
	var b strings.Builder
	for i := 0; i < len(p); i++ {
		switch p[i] {
		case '*':
			b.WriteString(`[^/]*`)
		case '?':
			b.WriteString(`[^/]`)
		case '[':
			if class, n := class(p[i:]); n > 0 {
				b.WriteString(class)
				i += n - 1
				continue
			}
			b.WriteString(`\[`)
		case '\\':
			if i++; i < len(p) {
				b.WriteString(regexp.QuoteMeta(p[i : i+1]))
				continue
			}
			b.WriteString(`\\`)
		default:
			b.WriteString(regexp.QuoteMeta(p[i : i+1]))
		}
	}
	return b.String()
}

// class reads [a-z] or [!a-z] at the start of p and returns it as a regular
// expression with the number of bytes read; 0 if p does not start with one. A class
// never matches a slash.
func class(p string) (string, int) {
	end := strings.IndexByte(p[1:], ']') + 1
	if end < 2 {
		return "", 0
	}
	body := p[1:end]
	not := body[0] == '!' || body[0] == '^'
	if not {
		body = body[1:]
	}
	if body == "" {
		return "", 0
	}
	var b strings.Builder
	for i := 0; i < len(body); i++ {
		if body[i] == '-' && i > 0 && i < len(body)-1 {
			if body[i-1] > body[i+1] {
				return "", 0
			}
			b.WriteByte('-')
			continue
		}
		b.WriteString(regexp.QuoteMeta(body[i : i+1]))
	}
	if not {
		return "[^/" + b.String() + "]", end + 1
	}
	return "[" + b.String() + "]", end + 1
}
