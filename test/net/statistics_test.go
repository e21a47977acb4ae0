//go:build linux

package net_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
)

// TestStatisticsOfAgents: what an agent asked is counted, and nothing that was said is kept.
func TestStatisticsOfAgents(t *testing.T) {
	a := agents[0]
	p, m, at := agentPlace(t, a, "echo looked")
	close(m.seen)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if out, err := p.boxed(ctx, a, at).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if out, err := p.Run(ctx, "engine", "stop"); err != nil { // what waits to be written is
		t.Fatalf("%v\n%s", err, out)
	}
	show := func() (rows []struct {
		Name                                         string
		Requests, Cut, Failed, Denied, Input, Output int
		MedianMS                                     int `json:"median_ms"`
	},
	) {
		out, err := p.Run(ctx, "statistics", "show", "--json")
		if err == nil {
			err = json.Unmarshal(out, &rows)
		}
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		return rows
	}
	asked, _, _ := m.heard()
	rows := show()
	if len(rows) != 1 || rows[0].Requests < 2 || rows[0].Cut+rows[0].Failed+rows[0].Denied > 0 || rows[0].Input != 100*rows[0].Requests || rows[0].Output == 0 {
		t.Errorf("asked %q, counted %+v", asked, rows)
	}
	kept, err := os.ReadFile(filepath.Join(p.Own, "statistics.db"))
	if err != nil || !bytes.Contains(kept, []byte(rows[0].Name)) || bytes.Contains(kept, []byte("looked")) || bytes.Contains(kept, []byte(p.Work)) {
		t.Errorf("%v: %q", err, kept)
	}
	if out, err := p.Run(ctx, "statistics", "delete"); err != nil || len(show()) > 0 {
		t.Errorf("%v\n%s", err, out)
	}
}
