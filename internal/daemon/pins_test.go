package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
)

// TestPins: from proposed to approved, drifted, rejected, over a restart.
func TestPins(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins.json")
	open := func() *pins {
		p, err := openPins(path)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	see := func(p *pins, hash string, trusted bool, want gate.PinStatus) {
		t.Helper()
		got, err := p.See("s", "tool", hash, []byte(`{"name":"tool","description":"`+hash+`"}`), trusted)
		if err != nil || got != want {
			t.Errorf("seeing %s: %s %v, want %s", hash, got, err, want)
		}
	}
	p := open()
	see(p, "shipped", true, gate.PinApproved)
	see(p, "one", false, gate.PinProposed)
	if err := p.review("s.tool", "two", true); err == nil {
		t.Error("a definition that nobody was shown was approved")
	}
	if err := p.review("s.tool", "one", true); err != nil {
		t.Fatal(err)
	}
	see(open(), "one", false, gate.PinApproved)
	see(p, "two", false, gate.PinDrifted)
	diff := p.list(api.ToolQuery{Server: "s"}, true)[0]
	if diff.Status != "drifted" || !strings.Contains(diff.Diff, `-   "description": "one"`) || !strings.Contains(diff.Diff, `+   "description": "two"`) {
		t.Errorf("the difference is\n%s", diff.Diff)
	}
	if err := p.review("s.tool", "two", false); err != nil {
		t.Fatal(err)
	}
	see(open(), "two", false, gate.PinRejected)
	see(p, "one", false, gate.PinApproved)
	if got := p.list(api.ToolQuery{Tool: "other"}, false); len(got) != 0 {
		t.Errorf("listed %+v", got)
	}
	if err := os.WriteFile(path, []byte(`{"format":"ringfence-pins/v1","tools":{},"tools":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openPins(path); err == nil {
		t.Error("a file with two lists of tools was read")
	}
}

// TestDifference: what a person sees of a definition cannot hide.
func TestDifference(t *testing.T) {
	got := difference(`{"description":"safe"}`, "{\"description\":\"safe\u202e\x1b[2J\"}")
	if strings.ContainsAny(got, "\u202e\x1b") || !strings.Contains(got, "- ") {
		t.Errorf("%q", got)
	}
	if long := difference("", `{"a":"`+strings.Repeat("x", 10000)+`"}`); len(long) > 2000 {
		t.Errorf("a line of %d bytes", len(long))
	}
}
