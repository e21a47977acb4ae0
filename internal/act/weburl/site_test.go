package weburl

import (
	"os"
	"strings"
	"testing"
)

// TestSites runs testdata/sites.txt: a site, a host, and whether that is of it; or a site
// that is none.
func TestSites(t *testing.T) {
	text, err := os.ReadFile("testdata/sites.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		s, err := ParseSite(words[0])
		if words[1] == "bad" {
			if err == nil {
				t.Errorf("%s is a site", words[0])
			}
			continue
		}
		h, port, herr := ParseHostPort(words[1])
		if err != nil || herr != nil || s.Covers(h, port) != (words[2] == "yes") {
			t.Errorf("%s: %v, %v", strings.TrimSpace(line), err, herr)
		}
	}
	if (Site{}).Covers(Host{}, 0) {
		t.Error("nothing is a place")
	}
}
