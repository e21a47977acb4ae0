package api

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

// TestTicketThatCameTooLate: a decision that allows what nobody waits for any more
// is finished by the client, so that no ticket stays open for ever.
func TestTicketThatCameTooLate(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		w.engine.decide = func(ctx context.Context, r act.Request) (act.Ticket, error) {
			<-ctx.Done()
			return act.Ticket{ID: "s-1/1", Session: r.Session, Verdict: act.Allow}, nil
		}
		s := w.open(w.connect(Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if tk, err := s.Decide(ctx, act.Request{}); err == nil || tk.Verdict != act.Deny {
			t.Errorf("%+v, %v", tk, err)
		}
		synctest.Wait()
		w.engine.mu.Lock()
		defer w.engine.mu.Unlock()
		if len(w.engine.outcomes) != 1 || !strings.Contains(w.engine.outcomes[0].Error, "not carried out") {
			t.Errorf("outcomes: %+v", w.engine.outcomes)
		}
	})
}

// TestResultThatDoesNotFit: a result that the engine cannot take in is withheld,
// and its ticket is finished all the same.
func TestResultThatDoesNotFit(t *testing.T) {
	in(t, ServerOptions{MaxBytes: 100}, func(t *testing.T, w *world) {
		w.engine.decide = func(ctx context.Context, _ act.Request) (act.Ticket, error) {
			<-ctx.Done()
			return act.Ticket{}, ctx.Err()
		}
		s := w.open(w.connect(Options{}))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _, _ = s.Decide(ctx, act.Request{Args: make([]byte, 60)}) }()
		synctest.Wait()
		for i, size := range []int{60, maxBody + 1} {
			r, err := s.Finish(t.Context(), act.Ticket{ID: "s-1/1"}, act.Outcome{Body: make([]byte, size)})
			if err == nil || r.Body != nil {
				t.Errorf("%d bytes: %+v, %v", size, r, err)
			}
			if got := w.engine.outcomes; len(got) != i+1 || len(got[i].Body) > 0 || !strings.Contains(got[i].Error, "withheld") {
				t.Errorf("%d bytes: outcomes %+v", size, got)
			}
		}
	})
}

// TestTicketThatDoesNotFit: a ticket too large for a frame is finished in the
// engine, and denies.
func TestTicketThatDoesNotFit(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		w.engine.decide = func(_ context.Context, r act.Request) (act.Ticket, error) {
			return act.Ticket{ID: "s-1/1", Session: r.Session, Verdict: act.Allow, Reason: strings.Repeat("x", maxReply)}, nil
		}
		s := w.open(w.connect(Options{}))
		if tk, err := s.Decide(t.Context(), act.Request{}); !errors.Is(err, &Error{Code: CodeTooLarge}) || tk.Verdict != act.Deny {
			t.Errorf("%s, %v", tk.Verdict, err)
		}
		if got := w.engine.outcomes; len(got) != 1 || got[0].Error == "" {
			t.Errorf("outcomes: %+v", got)
		}
	})
}

// TestLargeQuestions: what an agent asks cannot be so much that a person cannot
// see what waits.
func TestLargeQuestions(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		large := Question{ID: "q", Text: strings.Repeat("x", 2*maxHeader)}
		w.engine.questions = []Question{large, large, large}
		c := w.connect(Options{})
		qs, err := c.Questions(t.Context())
		if err != nil || len(qs) != 3 || len(qs[2].Text) != len(large.Text) {
			t.Errorf("%d questions, %v", len(qs), err)
		}
		w.engine.events = []QuestionEvent{{Kind: "asked", Question: large}}
		seen := errors.New("seen")
		if err := c.WatchQuestions(t.Context(), func(QuestionEvent) error { return seen }); !errors.Is(err, seen) {
			t.Errorf("watching: %v", err)
		}
	})
}

