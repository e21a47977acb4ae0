package inspect

import (
	"bytes"
	"slices"
	"strings"
)

// class is a set of byte classes.
type class uint16

const (
	digitChar  class = 1 << iota // 0-9
	upperChar                    // A-Z
	lowerChar                    // a-z
	underChar                    // _
	dashChar                     // -
	base64Char                   // both alphabets and padding
	spaceChar                    // white space
	dotChar                      // .
	armorChar                    // what stands between the lines of an armoured key (RFC 7468, 1421, 9580)
)

const (
	alnum = digitChar | upperChar | lowerChar
	word  = alnum | underChar
	slug  = word | dashChar
)

var classes = func() (t [256]class) {
	for b := range t {
		switch c := byte(b); {
		case '0' <= c && c <= '9':
			t[b] = digitChar | base64Char
		case 'A' <= c && c <= 'Z':
			t[b] = upperChar | base64Char
		case 'a' <= c && c <= 'z':
			t[b] = lowerChar | base64Char
		case c == '_':
			t[b] = underChar | base64Char
		case c == '-':
			t[b] = dashChar | base64Char
		case c == '+' || c == '/' || c == '=':
			t[b] = base64Char
		case c == ' ' || c == '\t' || c == '\n' || c == '\r':
			t[b] = spaceChar
		case c == '.':
			t[b] = dotChar
		}
		if strings.IndexByte("\\:,.()@<> \t\r\n", byte(b)) >= 0 || t[b]&(base64Char|spaceChar) != 0 {
			t[b] |= armorChar
		}
	}
	return t
}()

func is(b byte, c class) bool { return classes[b]&c != 0 }

// run is how many of the first max bytes of b are in c before one that is not.
func run(b []byte, c class, max int) int {
	n := 0
	for n < len(b) && n < max && is(b[n], c) {
		n++
	}
	return n
}

// A shape is the documented form of one kind of credential: a prefix, then min
// to max bytes of a class, and then none of that class.
type shape struct {
	name     string
	prefix   string
	class    class
	min, max int
	// also, if set, has the final say over the bytes after the prefix.
	also func(rest []byte) bool
}

// maxRun bounds how far any shape looks ahead, and so the work for one byte.
const maxRun = 1024

// shapes are the credentials recognised by their form. Each is specific enough
// that ordinary text does not have it.
var shapes = []shape{
	{"aws-key-id", "AKIA", upperChar | digitChar, 16, 16, nil},
	{"aws-key-id", "ASIA", upperChar | digitChar, 16, 16, nil},
	{"github-token", "ghp_", alnum, 36, 251, nil},
	{"github-token", "gho_", alnum, 36, 251, nil},
	{"github-token", "ghu_", alnum, 36, 251, nil},
	{"github-token", "ghs_", slug | dotChar, 36, maxRun, nil},
	{"github-token", "ghr_", alnum, 36, 251, nil},
	{"github-token", "github_pat_", word, 60, 251, nil},
	{"gitlab-token", "glpat-", slug | dotChar, 20, 300, nil},
	{"gitlab-token", "glrt-", slug | dotChar, 20, 300, nil},
	{"anthropic-key", "sk-ant-", slug, 40, maxRun, nil},
	{"openai-key", "sk-proj-", slug, 40, maxRun, nil},
	{"openai-key", "sk-svcacct-", slug, 40, maxRun, nil},
	{"openai-key", "sk-admin-", slug, 40, maxRun, nil},
	{"openrouter-key", "sk-or-v1-", lowerChar | digitChar, 64, 64, nil},
	{"openai-key", "sk-", alnum, 48, 48, mixed},
	{"google-api-key", "AIza", slug, 35, 35, mixed},
	{"google-oauth-token", "ya29.", slug, 40, maxRun, mixed},
	{"google-oauth-secret", "GOCSPX-", slug, 28, 28, nil},
	{"slack-token", "xoxb-", alnum | dashChar, 20, 300, digits},
	{"slack-token", "xoxp-", alnum | dashChar, 20, 300, digits},
	{"slack-token", "xoxa-", alnum | dashChar, 20, 300, digits},
	{"slack-token", "xoxr-", alnum | dashChar, 20, 300, digits},
	{"slack-token", "xoxe-", alnum | dashChar, 20, 300, digits},
	{"slack-token", "xapp-", alnum | dashChar, 40, 300, digits},
	{"slack-webhook", "hooks.slack.com/services/", alnum | base64Char, 40, 100, nil},
	{"stripe-key", "sk_live_", alnum, 24, 250, nil},
	{"stripe-key", "rk_live_", alnum, 24, 250, nil},
	{"npm-token", "npm_", alnum, 36, 36, mixed},
	{"pypi-token", "pypi-AgE", slug, 50, maxRun, nil},
	{"huggingface-token", "hf_", alnum, 34, 40, mixed},
	{"sendgrid-key", "SG.", slug | dotChar, 66, 66, nil},
	{"digitalocean-token", "dop_v1_", lowerChar | digitChar, 64, 64, nil},
	{"docker-token", "dckr_pat_", slug, 27, 40, nil},
	{"age-key", "AGE-SECRET-KEY-1", upperChar | digitChar, 58, 58, nil},
	{"bearer-token", "earer ", slug | dotChar | base64Char, 24, maxRun, mixed},
}

