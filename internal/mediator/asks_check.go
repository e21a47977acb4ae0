package mediator

import (
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"

	"ringfence/internal/act/strictjson"
)

// askNames are the parameters of what a server may ask. None may be written so that another
// reader could take it for one that was not decided.
var askNames = map[string][]string{
	askElicitation: {"mode", "message", "url", "elicitationId", "requestedSchema", "task", "_meta"},
	askSampling: {
		"messages", "modelPreferences", "systemPrompt", "includeContext", "temperature", "maxTokens", "stopSequences",
		"metadata", "tools", "toolChoice", "task", "_meta",
	},
	askRoots: {"_meta"},
}

// The modes of an elicitation. One that names none is a form.
const (
	modeForm = "form"
	modeURL  = "url"
)

// checkAsk refuses what no person can agree to, whatever is decided: parameters with more
// than one reading, an address that is not what it looks like, text that shows as another.
func checkAsk(method string, params []byte) error {
	members, err := strictjson.Members(params, strictjson.Limits{Depth: resultDepth})
	if err == nil {
		err = unambiguous(members, askNames[method])
	}
	if err != nil || method != askElicitation {
		return err
	}
	v, given, err := strictjson.Find(params, "/url")
	if err != nil {
		return err
	}
	switch mode := modeOf(params); {
	case mode == modeForm && given:
		return errors.New(`an address to open is asked for with the mode "url"`)
	case mode == modeForm:
	case mode != modeURL:
		return errors.New(`the mode is "form" or "url"`)
	case !given:
		return errors.New(`the mode "url" needs an address to open`)
	default:
		text, terr := v.Text()
		if err = errors.Join(terr, checkAddress(text)); err != nil {
			return err
		}
	}
	return checkLegible(params)
}

// modeOf is the mode of an elicitation, "" if it is none that can be read.
func modeOf(params []byte) string {
	v, ok, err := strictjson.Find(params, "/mode")
	if err == nil && !ok {
		return modeForm
	}
	text, terr := v.Text()
	if err != nil || terr != nil {
		return ""
	}
	return text
}

// maxAddress bounds an address to open, in bytes.
const maxAddress = 4096

var (
	errScheme  = errors.New("an address to open begins with https://")
	errAddress = errors.New("an address to open is printable ASCII, with a plain host, perhaps a port, and no user")
)

// checkAddress accepts addresses that every reader of URLs takes for the same host: https to
// any, and http to this machine. Names beyond ASCII are written in punycode (RFC 3492), so that a
// person sees that they are.
func checkAddress(text string) error {
	secure := strings.HasPrefix(text, "https://")
	if !secure && !strings.HasPrefix(text, "http://") {
		return errScheme
	}
	odd := func(r rune) bool { return r <= ' ' || r > '~' || r == '\\' }
	if len(text) > maxAddress || strings.ContainsFunc(text, odd) {
		return errAddress
	}
	u, err := url.Parse(text)
	if err != nil || u.User != nil || u.Opaque != "" || !isHost(u.Hostname()) {
		return errAddress
	}
	// What was parsed is what is written, with no more between the slashes.
	_, rest, _ := strings.Cut(text, "://")
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		rest = rest[:i]
	}
	if rest != u.Host || strings.HasSuffix(rest, ":") {
		return errAddress
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 || port[0] == '0' {
			return errAddress
		}
	}
	if host := u.Hostname(); !secure && host != "localhost" && host != "127.0.0.1" && host != "::1" {
		return errScheme
	}
	return nil
}

// isHost reports whether host, without brackets, is a name of letters, digits and hyphens, or
// a plain IP address. A name whose last part is a number is an IPv4 address to browsers.
func isHost(host string) bool {
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Zone() == ""
	}
	labels := strings.Split(strings.TrimSuffix(host, "."), ".")
	for _, label := range labels {
		for _, c := range []byte(label) {
			if c != '-' && c != '_' && (c < '0' || c > '9') && (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') {
				return false
			}
		}
		if label == "" || len(label) > 63 {
			return false
		}
	}
	last := labels[len(labels)-1]
	return last[0] < '0' || last[0] > '9'
}

// checkLegible refuses text within what a person is asked that would show as another, or do
// something to a terminal: control characters but line breaks and tabs, and what turns the
// direction of text round.
func checkLegible(params []byte) error {
	see := func(v strictjson.Value) error {
		if v.Kind != strictjson.String {
			return nil
		}
		text, err := v.Text()
		if err != nil {
			return err
		}
		for _, r := range strings.ReplaceAll(text, "\r\n", "\n") {
			if isHidden(r) {
				return fmt.Errorf("the text for a person has the character U+%04X, which it may not", r)
			}
		}
		return nil
	}
	if err := strictjson.WalkLimits(params, strictjson.Limits{Depth: resultDepth}, see); err != nil {
		return err
	}
	return strictjson.Names(params, see)
}

// isHidden reports whether r does something instead of showing.
func isHidden(r rune) bool {
	switch {
	case r == '\n', r == '\t':
		return false
	case unicode.IsControl(r), r == '\u2028', r == '\u2029':
		return true
	default: // embeddings, overrides and isolates of direction, and tags
		return r >= '\u202a' && r <= '\u202e' || r >= '\u2066' && r <= '\u2069' || r >= 0xe0000 && r <= 0xe007f
	}
}
