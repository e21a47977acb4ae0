package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/test/rig"
)

const (
	clients = 20
	hands   = 3  // calls that each has under way
	calls   = 40 // that each hand makes
	most    = 20 // pages an hour, for all of them together
)

// TestLoad has many clients decide at once. What each is told, and what the
// record says, is about its own calls, once and in order; a limit that they share
// allows exactly as many as it says.
func TestLoad(t *testing.T) {
	bin, err := rig.Build(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	h, err := rig.New(bin)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	}()
	all := open(t, h)
	var running sync.WaitGroup
	for _, c := range all {
		for n := range hands {
			running.Go(func() {
				if err := c.work(t.Context(), n); err != nil {
					t.Errorf("client %d: %v", c.number, err)
				}
			})
		}
	}
	running.Wait()
	pages := 0
	for _, c := range all {
		pages += c.pages
		if err := errors.Join(c.foreign(t.Context(), all[(c.number+1)%clients]), c.Close(t.Context())); err != nil {
			t.Errorf("client %d: %v", c.number, err)
		}
	}
	if pages != most {
		t.Errorf("%d pages were allowed, the limit is %d", pages, most)
	}
	if !t.Failed() {
		checkRecord(t, all)
	}
}

// A client is one session on a connection of its own.
type client struct {
	*api.Session
	conn   *api.Client
	home   *rig.Home
	number int

	mu      sync.Mutex
	tickets map[string]string // what was asked, by the ticket that answered it
	results map[string]bool   // tickets whose outcome was taken in
	pages   int
}

