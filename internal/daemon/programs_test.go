package daemon

import (
	"context"
	"errors"
	"strings"
	"testing"

	"ringfence/internal/daemon/api"
)

// TestMC19Programs: the first program of a server is remembered, another one is not
// started until a person has approved it, and both are on record.
func TestMC19Programs(t *testing.T) {
	f := newFixture(t)
	e := f.bare(nil)
	open := func(lines ...string) string {
		t.Helper()
		r := f.request()
		r.Servers = []api.ServerInfo{{Name: "notes", Argv: []string{"notes"}, Program: lines}}
		o, err := e.OpenSession(context.Background(), api.Caller{Conn: 1}, r)
		if err != nil {
			t.Fatal(err)
		}
		if err := e.CloseSession(context.Background(), api.Caller{Conn: 1}, o.Session); err != nil {
			t.Fatal(err)
		}
		return o.Blocked["notes"]
	}
	if why := open("sha256:1 /a"); why != "" {
		t.Errorf("at first: %s", why)
	}
	if why := open("sha256:1 /a"); why != "" {
		t.Errorf("the same: %s", why)
	}
	if why := open(); !strings.Contains(why, "ringfence tools review notes") { // D5
		t.Errorf("nothing known any more: %q", why)
	}
	if why := open("sha256:2 /a"); !strings.Contains(why, "ringfence tools review notes") {
		t.Errorf("another: %q", why)
	}
	pin := e.pins.list(api.ToolQuery{Server: "notes"}, true)[0]
	if pin.Status != "drifted" || pin.Tool != "" || pin.Diff != "- sha256:1 /a\n+ sha256:2 /a\n" {
		t.Errorf("to review: %+v", pin)
	}
	if _, err := e.ToolsPin(context.Background(), api.Caller{Conn: 2}, api.PinRequest{Server: "notes", Hash: pin.Hash, Approve: true}); err != nil {
		t.Fatal(err)
	}
	for _, known := range []string{"sha256:1 /a", "sha256:2 /a"} {
		if why := open(known); why != "" {
			t.Errorf("after a review, %s: %s", known, why)
		}
	}
	for _, bad := range [][]string{{strings.Repeat("a", maxProgramLine+1)}, {"a\nb"}, make([]string, maxProgramFiles+1)} {
		r := f.request()
		r.Servers = []api.ServerInfo{{Name: "notes", Argv: []string{"notes"}, Program: bad}}
		if _, err := e.OpenSession(context.Background(), api.Caller{Conn: 1}, r); !errors.Is(err, &api.Error{Code: api.CodeBadRequest}) {
			t.Errorf("%.20q: %v", bad, err)
		}
	}
	e.dies(t)
}
