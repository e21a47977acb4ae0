package api

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/act/waits"
)

// fake is an engine that keeps just enough to be asked about.
type fake struct {
	mu        sync.Mutex
	sessions  map[string]string // id → token
	gone      [][]string
	boxes     []BoxRecord
	requests  []act.Request
	outcomes  []act.Outcome
	answered  map[string]Choice
	events    []QuestionEvent
	entries   int
	questions []Question
	export    []byte
	decide    func(ctx context.Context, r act.Request) (act.Ticket, error)
	tokens    sync.Map
	own       [][]loan.Own
	lent      []string
	silent    bool // it does not say that decide may wait
}

func newFake() *fake {
	return &fake{sessions: map[string]string{}, answered: map[string]Choice{}}
}

func (f *fake) OpenSession(_ context.Context, _ Caller, r OpenRequest) (Opened, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r.Principal == "" {
		return Opened{}, Errorf(CodeBadRequest, "no principal")
	}
	id := fmt.Sprintf("s-%d", len(f.sessions)+1)
	f.sessions[id] = "token-" + id
	return Opened{Session: id, Token: f.sessions[id], Principal: r.Principal, PolicyHash: "p"}, nil
}

func (f *fake) ResumeSession(_ context.Context, _ Caller, id, token string) (Opened, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if want, ok := f.sessions[id]; !ok || token != want {
		return Opened{}, ErrNoSession
	}
	return Opened{Session: id, Token: token, PolicyHash: "p"}, nil
}

func (f *fake) CloseSession(_ context.Context, _ Caller, id string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.sessions, id)
	return nil
}

func (f *fake) RecordBox(_ context.Context, _ Caller, _ string, b BoxRecord) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.boxes = append(f.boxes, b)
	return nil
}

func (f *fake) RecordReview(context.Context, Caller, ReviewRecord) error { return nil }

func (f *fake) Gone(_ Caller, owned []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.gone = append(f.gone, owned)
}

func (f *fake) Decide(ctx context.Context, _ Caller, r act.Request) (act.Ticket, error) {
	if f.decide != nil {
		if !f.silent {
			waits.Tell(ctx)
		}
		return f.decide(ctx, r)
	}
	f.mu.Lock()
	f.requests = append(f.requests, r)
	f.mu.Unlock()
	return act.Ticket{ID: r.Session + "/1", Session: r.Session, Verb: r.Verb, Tool: r.Tool, Verdict: act.Allow, Bytes: r.Args}, nil
}

func (f *fake) Finish(_ context.Context, _ Caller, _, _ string, o act.Outcome) (act.Reply, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.outcomes = append(f.outcomes, o)
	return act.Reply{Body: bytes.ToUpper(o.Body), Labels: []act.Label{act.LabelUntrusted}, Redacted: 1, Note: o.Error}, nil
}

func (f *fake) Questions(context.Context, Caller) ([]Question, error) {
	if f.questions != nil {
		return f.questions, nil
	}
	return []Question{{ID: "q1"}, {ID: "q2"}}, nil
}

func (f *fake) Question(_ context.Context, _ Caller, id string) (Question, error) {
	if id != "q1" {
		return Question{}, fmt.Errorf("looking: %w", ErrNotFound)
	}
	return Question{ID: id, Mark: 7}, nil
}

func (f *fake) AnswerQuestion(_ context.Context, _ Caller, id string, c Choice) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.answered[id] = c
	return nil
}

func (f *fake) WatchQuestions(ctx context.Context, _ Caller, send func(QuestionEvent) error) error {
	for _, e := range f.events {
		if err := send(e); err != nil {
			return err
		}
	}
	<-ctx.Done()
	return ctx.Err()
}

func (f *fake) ToolsList(_ context.Context, _ Caller, q ToolQuery) ([]ToolPin, error) {
	return []ToolPin{{Server: q.Server, Status: "proposed"}}, nil
}

func (f *fake) ToolsReview(_ context.Context, _ Caller, q ToolQuery) ([]ToolPin, error) {
	return []ToolPin{{Server: q.Server, Diff: "+x"}}, nil
}

