package resolve

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"unicode/utf8"
)

// The bounds of what is read of git's files, in bytes and in lines.
const (
	maxConfig   = 1 << 20
	maxPacked   = 16 << 20
	maxSettings = 5_000
)

// A gitSetting is one line of git configuration.
type gitSetting struct {
	section string // lower case
	sub     string // subsection, as written
	key     string // lower case
	value   string
	bare    bool // there is no "=", which means true
	line    int
}

// A gitConfig is what git would have read, the strongest last.
type gitConfig []gitSetting

// get returns the last value, and whether there is one.
func (c gitConfig) get(section, sub, key string) (string, bool) {
	for i := len(c) - 1; i >= 0; i-- {
		if s := &c[i]; s.key == key && s.section == section && s.sub == sub {
			return s.value, true
		}
	}
	return "", false
}

// list returns all values in order.
func (c gitConfig) list(section, sub, key string) []string {
	var all []string
	for i := range c {
		if s := &c[i]; s.key == key && s.section == section && s.sub == sub {
			all = append(all, s.value)
		}
	}
	return all
}

func (c gitConfig) isTrue(section, sub, key string) bool {
	v, _ := c.get(section, sub, key)
	switch strings.ToLower(v) {
	case "", "false", "no", "off", "0":
		return false
	}
	return true
}

// remotes returns the names that have a remote section, each once.
func (c gitConfig) remotes() []string {
	var names []string
	seen := map[string]bool{}
	for i := range c {
		if s := &c[i]; s.section == "remote" && s.sub != "" && !seen[s.sub] {
			seen[s.sub] = true
			names = append(names, s.sub)
		}
	}
	return names
}

// readBounded returns a file of at most limit bytes; nil if there is none. It does
// not wait: a pipe in the place of the file is refused.
func readBounded(name string, limit int64) ([]byte, error) {
	f, err := os.OpenFile(name, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, bad("", "depends on %q, which could not be read: %v", name, cause(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return nil, bad("", "depends on %q, which is no regular file", name)
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err != nil {
		return nil, bad("", "depends on %q, which could not be read: %v", name, cause(err))
	}
	if int64(len(b)) > limit {
		return nil, bad("", "depends on %q, which is larger than %d bytes", name, limit)
	}
	return b, nil
}

// readGitConfig returns the settings of a file, none if it does not exist.
func readGitConfig(name string) (gitConfig, error) {
	b, err := readBounded(name, maxConfig)
	if err != nil || b == nil {
		return nil, err
	}
	c, line := parseGitConfig(string(b))
	if line > 0 {
		return nil, bad("", "depends on %q, whose line %d is no git configuration", name, line)
	}
	return c, nil
}

// parseGitConfig reads src as git does (git-config(1), "Syntax"; config.c). line
// is where it stops being configuration, or 0.
func parseGitConfig(src string) (c gitConfig, line int) {
	if strings.IndexByte(src, 0) >= 0 || !utf8.ValidString(src) {
		return nil, 1
	}
	src = strings.TrimPrefix(src, "\ufeff")
	p := configParser{src: strings.ReplaceAll(src, "\r\n", "\n"), line: 1}
	for !p.done() {
		if !p.next(&c) || len(c) > maxSettings {
			return nil, p.line
		}
	}
	return c, 0
}

type configParser struct {
	src          string
	pos, line    int
	section, sub string
}

func (p *configParser) done() bool { return p.pos >= len(p.src) }

// char returns the next byte; the end of the text reads as a newline.
func (p *configParser) char() byte {
	if p.done() {
		p.pos++
		return '\n'
	}
	ch := p.src[p.pos]
	p.pos++
	return ch
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\v' || c == '\f' }

func keyChar(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-'
}

// next reads up to one setting; false is a syntax error.
func (p *configParser) next(c *gitConfig) bool {
	ch := p.char()
	switch {
	case ch == '\n':
		p.line++
		return true
	case space(ch):
		return true
	case ch == '#' || ch == ';':
		for p.char() != '\n' {
		}
		p.line++
		return true
	case ch == '[':
		return p.header()
	case !keyChar(ch) || ch == '-' || '0' <= ch && ch <= '9':
		return false
	}
	start := p.pos - 1
	for !p.done() && keyChar(p.src[p.pos]) {
		p.pos++
	}
	s := gitSetting{section: p.section, sub: p.sub, key: strings.ToLower(p.src[start:p.pos]), value: "true", bare: true, line: p.line}
	ch = p.char()
	for ch == ' ' || ch == '\t' {
		ch = p.char()
	}
	ok := true
	switch ch {
	case '\n':
		p.line++
	case '=':
		s.bare = false
		s.value, ok = p.value()
	default:
		ok = false
	}
	*c = append(*c, s)
	return ok
}

// header reads a section header after its bracket.
func (p *configParser) header() bool {
	var name strings.Builder
	for {
		ch := p.char()
		switch {
		case ch == ']':
			p.section, p.sub, _ = strings.Cut(name.String(), ".")
			return p.section != ""
		case ch == ' ' || ch == '\t':
			return p.subsection(name.String())
		case !keyChar(ch) && ch != '.':
			return false
		}
		name.WriteString(strings.ToLower(string(ch)))
	}
}

// subsection reads a quoted subsection; in it only quote and backslash are
// escaped, and a backslash before anything else is dropped.
func (p *configParser) subsection(section string) bool {
	ch := p.char()
	for ch == ' ' || ch == '\t' {
		ch = p.char()
	}
	if ch != '"' || section == "" {
		return false
	}
	var sub strings.Builder
	first, dotted, ok := strings.Cut(section, ".")
	if ok {
		sub.WriteString(dotted + ".")
	}
	for {
		ch = p.char()
		switch ch {
		case '\n':
			return false
		case '"':
			p.section, p.sub = first, sub.String()
			return p.char() == ']'
		case '\\':
			if ch = p.char(); ch == '\n' {
				return false
			}
		}
		sub.WriteByte(ch)
	}
}

// value reads a value after "=".
func (p *configParser) value() (string, bool) {
	var v []byte
	quoted, comment := false, false
	keep := 0 // length without white space at the end
	for {
		ch := p.char()
		switch {
		case ch == '\n':
			p.line++
			return string(v[:keep]), !quoted
		case comment:
			continue
		case space(ch) && !quoted:
			if len(v) > 0 {
				v = append(v, ch)
			}
			continue
		case !quoted && (ch == ';' || ch == '#'):
			comment = true
			continue
		case ch == '"':
			quoted = !quoted
			keep = max(keep, len(v))
			continue
		case ch == '\\':
			var ok, skip bool
			if ch, skip, ok = p.escape(); !ok {
				return "", false
			}
			if skip {
				continue
			}
		}
		v = append(v, ch)
		keep = len(v)
	}
}

// escape reads what follows a backslash in a value; skip is a continued line.
func (p *configParser) escape() (ch byte, skip, ok bool) {
	if p.done() {
		return 0, false, false
	}
	switch ch = p.char(); ch {
	case '\n':
		p.line++
		return 0, true, true
	case 't':
		return '\t', false, true
	case 'b':
		return '\b', false, true
	case 'n':
		return '\n', false, true
	case '\\', '"':
		return ch, false, true
	}
	return 0, false, false
}
