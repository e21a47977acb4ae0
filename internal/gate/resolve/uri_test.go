package resolve

import (
	"path"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// FuzzURI: a URI that is accepted and names a file is dispatched as a URL of just the file
// that is decided on; one that names a page, as it was written.
func FuzzURI(f *testing.F) {
	for _, s := range []string{
		"file:///etc/passwd", "FILE:/etc/./passwd", "file://localhost/etc/%70asswd", "file:///etc/{name}", "https://a.org/x?y#z",
		"note://x", "url:file:///etc", "file:///a%252e%252e/b", "file:///%2e%2e/etc",
	} {
		f.Add(s)
	}
	v := View{Workspace: "/", Home: "/"}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := v.uri(text)
		if err != nil {
			return
		}
		sent, _ := s.real()
		read, err := s.on(act.Read, false)
		if err != nil && strings.Contains(text, "{") {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		fetched, err := s.on(act.Fetch, false)
		if err != nil {
			t.Fatal(err)
		}
		scheme, _, _ := strings.Cut(strings.ToLower(text), ":")
		switch {
		case strings.Contains(text, "{"):
		case scheme == "file":
			file, ok := strings.CutPrefix(sent, "file://")
			if !ok || len(read) != 1 || weburl.Unescape(file) != read[0].Resource.Text || path.Clean(read[0].Resource.Text) != read[0].Resource.Text {
				t.Fatalf("%q is sent as %q, and decided as %v", text, sent, read)
			}
		case scheme == "http" || scheme == "https":
			if sent != text || len(fetched) != 1 {
				t.Fatalf("%q is sent as %q, and decided as %v", text, sent, fetched)
			}
		case sent == text && len(read) == 0 && len(fetched) == 1 && fetched[0].Kind == act.Connect: // D12
		case sent != text || len(read)+len(fetched) != 0:
			t.Fatalf("%q is sent as %q, and decided as %v %v", text, sent, read, fetched)
		}
	})
}