func (f *fake) Admit(_ context.Context, _ Caller, r AdmitRequest, tools []byte) error {
	if r.Server != "fs" || string(tools) != `{"tools":[]}` {
		return ErrRefused
	}
	return nil
}

func (f *fake) ToolsPin(_ context.Context, _ Caller, r PinRequest) (ToolPin, error) {
	return ToolPin{Server: r.Server, Tool: r.Tool, Hash: r.Hash, Status: "approved"}, nil
}

func (f *fake) LedgerEntries(_ context.Context, _ Caller, q LedgerQuery, send func(json.RawMessage) error) error {
	for i := range f.entries {
		if err := send(fmt.Appendf(nil, `{"n":%d}`, i)); err != nil {
			return err
		}
	}
	if q.Kind == "broken" {
		return Errorf(CodeUnavailable, "the disk is gone")
	}
	return nil
}

func (f *fake) LedgerExport(_ context.Context, _ Caller, _ string, w io.Writer) error {
	_, err := w.Write(f.export)
	return err
}

func (f *fake) LedgerVerify(context.Context, Caller) (Verification, error) {
	return Verification{Status: "valid", Entries: 3}, nil
}

func (f *fake) LedgerSessions(context.Context, Caller) ([]SessionInfo, error) {
	return []SessionInfo{{ID: "s-1"}}, nil
}

func (f *fake) Status(context.Context, Caller) (Status, error) { return Status{Sessions: 2}, nil }

func (f *fake) Stop(_ context.Context, _ Caller, force bool) error {
	if !force {
		return Errorf(CodeRefused, "a session is open")
	}
	return nil
}

func (f *fake) SetSecret(_ context.Context, _ Caller, s SecretInfo, value []byte) error {
	return f.SaveToken(context.Background(), Caller{}, s.Name, value)
}

func (f *fake) ListSecrets(context.Context, Caller) (SecretList, error) {
	return SecretList{Secrets: []SecretInfo{{Name: "k"}}, Protection: "nothing"}, nil
}

func (f *fake) RemoveSecret(context.Context, Caller, string) error { return ErrNotFound }

func (f *fake) Sentinels(_ context.Context, _ Caller, _ string, own []loan.Own, have map[string]string) (out []loan.Sentinel, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.own = append(f.own, own)
	for _, o := range own {
		text := "sentinel-of-" + o.Name
		if have[o.Name] != "" {
			text = "again " + have[o.Name]
		}
		out = append(out, loan.Sentinel{Name: o.Name, Text: text})
		f.lent = append(f.lent, text)
	}
	return out, nil
}

func (f *fake) LoadToken(_ context.Context, _ Caller, key string) ([]byte, error) {
	v, ok := f.tokens.Load(key)
	if !ok {
		return nil, ErrNotFound
	}
	return v.([]byte), nil
}

func (f *fake) SaveToken(_ context.Context, _ Caller, key string, value []byte) error {
	f.tokens.Store(key, value)
	return nil
}

func (f *fake) DeleteToken(_ context.Context, _ Caller, key string) error {
	f.tokens.Delete(key)
	return nil
}

func (f *fake) Mint(_ context.Context, _ Caller, _ string, m MintRequest) ([][]byte, error) {
	return [][]byte{[]byte(m.Host), m.Key}, nil
}

func (f *fake) Authority(context.Context, Caller) ([]byte, error) { return []byte("certificate"), nil }

func (f *fake) Grants(_ context.Context, _ Caller, session string) ([]Grant, error) {
	return []Grant{{Session: session, Host: "a.test:443"}}, nil
}

func (f *fake) AcceptClause(context.Context, Caller, AcceptedClause) error { return nil }

func (f *fake) RevokeGrant(_ context.Context, _ Caller, g Grant) error {
	if g.Host != "a.test:443" {
		return Errorf(CodeNotFound, "no grant for %s", g.Host)
	}
	return nil
}
