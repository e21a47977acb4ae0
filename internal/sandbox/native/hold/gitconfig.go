package hold

import (
	"iter"
	"strings"
	"syscall"
)

// errNotDir is what opening a file beneath a file gives.
const errNotDir = syscall.ENOTDIR

// settings yields the settings of a configuration of git, as "section.key" or
// "section.subsection.key" in lower case but for the subsection, with their values.
// It follows config.c of git: quotes, escapes, comments and continued lines. What
// git would refuse yields something or nothing; git obeys none of it.
func settings(text string) iter.Seq2[string, string] {
	return func(yield func(key, value string) bool) {
		section := ""
		for text != "" {
			var line string
			line, text = logicalLine(text)
			line = strings.TrimLeft(line, " \t\r\ufeff")
			if rest, ok := strings.CutPrefix(line, "["); ok {
				section, line = header(rest)
			}
			key, value, _ := strings.Cut(line, "=")
			key = strings.ToLower(strings.TrimSpace(key))
			if key == "" || key[0] == '#' || key[0] == ';' {
				continue
			}
			if !yield(section+"."+key, unquote(value)) {
				return
			}
		}
	}
}

// logicalLine returns the first line of text with those that a backslash at its end
// joins to it, and the rest.
func logicalLine(text string) (line, rest string) {
	for {
		var part string
		var more bool
		part, text, more = strings.Cut(text, "\n")
		part = strings.TrimSuffix(part, "\r")
		slashes := len(part) - len(strings.TrimRight(part, `\`))
		if slashes%2 == 0 || !more {
			return line + part, text
		}
		line += part[:len(part)-1]
	}
}

// header reads what follows "[": the name of a section, and what stands behind it.
func header(text string) (section, rest string) {
	name, after, quoted := strings.Cut(text, `"`)
	if end := strings.IndexByte(text, ']'); !quoted || end >= 0 && end < len(name) {
		name, rest, _ = strings.Cut(text, "]")
		return strings.ToLower(strings.TrimSpace(name)), rest
	}
	var sub strings.Builder
	for i := 0; i < len(after); i++ {
		switch c := after[i]; {
		case c == '\\' && i+1 < len(after):
			i++
			sub.WriteByte(after[i])
		case c == '"':
			_, rest, _ = strings.Cut(after[i:], "]")
			return strings.ToLower(strings.TrimSpace(name)) + "." + sub.String(), rest
		default:
			sub.WriteByte(c)
		}
	}
	return strings.ToLower(strings.TrimSpace(name)), ""
}

// unquote returns a value without its quotes, escapes and comment.
func unquote(text string) string {
	var b strings.Builder
	quoted, kept := false, 0
	for i := 0; i < len(text); i++ {
		c := text[i]
		switch {
		case c == '"':
			quoted = !quoted
			continue
		case c == '\\' && i+1 < len(text):
			i++
			b.WriteString(strings.NewReplacer("n", "\n", "t", "\t", "b", "\b").Replace(text[i : i+1]))
			kept = b.Len()
			continue
		case !quoted && (c == '#' || c == ';'):
			return b.String()[:kept]
		case !quoted && (c == ' ' || c == '\t'):
			if b.Len() > 0 {
				b.WriteByte(c)
			}
			continue
		}
		b.WriteByte(c)
		kept = b.Len()
	}
	return b.String()[:kept]
}
