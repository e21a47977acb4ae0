package seatbelt

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// maxPath is the longest path of macOS, in bytes (MAXPATHLEN, sys/param.h).
const maxPath = 1024

// quote returns p as a string of SBPL. In such a string a backslash begins an escape
// and a quotation mark ends it; all else stands for itself. What could be read as more
// than that is refused, as no file needs it: control characters and line separators,
// what is not UTF-8 (which APFS refuses as well), and "${", which profiles of the
// system use for variables.
func quote(p string) (string, error) {
	switch {
	case !utf8.ValidString(p):
		return "", fmt.Errorf("path %q is not UTF-8: it cannot stand in a profile", p)
	case len(p) > maxPath:
		return "", fmt.Errorf("path %.40q… has %d bytes, at most %d", p, len(p), maxPath)
	case strings.Contains(p, "${"):
		return "", fmt.Errorf("path %q has a \"${\", which a profile takes for a variable; rename it", p)
	}
	for _, r := range p {
		if unicode.IsControl(r) || r == '\u2028' || r == '\u2029' {
			return "", fmt.Errorf("path %q has a control character: it cannot stand in a profile; rename it", p)
		}
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(p) + `"`, nil
}

// regex returns a filter for a regular expression, which holds no quotation mark: those
// here are made by this package, from constants and from [folded].
func regex(expr string) string { return `(regex #"` + expr + `")` }

// links are directories of the system that are links to others, and the firm links of
// the data volume: a file there has two spellings.
var links = [...][2]string{
	{"/private/tmp", "/tmp"}, {"/private/var", "/var"}, {"/private/etc", "/etc"},
}

const dataVolume = "/System/Volumes/Data"

// spellings returns the paths by which p goes. Seatbelt compares with the path that the
// kernel keeps, which is the first one; the others cost nothing where that is so.
func spellings(p string) []string {
	if rest, ok := strings.CutPrefix(p, dataVolume+"/"); ok {
		p = "/" + rest
	}
	for _, l := range links {
		if beneath(p, l[1]) {
			p = l[0] + p[len(l[1]):]
		}
		if beneath(p, l[0]) {
			return []string{p, l[1] + p[len(l[0]):]}
		}
	}
	return []string{p}
}

// odd stands for one character or more that no pattern of ours has. A volume that does
// not tell letter case apart may take such a character for one of ours.
const odd = "[^ -~]+"

// ligatures are runs of letters that one character folds to (Unicode, CaseFolding.txt,
// status F): ß, and U+FB00 to U+FB06.
var ligatures = [...]string{"ffi", "ffl", "ff", "fi", "fl", "ss", "st"}

// folded returns an expression that matches one component in any letter case. Its "*"
// matches any run of characters. What is neither a letter nor a digit of ASCII nor
// harmless matches anything at all in its place, so that nothing of name can have a
// meaning of its own. A character beyond ASCII takes the one before it along: an
// accent may be part of it (Unicode, NFC and NFD), and a volume compares without that.
func folded(name string) string {
	var parts []string
	for name != "" {
		r, size := utf8.DecodeRuneInString(name)
		if r >= utf8.RuneSelf {
			if n := len(parts); n > 0 {
				parts = parts[:n-1]
			}
			parts = append(parts, "[^/]+")
			name = name[size:]
			continue
		}
		run := ligature(name)
		if run == "" {
			parts = append(parts, letter(r))
			name = name[size:]
			continue
		}
		var letters strings.Builder
		for _, l := range run {
			letters.WriteString(letter(l))
		}
		parts = append(parts, "("+letters.String()+"|"+odd+")")
		name = name[len(run):]
	}
	return strings.Join(parts, "")
}

// ligature returns the run of letters at the beginning of name that one character may
// stand for, or "".
func ligature(name string) string {
	for _, l := range ligatures {
		if len(name) >= len(l) && strings.EqualFold(name[:len(l)], l) {
			return l
		}
	}
	return ""
}

func letter(r rune) string {
	lower := unicode.ToLower(r)
	switch {
	case lower == 'k' || lower == 's': // U+212A is a "k", U+017F is an "s"
		return "([" + string(lower) + string(unicode.ToUpper(lower)) + "]|" + odd + ")"
	case lower >= 'a' && lower <= 'z':
		return "[" + string(lower) + string(unicode.ToUpper(lower)) + "]"
	case lower >= '0' && lower <= '9' || r == '-' || r == '_':
		return string(r)
	case r == '.':
		return `\.`
	case r == '*':
		return "[^/]*"
	}
	return "[^/]"
}

// foldedPath is folded of each component.
func foldedPath(p string) string {
	names := strings.Split(p, "/")
	for i, n := range names {
		names[i] = folded(n)
	}
	return strings.Join(names, "/")
}

// plain is what may stand in an expression as it is.
func plain(p string) bool {
	return strings.IndexFunc(p, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("/-_.", r)
	}) < 0
}

// anchored returns an expression for the beginning of a path beneath dir, or "", which
// matches more, if dir cannot stand in one.
func anchored(dir string) string {
	if !plain(dir) {
		return ""
	}
	if dir == "/" {
		return "^"
	}
	return "^" + strings.ReplaceAll(dir, ".", `\.`)
}