// mixed wants upper and lower case letters and digits, as random text of this
// length has them and words do not.
func mixed(b []byte) bool {
	var seen class
	for _, c := range b {
		seen |= classes[c]
	}
	return seen&alnum == alnum
}

func digits(b []byte) bool {
	n := 0
	for _, c := range b {
		if is(c, digitChar) {
			n++
		}
	}
	return n >= 6
}

// A verdict is what can be said of a shape at a place.
type verdict uint8

const (
	no   verdict = iota
	yes          //
	more         // more text decides; never where there is none
)

// match reports whether the shape is at text[i], where its prefix is, and where the
// credential begins and ends.
func (sh shape) match(s *scan, text []byte, i int) (start, end int, v verdict) {
	bearer := sh.name == "bearer-token"
	if !bearer && !begins(text, i) {
		return 0, 0, no
	}
	from := i + len(sh.prefix)
	n := s.run(sh.class).end(text, from, sh.class, sh.max+1) - from
	if from+n == len(text) && n <= sh.max && !s.whole {
		return 0, 0, s.until(sh.class, from+sh.max+1)
	}
	if n < sh.min || n > sh.max && sh.max < maxRun {
		return 0, 0, no
	}
	rest := text[from : from+n]
	if dull(rest) || sh.also != nil && !sh.also(rest) {
		return 0, 0, no
	}
	if bearer {
		return from, from + n, yes
	}
	return i, from + n, yes
}

// dull reports whether b is a placeholder: few different bytes, or a word that
// documentation uses.
func dull(b []byte) bool {
	var seen [256]bool
	different := 0
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			different++
		}
	}
	return different < 8 || bytes.Contains(b, []byte("EXAMPLE")) || bytes.Contains(b, []byte("example"))
}

// begins reports whether a word can begin at i. A letter before it that belongs
// to an escape (\n, \t, \r) is none.
func begins(text []byte, i int) bool {
	if i == 0 || !is(text[i-1], word) {
		return true
	}
	c := text[i-1]
	return i > 1 && text[i-2] == '\\' && (c == 'n' || c == 't' || c == 'r')
}

// special finds the credentials whose form is no prefix and run. prefix is
// where to look.
type special struct {
	name   string
	prefix string
	match  func(s *scan, text []byte, i int) (start, end int, v verdict)
}

var specials = []special{
	{"jwt", "eyJ", matchJWT},
	{"private-key", "-----BEGIN ", matchPEM},
	{"aws-secret-key", "ccess", matchAWSSecret},
	{"aws-secret-key", "CCESS", matchAWSSecret},
	{"url-password", "://", matchURLPassword},
}

// matchJWT wants three base64url parts, the first two of JSON objects (RFC
// 7519; "eyJ" is {").
func matchJWT(s *scan, text []byte, i int) (start, end int, v verdict) {
	if !begins(text, i) {
		return 0, 0, no
	}
	const most = 16 * maxRun
	end = i
	for part := range 3 {
		if part > 0 {
			if end >= len(text) {
				return 0, 0, s.until(0, 0)
			}
			if text[end] != '.' {
				return 0, 0, no
			}
			end++
		}
		n := s.slugs[part].end(text, end, slug, most) - end
		if end+n == len(text) && n < most && !s.whole {
			return 0, 0, s.until(slug, end+most)
		}
		if n < 10 || part == 1 && !bytes.HasPrefix(text[end:], []byte("eyJ")) {
			return 0, 0, no
		}
		end += n
	}
	return i, end, yes
}

// matchPEM wants the block of a private key (RFC 7468, also OpenPGP's). Without
// its end it is what looks like its text.
func matchPEM(s *scan, text []byte, i int) (start, end int, v verdict) {
	const longest = 60
	from := i + len("-----BEGIN ")
	n := run(text[from:], upperChar|digitChar|spaceChar, longest)
	if len(text) < from+n+len("-----") {
		return 0, 0, s.until(0, 0)
	}
	label := text[from : from+n]
	if !bytes.HasSuffix(label, []byte("PRIVATE KEY")) && !bytes.HasSuffix(label, []byte("PRIVATE KEY BLOCK")) {
		return 0, 0, no
	}
	body := from + n + len("-----")
	if !bytes.HasPrefix(text[from+n:], []byte("-----")) {
		return 0, 0, no
	}
	within := s.armor.end(text, body, armorChar, maxPEM) - body
	if k := s.footer(text, body, body+within); k < body+within {
		foot := "-----END " + string(label) + "-----"
		switch {
		case k-body < minPEM:
			return 0, 0, no
		case hasPrefix(text[k:], foot):
			return i, k + len(foot), yes
		case len(text)-k < len(foot) && !s.whole:
			return 0, 0, s.until(0, 0)
		}
	}
	if body+within == len(text) && within < maxPEM && !s.whole {
		return 0, 0, s.until(armorChar&^dashChar, body+maxPEM)
	}
	lineBreak := run(text[body:], spaceChar, 4)
	if lineBreak == 0 && bytes.HasPrefix(text[body:], []byte(`\n`)) {
		lineBreak = 2
	}
	if run(text[body+lineBreak:], base64Char, minPEM) < minPEM {
		return 0, 0, no // talks about keys
	}
	end = body
	for end < body+within && (is(text[end], base64Char|spaceChar) || text[end] == '\\') {
		end++
	}
	return i, end, yes
}

