package weburl

import (
	"bufio"
	"net/netip"
	"os"
	"strings"
	"testing"
)

// TestSpecial: testdata/special.txt has an address, or a name, and what it is.
func TestSpecial(t *testing.T) {
	f, err := os.Open("testdata/special.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	n := 0
	for s := bufio.NewScanner(f); s.Scan(); n++ {
		text, want, _ := strings.Cut(s.Text(), " ")
		var got []string
		if a, err := netip.ParseAddr(text); err == nil && Special(a) {
			got = append(got, "special")
		}
		h, err := ParseHost(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if h.Metadata() {
			got = append(got, "metadata")
		}
		if strings.Join(got, " ") != strings.TrimSpace(want) {
			t.Errorf("%s is %q, want %q", text, got, want)
		}
	}
	if n < 40 {
		t.Errorf("only %d cases", n)
	}
}
