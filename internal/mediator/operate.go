package mediator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/strictjson"
)

// A State is what can be said of a server at one moment.
type State struct {
	Name   string
	Up     bool
	Report string // of its process: what confines it
	Error  string // why it is not up, "" if it is or has not been tried
	// Era is "sessions" or "requests", "" until that is known.
	Era    string    `json:",omitempty"`
	Starts int       `json:",omitempty"` // of its process, or of connections to it
	Since  time.Time `json:",omitzero"`  // it has been up, or has not been
	Tools  int       `json:",omitempty"` // that the client may see
	// Answers is how long it took to answer a ping; 0 if it was not asked or did not.
	Answers time.Duration `json:",omitempty"`
}

// States returns the state of every server, in the order of the options.
func (m *Mediator) States() []State {
	all := make([]State, len(m.servers))
	for i, s := range m.servers {
		all[i], _ = s.state()
	}
	return all
}

// Check is States with how long each server took to answer, which ctx bounds.
func (m *Mediator) Check(ctx context.Context) []State {
	all := make([]State, len(m.servers))
	var asked sync.WaitGroup
	for i, s := range m.servers {
		var l *link
		if all[i], l = s.state(); l == nil {
			continue
		}
		asked.Go(func() {
			start := time.Now()
			if err := l.alive(ctx); err == nil {
				all[i].Answers = time.Since(start)
			} else if all[i].Error == "" {
				all[i].Error = "it does not answer: " + err.Error()
			}
		})
	}
	asked.Wait()
	return all
}

// state is also the link, if that is up.
func (s *server) state() (State, *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := State{Name: s.cfg.Name, Report: s.report, Starts: s.starts, Since: s.since, Tools: len(s.tools.visible)}
	switch s.era {
	case sessioned:
		st.Era = "sessions"
	case apart:
		st.Era = "requests"
	case unknown:
	}
	if s.link != nil && s.link.up() {
		st.Up = true
		return st, s.link
	}
	if s.err != nil {
		st.Error = s.err.Error()
	}
	return st, nil
}

// named returns a server, or an error with the name that was probably meant.
func (m *Mediator) named(name string) (*server, error) {
	if s := m.byName[name]; s != nil {
		return s, nil
	}
	names := make([]string, len(m.servers))
	for i, s := range m.servers {
		names[i] = s.cfg.Name
	}
	if near := strictjson.Nearest(name, names); near != "" {
		return nil, fmt.Errorf("there is no server %s; did you mean %q?", clip(name), near)
	}
	return nil, fmt.Errorf("there is no server %s; there are %s", clip(name), strings.Join(names, ", "))
}

// maxLog bounds what is kept of the standard error of one server, in bytes.
const maxLog = 64 << 10

// Log returns the end of what a server wrote to standard error, 64 KiB at most. It is
// the text of a stranger, for people only.
func (m *Mediator) Log(name string) (string, error) {
	s, err := m.named(name)
	if err != nil {
		return "", err
	}
	return string(s.cfg.scrubbed([]byte(s.log.String()))), nil
}

var errRestarted = errors.New("it is restarted because a person wants it")

// Restart stops a server and starts it again, and returns when it is up. Calls under
// way fail. Earlier deaths are forgotten.
func (m *Mediator) Restart(ctx context.Context, name string) error {
	s, err := m.named(name)
	if err != nil {
		return err
	}
	if !m.serving.Load() {
		return errStopped
	}
	s.mu.Lock()
	s.deaths = 0
	l := s.link
	if l != nil && s.starting == nil {
		s.stale = true // so that this is no death
	}
	s.mu.Unlock()
	if l != nil {
		l.fail(errRestarted)
	}
	if _, err := s.ready(ctx); err != nil {
		if st, _ := s.state(); st.Error != "" {
			return errors.New(st.Error)
		}
		return err
	}
	return nil
}

// A tee is a stream that is kept elsewhere, too.
type tee struct {
	io.ReadCloser
	to io.Writer
}

func (t tee) Read(p []byte) (int, error) {
	n, err := t.ReadCloser.Read(p)
	_, _ = t.to.Write(p[:n]) // a ring takes everything
	return n, err
}

// A Trial is what came of starting a server to see whether it works.
type Trial struct {
	Name     string
	Report   string `json:",omitempty"` // what confines it
	Protocol string `json:",omitempty"` // the revision that it speaks
	Tools    int
	List     []byte        `json:"-"`          // {"tools":[…]}, as the server sent them; for a person, as of [Definitions]
	Ready    time.Duration `json:",omitempty"` // from its start until its tools were read
	Answers  time.Duration `json:",omitempty"` // how long it then took to answer a ping
	Error    string        `json:",omitempty"`
	Log      string        `json:",omitempty"` // the end of its standard error: the text of a stranger
}

// Try starts s, reads its tools, asks whether it answers, and stops it. Of o, what
// concerns calls and clients is not used; StartTimeout bounds the whole.
func Try(ctx context.Context, o Options, s Server) Trial {
	o = o.withDefaults()
	t := Trial{Name: s.Name}
	if err := o.try(ctx, s, &t); err != nil {
		t.Error = err.Error()
	}
	return t
}

func (o Options) try(ctx context.Context, s Server, t *Trial) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, errors.New("it took too long"))
	defer cancel()
	k := unknown
	for {
		start := time.Now()
		p, err := o.Starter.Start(ctx, s)
		if err != nil {
			return err
		}
		log := &ring{max: maxStderr}
		p.Stderr = tee{p.Stderr, log}
		t.Report = p.Report
		l := newLink(s, nil, p, o.MaxResult, o.Log, func() {}, nil, nil)
		err = o.tryLink(ctx, l, k, start, t)
		l.stop(o.StopGrace)
		t.Log = log.String()
		if !errors.Is(err, errProbed) || k != unknown {
			return err
		}
		k = sessioned
	}
}

// codeTransport is of errors that a transport makes in place of a server that was not reached.
const codeTransport = -32000

// failed says what an error object says that answers method.
func (l *link) failed(method string, body []byte) error {
	code, codeOK, err1 := strictjson.Find(body, "/code")
	said, saidOK, err2 := strictjson.Find(body, "/message")
	text, err3 := said.Text()
	switch {
	case errors.Join(err1, err2, err3) != nil || !codeOK || !saidOK || !isNumber(code.Raw):
		return fmt.Errorf("%s was answered with the %w %s", method, errAnswer, clip(string(body)))
	case l.proc.About != nil && string(code.Raw) == strconv.Itoa(codeTransport):
		return fmt.Errorf("%s came to an %w: %s", method, errAnswer, clip(text))
	}
	return fmt.Errorf("%s was answered with the %w %s: %s", method, errAnswer, code.Raw, clip(text))
}

func (o Options) tryLink(ctx context.Context, l *link, k known, start time.Time, t *Trial) error {
	of, err := l.open(ctx, k, o.Version)
	if err != nil {
		return err
	}
	t.Protocol = of.protocol
	if of.tools {
		raw, err := fetch(ctx, l, "tools/list", "tools")
		if err != nil {
			return fmt.Errorf("reading its tools: %w", err)
		}
		defs, err := strictjson.Values(raw, "/tools/*")
		if err != nil {
			return fmt.Errorf("reading its tools: %w", err)
		}
		t.Tools, t.List = len(defs), raw
	}
	t.Ready = time.Since(start)
	start = time.Now()
	if err := l.alive(ctx); err != nil {
		return fmt.Errorf("asking whether it answers: %w", err)
	}
	t.Answers = time.Since(start)
	return nil
}
