package resolve

import (
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strings"
	"sync"
	"unicode/utf8"

	"ringfence/internal/act/weburl"
	"ringfence/internal/sys/look"
)

// The bounds of a path. The first two are the kernel's.
const (
	maxPath    = 4096
	maxName    = 255
	maxLinks   = 40
	maxEntries = 100_000 // of a directory that is searched for another spelling of a name
)

// A place is what a path names, as it was when it was looked at.
type place struct {
	path    string    // real: every link followed
	link    string    // where the last component itself is, if it is a link; else ""
	info    look.Info // of what is at path, if anything is
	exists  bool
	missing int // how many components at the end are missing
}

func (p place) dir() bool { return p.exists && p.info.IsDir() }

// nearest returns the nearest that can be a directory: the path itself, or what is above
// what is missing, or is none.
func (p place) nearest() string {
	up := p.missing
	if p.exists && !p.info.IsDir() {
		up = 1
	}
	near := p.path
	for ; up > 0; up-- {
		near = path.Dir(near)
	}
	return near
}

// place finds what text names: a path or file URL, relative to base.
func (v View) place(text, base string) (place, error) {
	abs, err := v.absolute(text, base)
	if err != nil {
		return place{}, err
	}
	p, err := follow(abs)
	if err != nil {
		return place{}, err
	}
	return p, checkReal(p)
}

// variable matches a first component that many programs replace by a variable.
var variable = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(\$[A-Z_][A-Z0-9_]*|\$\{[^/}]*\}|%[A-Za-z_()0-9]+%)(/|$)`)
})

// absolute makes text an absolute path, without following links.
func (v View) absolute(text, base string) (string, error) {
	if err := checkPathText(text); err != nil {
		return "", err
	}
	if len(text) >= 5 && strings.EqualFold(text[:5], "file:") {
		p, err := filePath(text)
		if err != nil {
			return "", err
		}
		return p, checkPathText(p)
	}
	switch {
	case text[0] == '/':
		return text, nil
	case text == "~":
		return v.Home, nil
	case strings.HasPrefix(text, "~/"):
		return v.Home + text[1:], nil
	case text[0] == '~':
		return "", bad(`write the path out, or begin it with "~/" for your own home`, "names the home of somebody else")
	case variable().MatchString(text):
		return "", bad("write the path out", "begins with a variable, which is not replaced here")
	}
	if !strings.HasPrefix(base, "/") {
		return "", bad("write an absolute path", "is relative, and what to is not known")
	}
	return base + "/" + text, nil
}

func checkPathText(s string) error {
	switch {
	case s == "":
		return bad("", "an empty path names nothing")
	case len(s) > maxPath:
		return bad("", "is longer than %d bytes", maxPath)
	case !utf8.ValidString(s):
		return bad("", "is not valid UTF-8")
	case hasControl(s):
		return bad("", "holds control characters")
	}
	return nil
}

// filePath returns the path of a file URL on this machine (RFC 8089).
func filePath(text string) (string, error) {
	rest := text[len("file:"):]
	if host, ok := strings.CutPrefix(rest, "//"); ok {
		i := strings.IndexByte(host, '/')
		if i < 0 || i > 0 && !strings.EqualFold(host[:i], "localhost") {
			return "", bad(`write "file:///" and the path`, "names a file of another machine")
		}
		rest = host[i:]
	}
	if !strings.HasPrefix(rest, "/") {
		return "", bad(`write "file:///" and the path`, "is no absolute file URL")
	}
	if strings.ContainsAny(rest, `?#\`) {
		return "", bad("write the path itself", `holds "?", "#" or "\", which a file URL may only hold escaped`)
	}
	return weburl.Unescape(rest), nil
}

// checkReal refuses real paths that servers are known to read differently: the
// reference file server strips white space and quotes at both ends.
func checkReal(p place) error {
	for _, s := range []string{p.path, p.link} {
		if s == "" {
			continue
		}
		if err := checkPathText(s); err != nil {
			return err
		}
		if last, _ := utf8.DecodeLastRuneInString(s); last == '"' || last == '\'' || strings.TrimSpace(string(last)) == "" {
			return bad("", "ends in white space or a quotation mark, which servers strip")
		}
	}
	return nil
}

// follow finds the real place of an absolute path the way the kernel does:
// component by component, ".." after links. Nothing is kept between calls.
func follow(abs string) (place, error) {
	if p, ok := followPlain(abs); ok {
		return p, nil
	}
	w := walker{cur: "/"}
	for parts := strings.Split(abs, "/"); len(parts) > 0; {
		name := parts[0]
		parts = parts[1:]
		target, err := w.step(name, parts)
		if err != nil {
			return place{}, err
		}
		if target != "" {
			parts = append(strings.Split(target, "/"), parts...)
		}
	}
	if w.missing == 0 && !w.known {
		info, err := look.Lstat(w.cur)
		if err != nil {
			return place{}, bad("", "could not be examined at %q: %v", w.cur, cause(err))
		}
		w.info = info
	}
	return place{path: w.cur, link: w.link, info: w.info, exists: w.missing == 0, missing: w.missing}, nil
}

// followPlain handles the usual case, a clean path in which no component is a
// link, without walking. Only the last component may be missing.
func followPlain(abs string) (place, bool) {
	if len(abs) > maxPath || !clean(abs) {
		return place{}, false
	}
	if info, ok := look.Plain(abs); ok {
		return place{path: abs, info: info, exists: true}, true
	}
	dir, name := path.Split(abs)
	parent, ok := look.Plain(path.Clean(dir))
	if !ok || !parent.IsDir() || len(name) > maxName || !ascii(name) {
		return place{}, false
	}
	_, err := look.Lstat(abs)
	return place{path: abs, missing: 1}, errors.Is(err, fs.ErrNotExist)
}

// clean reports whether abs has no empty, "." or ".." component.
func clean(abs string) bool {
	if len(abs) < 2 || abs[len(abs)-1] == '/' || strings.Contains(abs, "//") {
		return false
	}
	return !strings.Contains(abs, "/./") && !strings.Contains(abs, "/../") &&
		!strings.HasSuffix(abs, "/.") && !strings.HasSuffix(abs, "/..")
}

func ascii(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
