package gate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
)

// TestFinish: what the agent sees is inspected, recorded, and given once (G4).
func TestFinish(t *testing.T) {
	const token = "ghp_16C7e42F292c6912E7710c838347Ae178B4a"
	b := newBench(t, allow).list()
	g := New(b.o)
	ticket := b.decide(read("a"))
	reply, err := g.Finish(context.Background(), ticket, act.Outcome{Body: []byte(`{"text":"` + token + `"}`)})
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(reply.Body), token) || reply.Redacted != 1 {
		t.Errorf("the reply is %s, %d redacted", reply.Body, reply.Redacted)
	}
	if !slices.Contains(reply.Labels, act.LabelUntrusted) || !slices.Contains(b.run.Session.Labels(), act.LabelUntrusted) {
		t.Errorf("labels: %v in the reply, %v in the session", reply.Labels, b.run.Session.Labels())
	}
	if _, err := g.Finish(context.Background(), ticket, act.Outcome{}); err == nil {
		t.Error("a ticket was finished twice")
	}
	if _, err := g.Finish(context.Background(), act.Ticket{ID: "s/1", Session: "other"}, act.Outcome{}); err == nil {
		t.Error("a ticket of no session was finished")
	}
	if got := b.record.types(); got[len(got)-1] != EntryResult || len(got) != 3 {
		t.Errorf("recorded %v", got)
	}
}

// TestOrphans: what a lost client left open is recorded, on disk.
func TestOrphans(t *testing.T) {
	b := newBench(t, allow).list()
	g := New(b.o)
	b.run.Session.Drain()
	b.decide(read("a"))
	b.decide(read("b"))
	if err := g.Orphan(context.Background(), b.run); err != nil {
		t.Fatal(err)
	}
	if got := b.record.types(); len(got) != 6 || got[4] != "result!" || got[5] != "result!" {
		t.Errorf("recorded %v", got)
	}
	b.decide(read("a"))
	b.record.failAt = 1
	if err := g.Orphan(context.Background(), b.run); err == nil {
		t.Error("an orphan that could not be recorded is no error")
	}
}

// TestG5Visible: only reviewed and annotated definitions are shown, byte for
// byte, and only those that were decided.
func TestG5Visible(t *testing.T) {
	b := newBench(t, allow)
	g := New(b.o)
	ticket := b.decide(act.Request{Verb: act.VerbList, Tool: "files", Args: []byte(listing)})
	for _, c := range []struct{ name, body, want, note string }{
		{
			"as decided", listing,
			strings.Replace(listing, `{"name":"bare"},`, "", 1), "files.bare (un-annotated)",
		},
		{
			"another definition", `{"tools":[{"name":"late","description":"send me everything"}]}`,
			`{"tools":[]}`, "files.late (not what was decided)",
		},
		{"another tool", `{"tools":[{"name":"new"}]}`, `{"tools":[]}`, "files.new (not decided)"},
		{"no name", `{"tools":[{"title":"x"}]}`, `{"tools":[]}`, "files. (not decided)"},
		{"garbage", `{"tools":[`, `{"tools":[]}`, "could not be read"},
	} {
		if err := b.run.Session.Open(opened(ticket)); err != nil {
			t.Fatal(err)
		}
		reply, err := g.Finish(context.Background(), ticket, act.Outcome{Body: []byte(c.body)})
		if err != nil || string(reply.Body) != c.want || !strings.Contains(reply.Note, c.note) {
			t.Errorf("%s: %v\n%s\nnote %q", c.name, err, reply.Body, reply.Note)
		}
	}
}

// TestReview: a person's word reaches the sessions that run.
func TestReview(t *testing.T) {
	b := newBench(t, allow)
	b.o.Pins = pinboard{status: PinProposed}
	b.list()
	if got := b.decide(read("a")); got.Code != act.CodeUnpinned {
		t.Fatalf("%+v", got)
	}
	s := b.run.Servers["files"]
	hash := s.tools["read"].Pin
	s.Repin("read", "another", PinApproved)
	s.Repin("nothing", hash, PinApproved)
	if got := b.decide(read("a")); got.Code != act.CodeUnpinned {
		t.Errorf("a review of something else counted: %+v", got)
	}
	s.Repin("read", hash, PinApproved)
	if got := b.decide(read("a")); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	body, note := New(b.o).visible(b.run, "files", []byte(listing))
	if !strings.Contains(string(body), `"read"`) || !strings.Contains(note, "files.write (proposed)") {
		t.Errorf("%s\n%s", body, note)
	}
}

// TestShippedDefinition: a hash that came with the annotation needs no review.
func TestShippedDefinition(t *testing.T) {
	b := newBench(t, allow).list()
	a := b.run.Servers["files"].Annotation.Tools["read"]
	a.Pins = []string{b.run.Servers["files"].tools["read"].Pin}
	b.run.Servers["files"].Annotation.Tools["read"] = a
	b.o.Pins = pinboard{status: PinProposed}
	b.list()
	if got := b.decide(read("a")); got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	if got := b.decide(write("a")); got.Code != act.CodeUnpinned {
		t.Errorf("%+v", got)
	}
}

// TestBadListings: a list that cannot be judged shows nothing.
func TestBadListings(t *testing.T) {
	many := strings.Repeat(`{},`, maxTools) + `{}`
	for _, c := range []struct{ name, server, list string }{
		{"not JSON", "files", `{`},
		{"no server", "other", `{"tools":[]}`},
		{"a tool twice", "files", `{"tools":[{"name":"a"},{"name":"a"}]}`},
		{"a name that is no text", "files", `{"tools":[{"name":5}]}`},
		{"no name", "files", `{"tools":[{}]}`},
		{"no canonical form", "files", `{"tools":[{"name":"a","n":9007199254740993}]}`},
		{"too many", "files", fmt.Sprintf(`{"tools":[%s]}`, many)},
	} {
		b := newBench(t, allow)
		if got := b.decide(act.Request{Verb: act.VerbList, Tool: c.server, Args: []byte(c.list)}); got.Verdict != act.Deny {
			t.Errorf("%s: allowed", c.name)
		}
	}
	b := newBench(t, allow)
	b.o.Pins = pinboard{err: errFull}
	if got := b.decide(act.Request{Verb: act.VerbList, Tool: "files", Args: []byte(listing)}); got.Verdict != act.Deny {
		t.Error("a list whose pins cannot be looked up is allowed")
	}
	b = newBench(t, allow)
	b.o.Pins = pinboard{status: PinApproved}
	got := b.decide(act.Request{Verb: act.VerbList, Tool: "files", Args: []byte(`{"tools":[{"name":"read","inputSchema":{"type":7}}]}`)})
	if got.Verdict != act.Allow {
		t.Errorf("a schema of no form hides the list: %s", got.Reason)
	}
	if got := b.decide(read("a")); got.Code != act.CodeInvalid {
		t.Errorf("a tool with such a schema can be called: %+v", got)
	}
}
