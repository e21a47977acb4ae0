package desk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// terminal is a keyboard and a screen.
type terminal struct {
	keys chan byte

	mu     sync.Mutex
	cut    chan struct{} // closed when the read deadline passes
	screen bytes.Buffer
}

func newTerminal() *terminal { return &terminal{keys: make(chan byte, 4096), cut: make(chan struct{})} }

func (t *terminal) press(s string) {
	for _, b := range []byte(s) {
		t.keys <- b
	}
}

func (t *terminal) Read(p []byte) (int, error) {
	t.mu.Lock()
	cut := t.cut
	t.mu.Unlock()
	select {
	case b, ok := <-t.keys:
		if !ok {
			return 0, io.EOF
		}
		p[0] = b
		return 1, nil
	case <-cut:
		return 0, os.ErrDeadlineExceeded
	}
}

func (t *terminal) SetReadDeadline(at time.Time) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if at.IsZero() {
		t.cut = make(chan struct{})
	} else if at.Before(time.Now()) {
		close(t.cut)
	}
	return nil
}

func (t *terminal) Write(p []byte) (int, error) { return t.screen.Write(p) }

// flushing is a terminal that can drop what was typed.
type flushing struct{ *terminal }

func (t flushing) Discard() error {
	for len(t.keys) > 0 {
		<-t.keys
	}
	return nil
}

var codeShown = regexp.MustCompile(`Type "(yes(?: [a-z2-7]{3})?)" to allow`)

func shown(t *terminal) string { return codeShown.FindStringSubmatch(t.screen.String())[1] }

// TestPrompt is AP-02 and the default of no.
func TestPrompt(t *testing.T) {
	left := errors.New("left")
	for name, c := range map[string]struct {
		before string                                            // typed before the prompt
		after  func(t *terminal, cancel context.CancelCauseFunc) // once it stands
		plain  bool                                              // the terminal cannot drop input
		yes    bool
		err    error
	}{
		"yes":                   {after: func(t *terminal, _ context.CancelCauseFunc) { t.press("yes\n") }, yes: true},
		"return alone":          {after: func(t *terminal, _ context.CancelCauseFunc) { t.press("\r") }},
		"y":                     {after: func(t *terminal, _ context.CancelCauseFunc) { t.press("y\n") }},
		"YES":                   {after: func(t *terminal, _ context.CancelCauseFunc) { t.press("YES\n") }},
		"typed before":          {before: "yes\nyes\n", after: func(t *terminal, _ context.CancelCauseFunc) { t.press("no\n") }},
		"half typed before":     {before: "yes", after: func(t *terminal, _ context.CancelCauseFunc) { t.press("\n") }},
		"code":                  {plain: true, after: func(t *terminal, _ context.CancelCauseFunc) { t.press(shown(t) + "\n") }, yes: true},
		"code missing":          {plain: true, after: func(t *terminal, _ context.CancelCauseFunc) { t.press("yes\n") }},
		"typed before, code":    {plain: true, before: "yes\n", after: func(t *terminal, _ context.CancelCauseFunc) { t.press(shown(t) + "\n") }},
		"silence":               {after: func(*terminal, context.CancelCauseFunc) { <-time.After(time.Hour) }, err: ErrNoAnswer},
		"end of input":          {after: func(t *terminal, _ context.CancelCauseFunc) { close(t.keys) }, err: io.EOF},
		"cancelled":             {after: func(_ *terminal, cancel context.CancelCauseFunc) { cancel(left) }, err: left},
		"a line without end":    {after: func(t *terminal, _ context.CancelCauseFunc) { t.press(strings.Repeat("y", 300)) }, err: errors.ErrUnsupported},
		"yes, but too late":     {after: func(t *terminal, _ context.CancelCauseFunc) { <-time.After(301 * time.Second); t.press("yes\n") }, err: ErrNoAnswer},
		"nothing after newline": {after: func(t *terminal, _ context.CancelCauseFunc) { t.press("yes\nrest") }, yes: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			term := newTerminal()
			var in Terminal = flushing{term}
			if c.plain {
				in = term
			}
			term.press(c.before)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			q := ask(1)
			q.Mark, q.Deadline = 3, time.Now().Add(5*time.Minute)
			type result struct {
				Choice
				err error
			}
			ch := make(chan result, 1)
			go func() {
				got, err := Prompt(ctx, in, term, q)
				ch <- result{got, err}
			}()
			synctest.Wait()
			c.after(term, cancel)
			got := <-ch
			wrong := !errors.Is(got.err, c.err)
			if errors.Is(c.err, errors.ErrUnsupported) { // any error
				wrong = got.err == nil
			}
			if got.Yes != c.yes || got.Mark != 3 || wrong {
				t.Errorf("%s: %+v", name, got)
			}
			if name == "nothing after newline" && len(term.keys) != len("rest") {
				t.Errorf("%s: %d keys are left", name, len(term.keys))
			}
		})
	}
}

type deafTerminal struct{ *terminal }

func (deafTerminal) SetReadDeadline(time.Time) error { return os.ErrNoDeadline }

func TestPromptNeedsInterruption(t *testing.T) {
	term := newTerminal()
	term.press("yes\n")
	if got, err := Prompt(t.Context(), deafTerminal{term}, term, ask(1)); got.Yes || !errors.Is(err, os.ErrNoDeadline) {
		t.Errorf("%+v, %v", got, err)
	}
}