func open(t *testing.T, h *rig.Home) (all []*client) {
	t.Helper()
	policy, err := h.Policy(t.Context(),
		"may do anything in the workspace",
		fmt.Sprintf("may fetch pages from docs.example.org at most %d times an hour", most))
	if err != nil {
		t.Fatal(err)
	}
	server, err := h.Start(t.Context(), h.Command(t.Context(), "server", "filesystem", "--root", h.Work))
	if err != nil {
		t.Fatal(err)
	}
	tools, err := server.Tools(t.Context())
	if err = errors.Join(err, server.Close()); err != nil {
		t.Fatal(err)
	}
	for n := range clients {
		c := &client{home: h, number: n, tickets: map[string]string{}, results: map[string]bool{}}
		if c.conn, err = h.Connect(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.conn.Close() })
		c.Session, err = c.conn.OpenSession(t.Context(), api.OpenRequest{
			Principal: "default/load", Workspace: h.Work, PolicyDir: policy, Ask: api.AskNever,
			Servers: []api.ServerInfo{{Name: "filesystem", Argv: []string{h.Bin, "server", "filesystem"}, Annotations: "filesystem"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.finish(t.Context(), act.Request{Verb: act.VerbList, Tool: "filesystem", Args: tools}, "tools", tools); err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	return all
}

// path is a path that no other call names.
func (c *client) path(hand, n int) string {
	return filepath.Join(c.home.Work, fmt.Sprintf("c%d-%d-%d.txt", c.number, hand, n))
}

// work makes calls that observe, that mutate, that are denied, and that count.
func (c *client) work(ctx context.Context, hand int) error {
	for n := range calls {
		path := c.path(hand, n)
		r := act.Request{Verb: act.VerbCall, Tool: "filesystem.read_text_file", Args: fmt.Appendf(nil, `{"path":%q}`, path)}
		allowed := true
		switch n % 4 {
		case 1:
			r.Tool, r.Args = "filesystem.write_file", fmt.Appendf(nil, `{"path":%q,"content":"x"}`, path)
		case 2:
			path = filepath.Join(c.home.Person, filepath.Base(path))
			r.Args, allowed = fmt.Appendf(nil, `{"path":%q}`, path), false
		case 3:
			if err := c.fetch(ctx, hand, n); err != nil {
				return err
			}
			continue
		}
		t, err := c.decide(ctx, r, path)
		switch {
		case err != nil:
			return err
		case allowed != (t.Verdict == act.Allow):
			return fmt.Errorf("%s %s: %v, %s", r.Tool, path, t.Verdict, t.Reason)
		case !allowed:
			continue
		}
		if err := c.take(ctx, t, fmt.Appendf(nil, `{"content":[{"type":"text","text":%q}]}`, path)); err != nil {
			return err
		}
	}
	return nil
}

// fetch asks for a page, which is allowed a few times for all clients together.
func (c *client) fetch(ctx context.Context, hand, n int) error {
	url := fmt.Sprintf("https://docs.example.org/c%d/%d/%d", c.number, hand, n)
	t, err := c.decide(ctx, act.Request{
		Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Fetch, Resource: act.Resource{Type: act.URL, Text: url}}},
	}, url)
	if err != nil || t.Verdict != act.Allow {
		return err
	}
	c.mu.Lock()
	c.pages++
	c.mu.Unlock()
	return c.take(ctx, t, []byte(url))
}

// decide decides r, and checks that the ticket is about r.
func (c *client) decide(ctx context.Context, r act.Request, about string) (act.Ticket, error) {
	t, err := c.Decide(ctx, r)
	if err != nil {
		return t, err
	}
	mine := t.Session == c.Opened().Session && strings.HasPrefix(t.ID, t.Session+"/") && t.Tool == r.Tool
	for _, e := range t.Effects {
		mine = mine && (e.Resource.Text == about || r.Verb == act.VerbList)
	}
	if !mine || t.Verdict == act.Allow && len(t.Effects) == 0 {
		return t, fmt.Errorf("asked about %s, the ticket is %+v", about, t)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if other, ok := c.tickets[t.ID]; ok {
		return t, fmt.Errorf("the ticket %s is given out twice, for %s and %s", t.ID, other, about)
	}
	c.tickets[t.ID] = about
	return t, nil
}

// take hands in an outcome, and checks that the reply is the same.
func (c *client) take(ctx context.Context, t act.Ticket, body []byte) error {
	reply, err := c.Finish(ctx, t, act.Outcome{Body: body})
	if err == nil && t.Verb != act.VerbList && string(reply.Body) != string(body) {
		err = fmt.Errorf("handed in %s, the reply is %s", body, reply.Body)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.results[t.ID] = true
	return err
}

func (c *client) finish(ctx context.Context, r act.Request, about string, body []byte) error {
	t, err := c.decide(ctx, r, about)
	if err == nil && t.Verdict != act.Allow {
		err = fmt.Errorf("%s is denied: %s", about, t.Reason)
	}
	if err != nil {
		return err
	}
	return c.take(ctx, t, body)
}

// foreign tries to hand in the outcome of another client's call.
func (c *client) foreign(ctx context.Context, other *client) error {
	path := other.path(hands, c.number)
	r := act.Request{Verb: act.VerbCall, Tool: "filesystem.read_text_file", Args: fmt.Appendf(nil, `{"path":%q}`, path)}
	t, err := other.decide(ctx, r, path)
	if errors.Is(err, api.ErrNoSession) {
		return nil // it has ended by now
	}
	if err != nil {
		return err
	}
	if _, err := c.Finish(ctx, t, act.Outcome{Body: []byte("forged")}); err == nil {
		return fmt.Errorf("it may finish %s, which is not its own", t.ID)
	}
	return other.take(ctx, t, []byte(`{"content":[]}`))
}

// checkRecord reads the whole record: every chain without a gap, every ticket
// once, with the call that it answered, and its outcome if there was one.
func checkRecord(t *testing.T, all []*client) {
	t.Helper()
	h := all[0].home
	e, err := h.Connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	bySession := map[string]*client{}
	for _, c := range all {
		bySession[c.Opened().Session] = c
	}
	next, asked := map[string]int64{}, map[string]string{}
	counted, entries := 0, uint64(0)
	err = e.LedgerEntries(t.Context(), api.LedgerQuery{}, func(raw json.RawMessage) error {
		var en struct {
			Session string `json:"session"`
			Seq     int64  `json:"seq"`
			Type    string `json:"type"`
			Body    struct {
				Arguments string       `json:"arguments"`
				Effects   []act.Effect `json:"effects"`
				Ticket    string       `json:"ticket"`
				Counted   []string     `json:"counted"`
			} `json:"body"`
		}
		if err := json.Unmarshal(raw, &en); err != nil {
			return err
		}
		entries++
		if en.Seq != next[en.Session] {
			t.Errorf("%s goes on with %d, want %d", en.Session, en.Seq, next[en.Session])
		}
		next[en.Session] = en.Seq + 1
		c := bySession[en.Session]
		if c == nil {
			return nil
		}
		switch en.Type {
		case gate.EntryRequest:
			asked[en.Session] = en.Body.Arguments
			for _, e := range en.Body.Effects {
				asked[en.Session] += e.Resource.Text
			}
		case gate.EntryDecision:
			counted += len(en.Body.Counted)
			id := fmt.Sprintf("%s/%d", en.Session, en.Seq)
			about, ok := c.tickets[id]
			if !ok || !strings.Contains(asked[en.Session], about) {
				t.Errorf("%s decides %s, the client was told it decides %q", id, asked[en.Session], about)
			}
			delete(c.tickets, id)
		case gate.EntryResult:
			if !c.results[en.Body.Ticket] {
				t.Errorf("%s/%d is a result of %s, which has another or none", en.Session, en.Seq, en.Body.Ticket)
			}
			delete(c.results, en.Body.Ticket)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		for id, about := range c.tickets {
			t.Errorf("%s, about %s, is not on record", id, about)
		}
		for id := range c.results {
			t.Errorf("the outcome of %s is not on record", id)
		}
	}
	if counted != most {
		t.Errorf("%d pages are on record as counted, the limit is %d", counted, most)
	}
	v, err := e.LedgerVerify(t.Context())
	if err != nil || v.Status != "valid" || v.Entries < entries {
		t.Errorf("the ledger is %+v, %v", v, err)
	}
}
