package daemon

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
)

// TestBoxes: the box of a ticket is on record before its program starts, and a
// record that fits nothing is refused.
func TestBoxes(t *testing.T) {
	f := newFixture(t).start(Options{})
	c := f.client()
	s := f.open(c)
	ticket := look(t, s).ID
	report := json.RawMessage(`{"tier":"native"}`)
	if err := s.RecordBox(context.Background(), "", ticket, "box: native", report); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string]api.BoxRecord{
		"of nothing":           {Box: "box: native", Report: report},
		"of both":              {Ticket: ticket, Server: "fs", Box: "box: native", Report: report},
		"of another session":   {Ticket: "other/1", Box: "box: native", Report: report},
		"of an unknown server": {Server: "nosuch", Box: "box: native", Report: report},
		"without a line":       {Ticket: ticket, Report: report},
		"without a report":     {Ticket: ticket, Box: "box: native"},
		"of any length":        {Ticket: ticket, Box: strings.Repeat("x", maxBoxLine+1), Report: report},
	} {
		if err := s.RecordBox(context.Background(), bad.Server, bad.Ticket, bad.Box, bad.Report); err == nil {
			t.Errorf("a box %s was recorded", what)
		}
	}
	if got := f.entries(c, s.Opened().Session); !slices.Equal(got, []string{"session-start", "request", "decision", "box"}) {
		t.Errorf("on record: %q", got)
	}
}
