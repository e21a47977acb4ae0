// Package demo is the whole story on this machine: a scripted model that obeys
// a poisoned file, real servers, the real gate, a real record, and a copy of
// that record with one bit changed.
//
// It is not a simulation: nothing in it is decided or recorded by other code
// than in use. Only the model is scripted, and the person is when nobody is at
// the terminal. It needs no network and no key, and works in a folder of its
// own that it removes.
//
// Invariants:
//
//	D1  It touches nothing of the person's but its own temporary folder.
//	D2  Every line it prints about what was allowed, asked or refused is read
//	    from the record, not from the script.
package demo

import (
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"ringfence/internal/agent"
	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/llm/llmtest"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
)

// Options say how the story is told.
type Options struct {
	Program string       // our own program, absolute: it runs the built-in servers
	Tier    sandbox.Tier // makes the boxes that servers run in
	Version string       // told to the record
	Path    []string     // where git is looked for
	Env     []string     // what servers get
	// Person answers questions; nil is the scripted person.
	Person func(ctx context.Context, q api.Question) (yes bool, err error)
	Out    io.Writer
}

// A Report is what came of it.
type Report struct {
	Session  string        `json:"session"`
	Steps    []Step        `json:"steps"`
	Verified string        `json:"verified"` // of the record as it is: "valid"
	Tampered string        `json:"tampered"` // of the copy with one bit changed: "invalid"
	Where    string        `json:"where"`    // what the verifier says about the copy
	Took     time.Duration `json:"took_ns"`
}

// A Step is one call of the agent as the record has it.
type Step struct {
	Tool     string   `json:"tool"`
	Path     string   `json:"path,omitempty"` // as the model wrote it
	Effects  []string `json:"effects"`
	Verdict  string   `json:"verdict"`
	Asked    []string `json:"asked,omitempty"` // the clauses a person was asked about
	Answered string   `json:"answered,omitempty"`
	Reason   string   `json:"reason,omitempty"`
}

// Run tells the story and returns what came of it. It fails if the story did
// not end as it must: the record valid, the changed copy not.
func Run(ctx context.Context, o Options) (_ Report, err error) {
	began := time.Now()
	s, err := setUp(o)
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, s.unsaid, os.RemoveAll(s.root)) }()
	s.say("%s\n", s.intro())

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	engine := make(chan error, 1)
	ready := make(chan struct{})
	go func() {
		engine <- daemon.Run(ctx, daemon.Options{
			Home: s.home, UserHome: s.person, Program: o.Version, Ready: func() { close(ready) },
		})
	}()
	select {
	case <-ready:
	case err := <-engine:
		return Report{}, fmt.Errorf("starting the engine: %w", err)
	}
	r, err := s.tell(ctx)
	stop()
	if engineErr := <-engine; engineErr != nil {
		err = errors.Join(err, fmt.Errorf("ending the engine: %w", engineErr))
	}
	r.Took = time.Since(began)
	return r, err
}

// tell runs the agent in a session of its own and reads the record.
func (s *stage) tell(ctx context.Context) (_ Report, err error) {
	client, err := api.Connect(ctx, api.Options{Home: s.home})
	if err != nil {
		return Report{}, err
	}
	defer func() { err = errors.Join(err, client.Close()) }()
	id, err := s.work(ctx, client)
	if err != nil {
		return Report{}, err
	}
	r := Report{Session: id}
	if r.Steps, err = steps(ctx, client, id); err != nil {
		return Report{}, err
	}
	s.account(r.Steps)
	if s.o.Person == nil {
		if err := s.check(); err != nil {
			return r, err
		}
	}
	return r, s.verify(ctx, client, &r)
}

// work is the session of the agent.
func (s *stage) work(ctx context.Context, client *api.Client) (string, error) {
	boxes := mediator.Boxes{
		Tier: s.o.Tier, Workspace: s.workspace, Home: s.person, Program: s.o.Program, Path: s.o.Path, Env: s.o.Env,
	}
	servers := []mediator.Server{
		{Name: "filesystem", Ringfence: mediator.Settings{Builtin: "filesystem", Paths: []string{s.person}}},
		{Name: "git", Ringfence: mediator.Settings{Builtin: "git"}},
	}
	open := api.OpenRequest{
		Principal: "coding/scripted", Workspace: s.workspace, PolicyDir: s.policy, Ask: api.AskDesk, AskSeconds: 60, OwnTerminal: true,
	}
	for _, srv := range servers {
		argv, err := boxes.Argv(srv)
		if err != nil {
			return "", err
		}
		open.Servers = append(open.Servers, api.ServerInfo{Name: srv.Name, Report: json.RawMessage(api.BoxFollows), Argv: argv, Dir: boxes.Dir(srv), Annotations: srv.Ringfence.Builtin})
	}
	session, err := client.OpenSession(ctx, open)
	if err != nil {
		return "", err
	}
	boxes.Record = func(ctx context.Context, server string, r sandbox.Report) error {
		return session.RecordBox(ctx, server, "", r.String(), r)
	}
	m, err := mediator.New(mediator.Options{
		Decider: session, Starter: boxes, Servers: servers, Version: s.o.Version,
		Session: session.Opened().Session, Principal: session.Opened().Principal,
	})
	if err != nil {
		return "", err
	}
	asking, stopAsking := context.WithCancel(ctx)
	defer stopAsking()
	person := make(chan error, 1)
	go func() { person <- s.answer(asking, client) }()
	err = s.converse(ctx, m)
	stopAsking()
	if answerErr := <-person; answerErr != nil && !errors.Is(answerErr, context.Canceled) {
		err = errors.Join(err, answerErr)
	}
	return session.Opened().Session, errors.Join(err, session.Close(ctx))
}

// converse connects the scripted model to the mediator and runs it to its end.
func (s *stage) converse(ctx context.Context, m *mediator.Mediator) error {
	toServer, fromAgent := io.Pipe()
	toAgent, fromServer := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		err := m.Run(ctx, toServer, fromServer)
		ended <- errors.Join(err, fromServer.Close(), toServer.Close())
	}()
	tools, err := agent.NewMCP(ctx, toAgent, fromAgent)
	if err == nil {
		loop := agent.Loop{Model: &llmtest.Script{Lines: s.script()}, Tools: tools}
		_, err = loop.Run(ctx, task)
	}
	closeErr := fromAgent.Close()
	return errors.Join(err, closeErr, <-ended)
}

// answer says yes or no to what the agent's calls need a person for.
func (s *stage) answer(ctx context.Context, client *api.Client) error {
	return client.WatchQuestions(ctx, func(ev api.QuestionEvent) error {
		if ev.Kind != "asked" {
			return nil
		}
		var err error
		yes := scripted(ev.Question)
		if s.o.Person != nil {
			yes, err = s.o.Person(ctx, ev.Question)
		}
		if err != nil {
			return err
		}
		err = client.Answer(ctx, ev.Question.ID, api.Choice{Yes: yes, Mark: ev.Question.Mark})
		if errors.Is(err, api.ErrNotFound) {
			return nil // it was withdrawn meanwhile
		}
		return err
	})
}

// keyOf is the public key that signs the record of home.
func keyOf(home string) (ed25519.PublicKey, error) {
	key, err := keychain.LoadOrCreate(paths.LedgerKey(home))
	if err != nil {
		return nil, err
	}
	return key.Public().(ed25519.PublicKey), nil
}

func (s *stage) path(parts ...string) string {
	return filepath.Join(append([]string{s.workspace}, parts...)...)
}
