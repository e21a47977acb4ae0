package egress

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// attacks are the ids of all attacks on the network, on HTTP and on credentials that are known.
const attacks = "NET-01 NET-02 NET-03 NET-04 NET-05 NET-06 NET-07 NET-08 NET-09 NET-10 NET-11 NET-12 NET-13 NET-14 " +
	"HT-01 HT-03 HT-04 HT-05 HT-07 HT-08 HT-09 HT-11 HT-12 HT-13 HT-15 HT-16 HT-17 HT-19 HT-20 HT-21 HT-23 HT-24 HT-25 HT-27 HT-28 HT-29 HT-31 " +
	"CR-01 CR-02 CR-04 CR-05 CR-06 CR-08 CR-09 CR-10"

// TestAttacks: testdata/ids.txt says where each is held, and what it names is there.
func TestAttacks(t *testing.T) {
	list, err := os.ReadFile("testdata/ids.txt")
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]bool{}
	for line := range strings.Lines(string(list)) {
		id, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		file, text, ok := strings.Cut(rest, " ")
		if id == "#" || !ok {
			continue
		}
		content, err := os.ReadFile(filepath.Join("../..", file))
		if err != nil || !strings.Contains(string(content), text) {
			t.Errorf("%s: %q is not in %s: %v", id, text, file, err)
		}
		held[id] = true
	}
	for id := range strings.FieldsSeq(attacks) {
		if !held[id] {
			t.Errorf("%s is held nowhere", id)
		}
	}
}
