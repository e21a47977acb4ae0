package egress

import (
	"strings"

	"ringfence/internal/act/weburl"
)

// mutates reports whether a parameter of a query holds an operation of GraphQL that is
// more than a query, wherever in the document it stands: some servers carry it out for a
// GET. Other texts are taken for one too rarely to matter, and are then only sent.
func mutates(query string) bool {
	for part := range strings.FieldsFuncSeq(query, func(r rune) bool { return r == '&' || r == ';' }) {
		_, value, _ := strings.Cut(part, "=")
		text := weburl.Unescape(strings.ReplaceAll(value, "+", " "))
		if strings.ContainsAny(text, "{") && hasOperation(text) {
			return true
		}
	}
	return false
}

// hasOperation looks for the name of such an operation as a word of its own. Strings and
// comments are not left out: where they end is one more thing to disagree about.
func hasOperation(text string) bool {
	for word := range strings.FieldsFuncSeq(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) {
		if word == "mutation" || word == "subscription" {
			return true
		}
	}
	return false
}
