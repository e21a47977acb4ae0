package weburl

import "strings"

// The percent-encode sets of the standard, less what every one of them holds
// (controls and everything above "~").
const (
	fragmentSet = " \"<>`"
	querySet    = ` "#<>'` // the special-query set
	pathSet     = " \"#<>?^`{}"
)

const upperHex = "0123456789ABCDEF"

func encode(s, set string) string {
	need := func(c byte) bool { return c < ' ' || c > '~' || strings.IndexByte(set, c) >= 0 }
	i := 0
	for i < len(s) && !need(s[i]) {
		i++
	}
	if i == len(s) {
		return s
	}
	b := []byte(s[:i])
	for ; i < len(s); i++ {
		if c := s[i]; need(c) {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		} else {
			b = append(b, c)
		}
	}
	return string(b)
}

// plainEscapes decodes escapes of the unreserved characters of RFC 3986, puts the
// hexadecimal digits of the others in upper case, and escapes each "%" that
// starts no escape, so that none can arise from it and what was decoded.
func plainEscapes(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		c, ok := escaped(s, i)
		switch {
		case ok && unreserved(c):
			b = append(b, c)
		case ok:
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		case s[i] == '%':
			b = append(b, "%25"...)
		default:
			b = append(b, s[i])
		}
		if ok {
			i += 2
		}
	}
	return string(b)
}

func unreserved(c byte) bool {
	return 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' ||
		c == '-' || c == '.' || c == '_' || c == '~'
}

// Unescape undoes every percent-escape of s once; what is no escape stays.
func Unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if c, ok := escaped(s, i); ok {
			b = append(b, c)
			i += 2
		} else {
			b = append(b, s[i])
		}
	}
	return string(b)
}

// Escape encodes s as one segment of a path: all but unreserved characters.
func Escape(s string) string {
	b := make([]byte, 0, len(s))
	for _, c := range []byte(s) {
		if unreserved(c) {
			b = append(b, c)
		} else {
			b = append(b, '%', upperHex[c>>4], upperHex[c&15])
		}
	}
	return string(b)
}

// escaped returns the byte that an escape at s[i] stands for.
func escaped(s string, i int) (byte, bool) {
	if s[i] != '%' || i+2 >= len(s) {
		return 0, false
	}
	hi, ok1 := hexDigit(s[i+1])
	lo, ok2 := hexDigit(s[i+2])
	return hi<<4 | lo, ok1 && ok2
}

func hexDigit(c byte) (byte, bool) {
	switch {
	case '0' <= c && c <= '9':
		return c - '0', true
	case 'a' <= c && c <= 'f':
		return c - 'a' + 10, true
	case 'A' <= c && c <= 'F':
		return c - 'A' + 10, true
	}
	return 0, false
}

// asciiLower lowers A to Z and nothing else: other letters have their own rules.
func asciiLower(s string) string {
	for i := 0; i < len(s); i++ {
		if c := s[i]; 'A' <= c && c <= 'Z' {
			return strings.Map(lowerRune, s)
		}
	}
	return s
}

func lowerRune(r rune) rune {
	if 'A' <= r && r <= 'Z' {
		return r + 'a' - 'A'
	}
	return r
}