// TestSilentConnections: what connects and says no hello loses its place; who
// said hello may be silent.
func TestSilentConnections(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		c := w.connect(Options{})
		for _, said := range []string{"", "\x00\x00\x00\x10", "\x00\x00\x00\x10\x00\x00\x00\x00{"} {
			nc, err := w.dial(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = nc.Write([]byte(said)) }()
			begin := time.Now()
			if _, err := nc.Read(make([]byte, 1)); err == nil || time.Since(begin) > greetTime {
				t.Errorf("after %q: %v in %v", said, err, time.Since(begin))
			}
		}
		<-time.After(time.Hour)
		if _, err := c.Status(t.Context()); err != nil {
			t.Errorf("after an hour of silence: %v", err)
		}
	})
}

// A shortListener has no descriptor left for a while.
type shortListener struct {
	net.Listener
	errs []error
}

func (l *shortListener) Accept() (net.Conn, error) {
	if len(l.errs) == 0 {
		return l.Listener.Accept()
	}
	err := l.errs[0]
	l.errs = l.errs[1:]
	return nil, err
}

// TestOutOfDescriptors: a moment without descriptors does not end the engine.
func TestOutOfDescriptors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "engine.sock")
	l, err := ipc.Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	short := &shortListener{l, []error{&net.OpError{Op: "accept", Err: syscall.EMFILE}, syscall.ECONNABORTED}}
	done := make(chan error, 1)
	go func() { done <- NewServer(newFake(), ServerOptions{}).Serve(ctx, short) }()
	c, err := Connect(t.Context(), Options{Home: filepath.Dir(path)})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	broken := &shortListener{l, []error{syscall.EBADF}}
	if err := NewServer(newFake(), ServerOptions{}).Serve(t.Context(), broken); !errors.Is(err, syscall.EBADF) {
		t.Errorf("a listener that is broken: %v", err)
	}
}

// TestBytesOfAllConnections: many connections cannot have more in flight together
// than the engine can scan.
func TestBytesOfAllConnections(t *testing.T) {
	in(t, ServerOptions{MaxTotal: 100}, func(t *testing.T, w *world) {
		w.engine.decide = func(ctx context.Context, _ act.Request) (act.Ticket, error) {
			<-ctx.Done()
			return act.Ticket{}, ctx.Err()
		}
		ctx, cancel := context.WithCancel(t.Context())
		one, two := w.open(w.connect(Options{})), w.open(w.connect(Options{}))
		go func() { _, _ = one.Decide(ctx, act.Request{Args: make([]byte, 101)}) }() // alone it may be larger
		synctest.Wait()
		if _, err := two.Decide(t.Context(), act.Request{Args: make([]byte, 1)}); !errors.Is(err, &Error{Code: CodeBusy}) {
			t.Errorf("102 bytes: %v", err)
		}
		cancel()
		synctest.Wait()
		w.engine.decide = nil
		if _, err := two.Decide(t.Context(), act.Request{Args: make([]byte, 100)}); err != nil {
			t.Errorf("afterwards: %v", err)
		}
		if n := w.server.bytes.Load(); n != 0 {
			t.Errorf("%d bytes are still counted", n)
		}
	})
}

// TestNextEngineKnowsTheTools: after the engine was killed, the next one is told
// what the servers list before it is asked about a call.
func TestNextEngineKnowsTheTools(t *testing.T) {
	in(t, ServerOptions{}, func(t *testing.T, w *world) {
		s := w.open(w.connect(Options{}))
		for _, list := range []string{"old", "new"} {
			if _, err := s.Decide(t.Context(), act.Request{Verb: act.VerbList, Tool: "fs", Args: []byte(list)}); err != nil {
				t.Fatal(err)
			}
		}
		w.cut(false)
		synctest.Wait()
		w.engine.requests, w.engine.outcomes = nil, nil
		if _, err := s.Decide(t.Context(), act.Request{Verb: act.VerbCall, Tool: "fs.a"}); err != nil {
			t.Fatal(err)
		}
		got := w.engine.requests
		if len(got) != 2 || got[0].Verb != act.VerbList || string(got[0].Args) != "new" || got[1].Verb != act.VerbCall {
			t.Errorf("the engine was asked %+v", got)
		}
		if len(w.engine.outcomes) != 1 || string(w.engine.outcomes[0].Body) != "new" {
			t.Errorf("outcomes %+v", w.engine.outcomes)
		}
		w.engine.decide = func(context.Context, act.Request) (act.Ticket, error) { return act.Ticket{}, errors.New("no") }
		w.cut(false)
		synctest.Wait()
		if _, err := s.Decide(t.Context(), act.Request{Verb: act.VerbCall, Tool: "fs.a"}); err == nil || !strings.Contains(err.Error(), "tools of fs again") {
			t.Errorf("an engine that does not decide the list: %v", err)
		}
	})
}

