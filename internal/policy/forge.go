package policy

import "strings"

// forges are the hosts on which the names of owners and repositories are the same
// in capitals and small letters. Where a prefix on one of them did not say so, a
// rule that forbids github.com/me would be evaded by github.com/Me.
var forges = map[string]bool{
	"api.github.com": true, "bitbucket.org": true, "codeberg.org": true, "gist.github.com": true,
	"github.com": true, "gitlab.com": true, "raw.githubusercontent.com": true,
}

// foldPrefix returns a prefix ("github.com/Me", with or without a port) as it is
// compared: on a forge in small letters, elsewhere as it is.
func foldPrefix(prefix string) string {
	at, rest, deep := strings.Cut(prefix, "/")
	if host, _ := cutHostPort(at); !deep || !forges[host] {
		return prefix
	}
	return at + "/" + strings.ToLower(rest)
}
