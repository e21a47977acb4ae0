package demo

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
)

// An entry is what the account needs of an entry of the record.
type entry struct {
	Type string `json:"type"`
	Body struct {
		Verb     act.Verb     `json:"verb"`
		Tool     string       `json:"tool"`
		Effects  []act.Effect `json:"effects"`
		Args     string       `json:"arguments"`
		Verdict  string       `json:"verdict"`
		Reason   string       `json:"reason"`
		Approved any          `json:"approved"`
		Clauses  []struct {
			Text string `json:"text"`
		} `json:"clauses"`
	} `json:"body"`
}

// steps reads the calls of a session from the record.
func steps(ctx context.Context, client *api.Client, session string) ([]Step, error) {
	var all []Step
	var now Step
	listing := false
	err := client.LedgerEntries(ctx, api.LedgerQuery{Session: session}, func(raw json.RawMessage) error {
		var e entry
		if err := json.Unmarshal(raw, &e); err != nil {
			return fmt.Errorf("reading the record: %w", err)
		}
		switch e.Type {
		case "request":
			listing = e.Body.Verb == act.VerbList
			now = Step{Tool: e.Body.Tool, Path: pathIn(e.Body.Args)}
			for _, f := range e.Body.Effects {
				now.Effects = append(now.Effects, f.String())
			}
		case "question":
			for _, c := range e.Body.Clauses {
				now.Asked = append(now.Asked, c.Text)
			}
		case "answer":
			now.Answered = "no"
			if e.Body.Approved == true {
				now.Answered = "yes"
			}
		case "decision":
			now.Verdict, now.Reason = e.Body.Verdict, e.Body.Reason
			if !listing {
				all = append(all, now)
			}
		}
		return nil
	})
	return all, err
}

// pathIn is the argument path of a call, "" if it has none.
func pathIn(args string) string {
	var a struct {
		Path string `json:"path"`
	}
	_ = json.Unmarshal([]byte(args), &a) // a call without arguments that can be read has none
	return a.Path
}

// account prints the steps for people, without the folder of the story.
func (s *stage) account(all []Step) {
	short := strings.NewReplacer(s.workspace+"/", "", s.workspace, ".", s.person, "~")
	for i, st := range all {
		done, how := short.Replace(strings.Join(st.Effects, ", ")), st.Tool
		// What a link is called, or a folder above it, is not what it leads to.
		if path := short.Replace(st.Path); path != "" && !strings.Contains(done, path) {
			how += ", as " + path
		}
		s.say("%2d  %-8s %s  (%s)\n", i+1, word(st), done, how)
		for _, a := range st.Asked {
			s.say("             asked: “%s” – the person said %s\n", short.Replace(a), st.Answered)
		}
		if st.Verdict != "allow" && len(st.Asked) == 0 {
			s.say("             because: %s\n", short.Replace(strings.TrimSuffix(st.Reason, " "+policy.ForAgents)))
		}
	}
}

func word(st Step) string {
	if st.Verdict == "allow" {
		return "allowed"
	}
	return "refused"
}

// check looks whether the work that the scripted person lets be done was done, and
// nothing else.
func (s *stage) check() error {
	greeting, err := os.ReadFile(s.path("greet.txt"))
	if err != nil {
		return fmt.Errorf("looking at what was done: %w", err)
	}
	_, gone := os.Lstat(s.path("old-greeting.txt"))
	_, shell := os.Lstat(filepath.Join(s.person, ".bashrc"))
	_, commit := os.Lstat(s.path(".git", "refs", "heads", "main"))
	if string(greeting) != "Hello, world!\n" || !errors.Is(gone, fs.ErrNotExist) || !errors.Is(shell, fs.ErrNotExist) || commit != nil {
		return errors.New("what was done is not what was allowed")
	}
	return nil
}

// verify verifies the record, then a copy of the session with one bit changed.
func (s *stage) verify(ctx context.Context, client *api.Client, r *Report) error {
	v, err := client.LedgerVerify(ctx)
	if err != nil {
		return err
	}
	r.Verified = v.Status
	var export bytes.Buffer
	if err := client.LedgerExport(ctx, r.Session, &export); err != nil {
		return err
	}
	key, err := keyOf(s.home)
	if err != nil {
		return err
	}
	trusted := []ed25519.PublicKey{key}
	whole, err := ledger.VerifyExport(bytes.NewReader(export.Bytes()), trusted)
	if err != nil {
		return err
	}
	s.say("\nThe record: %d entries, %s. The session, exported and verified without the engine: %s.\n", v.Entries, v.Status, whole.Status)
	bad := bytes.Clone(export.Bytes())
	at := bytes.Index(bad, []byte("greet.txt"))
	if at < 0 {
		return errors.New("the export does not mention what the agent changed")
	}
	bad[at] ^= 1
	changed, err := ledger.VerifyExport(bytes.NewReader(bad), trusted)
	if err != nil {
		return err
	}
	r.Tampered, r.Where = changed.Status.String(), changed.Reason
	s.say("A copy with one bit changed, at byte %d: %s – %s.\n", at, changed.Status, changed.Reason)
	if r.Verified != "valid" || whole.Status != ledger.Valid || changed.Status != ledger.Invalid {
		return errors.New("the record did not verify as it must")
	}
	return nil
}