const (
	maxPEM = 64 << 10 // bytes of the longest block
	minPEM = 40       // base64 characters that no mention of a key has
)

// footer is where the first line that ends a key begins, from body on; limit if none does
// before that.
func (s *scan) footer(text []byte, body, limit int) int {
	const foot = "-----END "
	from := body
	if s.foot.from <= body && body <= s.foot.to {
		if s.foot.to >= limit || hasPrefix(text[s.foot.to:], foot) {
			return min(s.foot.to, limit)
		}
		from = max(body, s.foot.to-len(foot)+1) // none begins before that
	}
	s.foot = reach{body, limit}
	if at := bytes.Index(text[from:limit], []byte(foot)); at >= 0 {
		s.foot.to = from + at
	}
	return s.foot.to
}

// matchAWSSecret wants forty base64 characters as the value of a secret access
// key, however that name is written. i is within the name.
func matchAWSSecret(s *scan, text []byte, i int) (start, end int, v verdict) {
	var room [nearby]byte
	before := lowered(&room, text[max(0, i-8):i])
	if !bytes.Contains(before, []byte("secret")) {
		return 0, 0, no
	}
	from := i + len("ccess")
	if from < len(text) && text[from] == '_' {
		from++
	}
	if len(text) < from+3 {
		return 0, 0, s.until(0, 0)
	}
	if !bytes.EqualFold(text[from:from+3], []byte("key")) {
		return 0, 0, no
	}
	from += 3
	for n := 0; n < 12 && from < len(text) && bytes.IndexByte([]byte(" \t:=\"'\\>"), text[from]) >= 0; n++ {
		from++
	}
	n := run(text[from:], base64Char&^(underChar|dashChar), 41)
	if from+n == len(text) && n < 41 && !s.whole {
		return 0, 0, s.until(0, 0)
	}
	if n != 40 || !mixed(text[from:from+n]) || dull(text[from:from+n]) {
		return 0, 0, no
	}
	return from, from + n, yes
}

// awsMember is matchAWSSecret for a member of a JSON object. value stands at
// offset from of the content.
func (s *scan) awsMember(name, value []byte, from int) {
	if len(value) == 40 && len(name) >= len("SecretAccessKey") && len(name) <= 64 {
		pair := slices.Concat(name, []byte("="), value)
		i := bytes.Index(bytes.ToLower(name), []byte("ccess"))
		if i < 0 {
			return
		}
		if _, _, v := matchAWSSecret(s, pair, i); v == yes {
			s.add(Match{Start: from, End: from + 40, Kind: Token, Name: "aws-secret-key"})
		}
	}
}

// matchURLPassword wants the password of user:password@ after "://".
func matchURLPassword(s *scan, text []byte, i int) (start, end int, v verdict) {
	from := i + len("://")
	user, v := userinfo(s, text[from:], 128, ':')
	if v != yes {
		return 0, 0, v
	}
	start = from + user + 1
	n, v := userinfo(s, text[start:], 256, '@')
	if v != yes {
		return 0, 0, v
	}
	if n < 6 || placeholder(text[start:start+n]) {
		return 0, 0, no
	}
	return start, start + n, yes
}

// userinfo is how far it is to until, within limit bytes of a user or password.
func userinfo(s *scan, text []byte, limit int, until byte) (int, verdict) {
	for n := range limit {
		if n == len(text) {
			return 0, s.until(0, 0)
		}
		switch c := text[n]; {
		case c == until:
			return n, yes
		case c <= ' ' || c == '/' || c == '@' || c == '"' || c == '\'' || c == '<' || c == '>' || c == '\\' || c == '?' || c == '#':
			return 0, no
		}
	}
	return 0, no
}

// placeholder reports whether b stands for a password rather than being one.
func placeholder(b []byte) bool {
	for _, p := range []string{"password", "passwd", "secret", "token", "changeme"} {
		if bytes.EqualFold(b, []byte(p)) {
			return true
		}
	}
	return bytes.ContainsAny(b, "${}*[]") || bytes.Count(b, b[:1]) == len(b)
}
