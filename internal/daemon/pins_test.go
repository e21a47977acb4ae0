package daemon

import (
	"fmt"
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
		got, err := p.See("s", []gate.Definition{{Tool: "tool", Hash: hash, Raw: []byte(`{"name":"tool","description":"` + hash + `"}`), Trusted: trusted}})
		if err != nil || got[0] != want {
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
	long := difference("", `{"a":"`+strings.Repeat("x", 5000)+"then read ~/.ssh"+strings.Repeat("é", 5000)+`"}`)
	if got := strings.ReplaceAll(long, "\n+…", ""); !strings.Contains(got, "then read ~/.ssh") || strings.Count(got, "é") != 5000 {
		t.Errorf("part of a long line cannot be read:\n%s", long)
	}
	for line := range strings.Lines(long) {
		if len(line) > 2*diffWidth {
			t.Errorf("a line of %d bytes", len(line))
		}
	}
	many := `[` + strings.Repeat("1,", 3*maxDiffLines) + `1]`
	if got := difference(many[:len(many)-1]+`,2]`, many[:len(many)-1]+`,3]`); !strings.Contains(got, "-   2") || !strings.Contains(got, "+   3") {
		t.Error("the end of a long definition is not shown")
	}
}

// proposals are n definitions of size bytes that were not seen before.
func proposals(round, n, size int) []gate.Definition {
	out := make([]gate.Definition, n)
	for i := range out {
		name := fmt.Sprintf("t%d-%d", round, i)
		out[i] = gate.Definition{Tool: name, Hash: "h" + name, Raw: []byte(`"` + strings.Repeat("x", size) + `"`)}
	}
	return out
}

// TestPinsDoNotGrow: a server that lists other tools each time fills neither the
// file nor the memory, and cannot push out what a person settled.
func TestPinsDoNotGrow(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pins.json")
	p, err := openPins(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.See("good", proposals(0, 2, 100)); err != nil {
		t.Fatal(err)
	}
	if err := p.review("good.t0-0", "ht0-0", true); err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		if _, err := p.See("bad", proposals(round, 1000, 3000)); err != nil {
			t.Fatal(err)
		}
		if err := p.waiting("bad.t"+fmt.Sprint(round)+"-999", fmt.Sprintf("ht%d-999", round), true); err != nil {
			t.Errorf("what was just listed: %v", err)
		}
	}
	if fi, err := os.Stat(path); err != nil || fi.Size() > 2*maxUnreviewed {
		t.Errorf("the file has %d bytes, %v", fi.Size(), err)
	}
	if err := p.waiting("good.t0-1", "ht0-1", true); err != nil {
		t.Errorf("the definition of another server: %v", err)
	}
	if _, err := p.See("bad", proposals(9, 1000, 5000)); err == nil {
		t.Error("a list of more than is kept was noted")
	}
	p, err = openPins(path)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.See("good", proposals(0, 1, 100)); err != nil || got[0] != gate.PinApproved {
		t.Errorf("what a person approved is %v, %v", got, err)
	}
	if err := os.WriteFile(path, []byte(`{"format":"ringfence-pins/v1","tools":{"a.b":{}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if p, err = openPins(path); err != nil || len(p.list(api.ToolQuery{}, true)) != 0 {
		t.Errorf("an empty record: %v", err)
	}
}

// TestPinsOfADefinitionTooLargeToRead: nobody can approve what nobody can see
// whole.
func TestPinsOfADefinitionTooLargeToRead(t *testing.T) {
	p, err := openPins(filepath.Join(t.TempDir(), "pins.json"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.See("s", proposals(0, 1, maxDefinition)); err != nil {
		t.Fatal(err)
	}
	if err := p.waiting("s.t0-0", "ht0-0", true); err == nil {
		t.Error("it can be approved")
	}
	if err := p.review("s.t0-0", "ht0-0", true); err == nil {
		t.Error("it was approved")
	}
	if got := p.list(api.ToolQuery{}, true)[0].Diff; !strings.Contains(got, "cannot be reviewed") {
		t.Errorf("a person is shown %q", got)
	}
	if err := p.review("s.t0-0", "ht0-0", false); err != nil {
		t.Error(err)
	}
}
