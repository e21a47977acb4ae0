package inspect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"ringfence/internal/act/strictjson"
)

// A Remark is a passage in the definition of a tool that a person should look at
// before they approve it.
type Remark struct {
	Pointer string // of the text in the definition (RFC 6901)
	Why     string // in our words
	Text    string // the passage, cut, as the server wrote it: make it visible before printing it
}

// Bounds of what is said of one definition.
const (
	maxRemarks = 16
	maxPassage = 80      // bytes of Remark.Text
	longText   = 4 << 10 // bytes of one text that nobody reads to its end
	longBlob   = 200     // characters in a row of the alphabet of base64
)

// A hint is words that are ordinary in a page and out of place in the description
// of a tool: a description says what its tool does, not what else must be done.
type hint struct {
	why   string
	words []string // in lower case; one of them
}

// hints follow what published poisoned definitions say (Invariant Labs, "Tool
// poisoning attacks", 2025; MCPTox, 2025).
var hints = []hint{
	{"gives orders for other calls", []string{
		"before using", "before calling", "before invoking", "before you use", "before you call", "before any other tool",
		"must first", "you must always", "always call", "always use this", "always run", "call this tool first", "use this tool first",
		"every time you", "after calling any", "whenever the user",
	}},
	{"asks to keep something from the person", []string{
		"do not tell", "don't tell", "do not mention", "don't mention", "do not inform", "do not show", "never tell", "never mention",
		"never reveal", "without telling", "without asking", "without informing", "user does not need to know",
	}},
	{"names places where secrets are kept", []string{
		"~/.ssh", "/.ssh/", "id_rsa", "id_ed25519", ".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".git-credentials", "/etc/passwd",
		"/etc/shadow", ".kube/config", "mcp.json", "keychain", "private key", "wallet.dat", ".config/gh", "~/.cursor", "~/.claude",
	}},
	{"asks for what the conversation holds", []string{
		"conversation history", "chat history", "entire conversation", "full conversation", "whole conversation", "previous messages",
		"all messages", "system prompt", "your instructions", "sidenote", "side note", "chain of thought",
	}},
	{"presses", []string{"<important", "important!!", "otherwise the tool will", "will not work unless", "you will be", "critical:", "mandatory:", "attention:"}},
	{"carries content that is not text", []string{"data:text/html", "data:application", "javascript:", "<!--", "<script", "<iframe", "!["}},
}

// Definition looks through every text of a definition – names, titles, descriptions,
// enumerations, defaults, examples, members that nobody knows – for what plants
// instructions. others are the names of tools of other servers. What it says is for a
// person who reviews; nothing is allowed or denied by it.
func (in *Inspector) Definition(def []byte, others []string) []Remark {
	r := remarks{others: others}
	f := in.Scan(def)
	walkTexts := func(v strictjson.Value) error {
		if v.Kind != strictjson.String {
			return nil // it says nothing
		}
		text, err := v.Text()
		if err != nil {
			return err
		}
		for _, m := range slices.Concat(f.Signs, f.Matches) {
			if m.Kind == Active && strings.HasPrefix(v.Pointer, "/icons/") {
				continue // a picture, as which a client has to show it
			}
			if m.Start >= v.Start && m.End <= v.End {
				r.add(v.Pointer, signWords(m), string(def[m.Start:m.End]))
			}
		}
		r.text(v.Pointer, text)
		return nil
	}
	err := strictjson.Walk(def, walkTexts)
	if err == nil {
		err = strictjson.Names(def, walkTexts)
	}
	if err != nil {
		r.add("", "cannot be read", "")
	}
	return r.list
}

// signWords says what a sign or a match of the scan means in a definition.
func signWords(m Match) string {
	switch m.Kind {
	case Escape:
		return "holds control characters"
	case Hidden:
		return "holds characters that are not seen"
	case Bidi:
		return "changes the direction of writing"
	case Injection:
		return "addresses the model"
	case Active:
		return "holds a data: URL whose content runs"
	case Private:
		return "holds what looks like the number of a person, a card or an account"
	case KnownSecret, Token, Suspect:
	}
	return "holds what looks like a secret"
}

type remarks struct {
	list   []Remark
	others []string
}

// add notes one remark, each reason once for each text.
func (r *remarks) add(pointer, why, passage string) {
	if len(r.list) >= maxRemarks || slices.ContainsFunc(r.list, func(o Remark) bool { return o.Pointer == pointer && o.Why == why }) {
		return
	}
	r.list = append(r.list, Remark{Pointer: pointer, Why: why, Text: cut(passage)})
}

func (r *remarks) text(pointer, text string) {
	lower := strings.ToLower(text)
	for _, h := range hints {
		for _, w := range h.words {
			if i := strings.Index(lower, w); i >= 0 {
				r.add(pointer, h.why, around(text, lower, i))
				break
			}
		}
	}
	for _, o := range r.others {
		if i := strings.Index(text, o); i >= 0 && distinct(o) && alone(text, i, len(o)) {
			r.add(pointer, "names a tool of another server", around(text, text, i))
			break
		}
	}
	if strings.HasPrefix(pointer, "/icons/") && strings.HasPrefix(text, "data:image/") {
		return // a picture is long
	}
	if len(text) > longText {
		r.add(pointer, fmt.Sprintf("is long: %d bytes", len(text)), "")
	}
	if i := blob(text); i >= 0 {
		r.add(pointer, "holds a long run of encoded text", text[i:])
	}
}

// around is the passage of text at i of its lower form, which may have other lengths
// for a few letters: then the lower form is shown.
func around(text, lower string, i int) string {
	if len(text) != len(lower) {
		text = lower
	}
	if from := max(0, i-24); from > 0 {
		if space := strings.IndexByte(text[from:i], ' '); space >= 0 {
			return text[from+space+1:]
		}
		return text[i:]
	}
	return text
}

func cut(s string) string {
	if len(s) <= maxPassage {
		return s
	}
	n := maxPassage
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n] + "…"
}

// distinct reports whether a name of a tool is more than a word of the language.
func distinct(name string) bool {
	return len(name) > 4 && (strings.ContainsAny(name, "_-.") || name != strings.ToLower(name))
}

// alone reports whether text[i:i+n] is not part of a longer word.
func alone(text string, i, n int) bool {
	word := func(b byte) bool { return b == '_' || b == '-' || is(b, alnum) }
	return (i == 0 || !word(text[i-1])) && (i+n == len(text) || !word(text[i+n]))
}

// blob is where a run of longBlob characters of base64 or hexadecimal begins, or -1.
func blob(text string) int {
	start := 0
	for i := range len(text) {
		if c := text[i]; !is(c, alnum) && c != '+' && c != '/' && c != '_' && c != '-' {
			start = i + 1
		} else if i-start >= longBlob {
			return start
		}
	}
	return -1
}
