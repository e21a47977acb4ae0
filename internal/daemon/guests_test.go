package daemon

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/config"
	"ringfence/internal/constitution"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/keychain"
)

// owners compiles a constitution that wants two owners, into a directory of the home.
func (f *fixture) owners() string {
	f.t.Helper()
	c, err := constitution.Compile(constitution.Source{Name: "owners", Text: []byte("Two owners must approve deleting files.\n")}, constitution.Options{Granting: true})
	if err != nil {
		f.t.Fatal(err)
	}
	key, err := keychain.LoadOrCreate(PolicyKey(f.home))
	if err != nil {
		f.t.Fatal(err)
	}
	dir := filepath.Join(f.home, "owners")
	if err := constitution.Write(dir, c, "test", key); err != nil {
		f.t.Fatal(err)
	}
	return dir
}

func (f *fixture) deletes(c *api.Client, dir string) <-chan act.Ticket {
	f.t.Helper()
	r := f.request()
	r.PolicyDir, r.Ask = dir, api.AskDesk
	s, err := c.OpenSession(context.Background(), r)
	if err != nil {
		f.t.Fatal(err)
	}
	done := make(chan act.Ticket, 1)
	go func() {
		t, err := s.Decide(context.Background(), act.Request{
			Verb: act.VerbEffect, Direct: []act.Effect{{Kind: act.Delete, Resource: act.Resource{Text: "a"}}},
		})
		if err != nil {
			f.t.Error(err)
		}
		done <- t
	}()
	return done
}

// TestQuorumThatCannotBe: what two people must approve is denied at once where one can
// answer, and the denial says what would help.
func TestQuorumThatCannotBe(t *testing.T) {
	f := newFixture(t)
	dir := f.owners()
	f.start(Options{})
	got := <-f.deletes(f.client(), dir)
	if got.Code != act.CodeNoAnswer || !strings.Contains(got.Reason, "needs 2 different people") || !strings.Contains(got.Reason, `"approvals": {"socket"`) {
		t.Errorf("%s: %s", got.Code, got.Reason)
	}
}

// TestTwoOwners: another user of the machine is the second owner, and sees nothing that
// is not for him.
func TestTwoOwners(t *testing.T) {
	f := newFixture(t)
	dir := f.owners()
	conf, err := json.Marshal(map[string]any{
		"approvers": map[string][]string{"owner": {strconv.Itoa(os.Geteuid()), "64999", "nobody-of-that-name"}},
		"approvals": map[string]string{"socket": filepath.Join(filepath.Dir(f.home), "approvals.sock")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(f.home+"/config.json", conf, 0o600); err != nil {
		t.Fatal(err)
	}
	e := f.bare(nil)
	defer e.dies(t)
	ctx := context.Background()
	events, err := e.desk.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	agent, _ := process(t)
	mine, _ := process(t)
	guest := api.Caller{Conn: 7, Guest: true, Peer: ipc.Peer{PID: 1 << 22, UID: 64999, HasUID: true, SID: 1 << 22, TTY: "/dev/pts/7", Known: true}}
	ask := func(dir string, k act.Kind) (string, <-chan act.Ticket) {
		r := f.request()
		r.PolicyDir, r.Ask = dir, api.AskDesk
		o, err := e.OpenSession(ctx, agent, r)
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan act.Ticket, 1)
		go func() {
			ticket, err := e.Decide(ctx, agent, act.Request{Session: o.Session, Verb: act.VerbEffect, Direct: []act.Effect{{Kind: k, Resource: act.Resource{Text: "a"}}}})
			if err != nil {
				t.Error(err)
			}
			done <- ticket
		}()
		return (<-events).Question.ID, done
	}
	id, done := ask(dir, act.Delete)
	hidden, other := ask("", act.Create)
	if qs, err := e.Questions(ctx, guest); err != nil || len(qs) != 1 || qs[0].ID != id {
		t.Errorf("a guest sees %+v, %v", qs, err)
	}
	if _, err := e.Question(ctx, guest, hidden); err == nil || e.AnswerQuestion(ctx, guest, hidden, api.Choice{}) == nil {
		t.Errorf("a guest is shown, or answers, what is not for guests: %v", err)
	}
	for range 2 { // one counts once
		_ = e.AnswerQuestion(ctx, guest, id, api.Choice{Yes: true})
	}
	if q, err := e.Question(ctx, guest, id); err != nil || q.Clauses[0].Have != 1 {
		t.Fatalf("%+v, %v", q.Clauses, err)
	}
	if err := e.AnswerQuestion(ctx, mine, id, api.Choice{Yes: true}); err != nil {
		t.Fatal(err)
	}
	if got := <-done; got.Verdict != act.Allow {
		t.Errorf("%+v", got)
	}
	e.desk.Close()
	<-other // the record is closed behind it
}

// TestGuestsNowhere: a directory that is not there for the socket of approvers is named, and
// how it is made.
func TestGuestsNowhere(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	_, err := admitGuests(config.Config{GuestSocket: dir + "/approvals.sock"}, make([]desk.Person, 2))
	if err == nil || !strings.Contains(err.Error(), "mkdir -m 755 "+dir+")") {
		t.Error(err)
	}
}
