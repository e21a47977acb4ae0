package resolve

import (
	"regexp"
	"strings"
	"sync"

	"mvdan.cc/sh/v3/syntax"
)

// escapes are characters that a backslash keeps from meaning something.
var escapes = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`(?s)\\.`) })

// A word is one word of a command line, as the program would get it.
type word struct {
	value string
	glob  bool // holds an unquoted pattern
	tilde bool // begins with an unquoted "~" that stands for the home
}

// literal returns the value of a word that needs no expansion but that of "~".
func literal(w *syntax.Word) (word, error) {
	if w == nil {
		return word{}, bad("", "is incomplete")
	}
	value, err := plainText(w.Parts, false)
	if err != nil {
		return word{}, err
	}
	out := word{value: value}
	for i, p := range w.Parts {
		lit, ok := p.(*syntax.Lit)
		if !ok {
			continue
		}
		bare := escapes().ReplaceAllString(lit.Value, "")
		out.glob = out.glob || strings.ContainsAny(bare, "*?[")
		if braces(bare) {
			return word{}, bad("write the words out", "holds braces, which the shell expands")
		}
		if i == 0 && strings.HasPrefix(lit.Value, "~") {
			if value != "~" && !strings.HasPrefix(value, "~/") || lit.Value != "~" && !strings.HasPrefix(lit.Value, "~/") {
				return word{}, bad("write the path out", "names the home of somebody else: %q", value)
			}
			out.tilde = true
		}
		if strings.Contains(bare, "=~") || strings.Contains(bare, ":~") {
			return word{}, bad("write the path out", `holds "~" inside a word, which some shells expand`)
		}
	}
	if len(w.Parts) > 1 && braces(flat(w.Parts)) {
		return word{}, bad("write the words out", "holds braces, which the shell expands")
	}
	return out, nil
}

// braces reports whether s holds what bash could expand: a brace with a comma
// or two dots in it.
func braces(s string) bool {
	i := strings.IndexByte(s, '{')
	if i < 0 {
		return false
	}
	rest := s[i:]
	return strings.IndexByte(rest, '}') > 0 && (strings.Contains(rest, ",") || strings.Contains(rest, ".."))
}

// flat is a word with its quoted parts left out.
func flat(parts []syntax.WordPart) string {
	var b strings.Builder
	for _, p := range parts {
		if lit, ok := p.(*syntax.Lit); ok {
			b.WriteString(lit.Value)
		} else {
			b.WriteByte('x')
		}
	}
	return b.String()
}

// plainText joins the parts of a word. Quoted says that they stand in double
// quotes or a here-document, where fewer characters are escaped.
func plainText(parts []syntax.WordPart, quoted bool) (string, error) {
	var b strings.Builder
	for _, p := range parts {
		switch p := p.(type) {
		case *syntax.Lit:
			b.WriteString(unescapeShell(p.Value, quoted))
		case *syntax.SglQuoted:
			if p.Dollar {
				return "", bad("write the text out", "uses $'…', whose escapes hide what is meant")
			}
			b.WriteString(p.Value)
		case *syntax.DblQuoted:
			if p.Dollar {
				return "", bad("write the text out", `uses $"…", which is translated`)
			}
			s, err := plainText(p.Parts, true)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		default:
			return "", bad("write the value out", "uses %s, which cannot be resolved beforehand", expansion(p))
		}
	}
	return b.String(), nil
}

func expansion(p syntax.WordPart) string {
	switch p.(type) {
	case *syntax.ParamExp:
		return "a variable"
	case *syntax.CmdSubst:
		return "the output of a command"
	case *syntax.ArithmExp:
		return "arithmetic"
	case *syntax.ProcSubst:
		return "a process as a file"
	case *syntax.ExtGlob:
		return "an extended pattern"
	}
	return "an expansion"
}

// unescapeShell undoes backslashes: all of them outside quotes, those before
// $ ` " \ and newline inside.
func unescapeShell(s string, quoted bool) string {
	if strings.IndexByte(s, '\\') < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			b.WriteByte(s[i])
			continue
		}
		next := s[i+1]
		switch {
		case next == '\n':
			i++
		case !quoted || strings.IndexByte("$`\"\\", next) >= 0:
			b.WriteByte(next)
			i++
		default:
			b.WriteByte('\\')
		}
	}
	return b.String()
}
