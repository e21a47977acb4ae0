package cli

import (
	"os"
	"strings"
	"testing"
)

// TestNetLog: of the entries in testdata/netlog.txt those about the network are lines,
// which stand behind them.
func TestNetLog(t *testing.T) {
	text, err := os.ReadFile("testdata/netlog.txt")
	if err != nil {
		t.Fatal(err)
	}
	entries, want, _ := strings.Cut(string(text), "\n--\n")
	l := &netLog{asked: map[string][]netLine{}, open: map[string]bool{}}
	var got strings.Builder
	for raw := range strings.Lines(entries) {
		line, err := l.take([]byte(raw))
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		if line != nil {
			got.WriteString(line.text())
		}
	}
	if got.String() != want {
		t.Errorf("%s\nwant\n%s", got.String(), want)
	}
	if len(l.open) > 0 || len(l.asked["s"]) > 0 {
		t.Errorf("%v %v", l.open, l.asked)
	}
}
