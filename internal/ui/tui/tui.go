// Package tui is the page on which a person answers what waits: the whole screen of a
// terminal, for as long as it is open.
//
// It is not the desk, and decides nothing: it shows what the engine says, and passes on what
// the person chooses. It opens nothing by itself and knows no agent's terminal: whoever calls
// it owns the terminal, and has it pass every byte.
//
// Invariants:
//
//	U1  For a while after the page has opened, and after another question has become the
//	    chosen one, no key answers: it was pressed for something else.
//	U2  A yes is only taken for a question all of whose text has stood on the screen.
//	U3  A key that answers comes alone: what is pasted, and what a terminal sends by itself
//	    (answers to what a program asked it), answers nothing.
//	U4  Nothing that is shown does anything to the terminal. Only [screen] writes to it, and
//	    it asks the terminal nothing, so that no answer of it goes astray.
//	U5  When Open returns, nothing of ours reads the terminal, and the terminal is as it was.
package tui

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"ringfence/internal/daemon/api"
)

// An Action is what a person wants who leaves the page.
type Action int

// The actions.
const (
	Back   Action = iota // to where he was
	Detach               // and leave what runs running
	Stop                 // what runs
	Send                 // the key that opens the page is meant for what runs
)

// A Terminal is one that passes every byte on.
type Terminal struct {
	In  io.Reader
	Out io.Writer
	// Close ends reads of In: one that waits returns with an error.
	Close func() error
	// Size is how large it is now; a zero member is not known.
	Size func() (rows, columns int)
}

// A Desk is where questions wait.
type Desk interface {
	// Questions returns those that wait, oldest first.
	Questions(ctx context.Context) ([]api.Question, error)
	// Question returns one whole.
	Question(ctx context.Context, id string) (api.Question, error)
	Answer(ctx context.Context, id string, choice api.Choice) error
}

// Options are what a page shows. The zero value shows no question, and goes back.
type Options struct {
	Desk  Desk
	Title string // of what runs; "" if nothing does: then nothing can be left, ended or sent a key
	// Key is the control character that opened the page; 0 for none. Pressed again, it is Send.
	Key byte
	// Other says that the terminal shows its other screen already.
	Other bool
	// Propose has a clause proposed that allows what q asks, within its scope of that number
	// (from 1), for good. It returns what the person is told. nil: nothing can be proposed.
	Propose func(ctx context.Context, q api.Question, scope int) (string, error)
	// Now is the clock; nil is time.Now.
	Now func() time.Time
}

// How often the desk is looked at, and the page drawn for its clocks.
const look = 400 * time.Millisecond

// Open shows the page until the person leaves it or ctx ends.
func Open(ctx context.Context, t Terminal, o Options) (Action, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Desk == nil {
		return Back, nil
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &page{o: o, screen: screen{out: t.Out, other: o.Other}, size: t.Size, events: make(chan event)}
	p.model = newModel(o)
	err := p.screen.open()
	if err == nil {
		p.work.Go(func() { p.read(ctx, t.In) })
		p.work.Go(func() { p.watch(ctx) })
		err = p.run(ctx)
	}
	cancel()
	err = errors.Join(err, t.Close())
	p.work.Wait()
	return p.model.action, errors.Join(err, p.screen.close())
}

// An event is one thing that the page hears of. One member is set.
type event struct {
	typed  []byte
	ended  error // of the terminal
	heard  bool  // from the desk: questions and failed
	open   []api.Question
	failed error
	done   *outcome
}

// An outcome is what became of an answer.
type outcome struct {
	id   string
	said string
	err  error
}

// A page is one that is open.
type page struct {
	o      Options
	screen screen
	model  *model
	size   func() (rows, columns int)
	events chan event
	work   sync.WaitGroup
}

// tell passes an event to the page while it is open.
func (p *page) tell(ctx context.Context, e event) bool {
	select {
	case p.events <- e:
		return true
	case <-ctx.Done():
		return false
	}
}

func (p *page) read(ctx context.Context, in io.Reader) {
	buf := make([]byte, 4096)
	for {
		n, err := in.Read(buf)
		if n > 0 && !p.tell(ctx, event{typed: append([]byte(nil), buf[:n]...)}) {
			return
		}
		if err != nil {
			p.tell(ctx, event{ended: err})
			return
		}
	}
}

func (p *page) watch(ctx context.Context) {
	each := time.NewTicker(look)
	defer each.Stop()
	whole := map[string]api.Question{} // what is open, with all that is kept of its arguments
	for {
		open, err := p.o.Desk.Questions(ctx)
		still := map[string]api.Question{}
		for i, q := range open {
			if q.ArgsBytes > len(q.Args) { // a preview
				w, known := whole[q.ID]
				if !known || w.Mark != q.Mark {
					if w, err = p.o.Desk.Question(ctx, q.ID); err != nil {
						w, err = q, nil // it has gone meanwhile: the next look shows it
					}
				}
				still[q.ID], open[i] = w, w
			}
		}
		whole = still
		if !p.tell(ctx, event{heard: true, open: open, failed: err}) {
			return
		}
		select {
		case <-each.C:
		case <-ctx.Done():
			return
		}
	}
}

func (p *page) run(ctx context.Context) error {
	clock := time.NewTicker(look)
	defer clock.Stop()
	for {
		rows, columns := p.size()
		if err := p.screen.draw(p.model.view(rows, columns, p.o.Now()), columns); err != nil {
			return fmt.Errorf("showing what waits: %w", err)
		}
		if p.model.over {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-clock.C:
		case e := <-p.events:
			if e.ended != nil {
				return fmt.Errorf("showing what waits: %w", e.ended)
			}
			p.hear(ctx, e)
		}
	}
}

func (p *page) hear(ctx context.Context, e event) {
	now := p.o.Now()
	switch {
	case e.heard:
		p.model.questions(e.open, e.failed, now)
	case e.done != nil:
		p.model.answered(*e.done)
	default:
		for _, work := range p.model.typed(e.typed, now) {
			p.work.Go(func() { p.answer(ctx, work) })
		}
	}
}

// answering is how long an answer may take to be passed on.
const answering = 10 * time.Second

// answer passes on what the person chose, also if he leaves meanwhile.
func (p *page) answer(open context.Context, a answer) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(open), answering)
	defer cancel()
	out := outcome{id: a.q.ID, said: a.said}
	if a.propose > 0 {
		out.said, out.err = p.o.Propose(ctx, a.q, a.propose)
	}
	if out.err == nil {
		out.err = p.o.Desk.Answer(ctx, a.q.ID, a.choice)
	}
	p.tell(open, event{done: &out})
}