// TestStopAny: an engine of whatever version can be stopped.
func TestStopAny(t *testing.T) {
	for _, version := range []int{1, Version - 1, Version, Version + 1, Version + newerVersions + 1} {
		stopped := false
		o := Options{Dial: func(context.Context) (net.Conn, error) {
			ours, theirs := net.Pipe()
			go func() { // an engine of that version
				defer theirs.Close()
				w := writer{nc: theirs, to: theirs}
				h, _, err := readHeader(theirs, maxHeader)
				var p helloParams
				if err != nil || decode(h.Params, &p) != nil {
					return
				}
				reply := `{"id":0,"result":{}}`
				if p.Version != version {
					reply = `{"id":0,"error":{"code":"version","message":"another"}}`
				}
				if w.frame([]byte(reply), nil, time.Minute) != nil {
					return
				}
				if h, _, err = readHeader(theirs, maxHeader); err == nil && h.Method == methodStop {
					stopped = true
					_ = w.frame([]byte(`{"id":1,"result":{}}`), nil, time.Minute)
				}
			}()
			return ours, nil
		}}
		err := StopAny(t.Context(), o, false)
		if known := version <= Version+newerVersions; stopped != known || (err == nil) != known || !known && !errors.Is(err, ErrVersion) {
			t.Errorf("version %d: stopped %v, %v", version, stopped, err)
		}
	}
}

// TestReaderCarriesOut: what is small and alone is carried out by the reader, and holds
// up neither its own cancellation nor another request, whether it says that it waits or
// not; what is large or among others has a goroutine of its own.
func TestReaderCarriesOut(t *testing.T) {
	for _, silent := range []bool{false, true} {
		in(t, ServerOptions{}, func(t *testing.T, w *world) {
			release := make(chan struct{})
			w.engine.silent = silent
			w.engine.decide = func(ctx context.Context, r act.Request) (act.Ticket, error) {
				select {
				case <-release:
					return act.Ticket{ID: "s-1/1", Session: r.Session, Verdict: act.Allow}, nil
				case <-ctx.Done():
					return act.Ticket{}, ctx.Err()
				}
			}
			s := w.open(w.connect(Options{}))
			decided, given := make(chan error, 1), make(chan error, 1)
			decide := func(ctx context.Context, to chan<- error) {
				_, err := s.Decide(ctx, act.Request{})
				to <- err
			}
			go decide(t.Context(), decided)
			if synctest.Wait(); silent {
				<-time.After(3 * lookEvery)
			}
			ctx, cancel := context.WithCancel(t.Context())
			go decide(ctx, given)
			for _, size := range []int{1, maxInline + 1} {
				if _, err := s.Finish(t.Context(), act.Ticket{ID: "s-1/0"}, act.Outcome{Body: make([]byte, size)}); err != nil {
					t.Errorf("%d bytes beside a request that waits: %v", size, err)
				}
			}
			cancel()
			if err := <-given; !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
			close(release)
			if err := <-decided; err != nil {
				t.Fatal(err)
			}
			if r, err := s.Finish(t.Context(), act.Ticket{ID: "s-1/1"}, act.Outcome{Body: []byte("a")}); err != nil || string(r.Body) != "A" {
				t.Errorf("alone: %+v, %v", r, err)
			}
			<-time.After(10 * lookEvery)
			if n := w.server.busy.Load(); n != 0 || w.server.bytes.Load() != 0 {
				t.Errorf("%d requests are still under way", n)
			}
		})
	}
}
