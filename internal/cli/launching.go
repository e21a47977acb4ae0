package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
	"ringfence/internal/launch"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native"
	"ringfence/internal/sys/pty"
)

// atTerminal reports whether a person sits at both ends of this process.
func (s *streams) atTerminal() bool {
	in, ok := s.in.(*os.File)
	return ok && pty.IsTerminal(in) && s.out.onTerminal()
}

// answerHere asks, at the terminal that this process owns, what its session waits
// for. The program in the box has a terminal of its own, so it cannot answer; the
// terminal is the program's as soon as it starts, so stop comes before that.
func (s *streams) answerHere(ctx context.Context, client *api.Client, session string) (stop func()) {
	var turn sync.Mutex // held by who reads the terminal
	return s.whenAsked(ctx, client, session, func(ctx context.Context, q api.Question) {
		turn.Lock()
		defer turn.Unlock()
		if ctx.Err() != nil {
			return
		}
		yes, err := askHere(ctx, s.err, q)
		if ctx.Err() != nil {
			fmt.Fprintln(s.err, "(no longer asked here)")
			return
		}
		if err == nil {
			err = client.Answer(ctx, q.ID, api.Choice{Yes: yes, Mark: q.Mark})
		}
		if err != nil && ctx.Err() == nil {
			s.say("asking you: %v", err)
		}
	})
}

// tellWait says what its session waits for, and where a person can answer.
func (s *streams) tellWait(ctx context.Context, client *api.Client, session string) (stop func()) {
	return s.whenAsked(ctx, client, session, func(_ context.Context, q api.Question) {
		s.say("a person must answer, until %s: in another terminal, \"ringfence approvals show %s\", then approve or deny", q.Deadline.Local().Format("15:04:05"), q.ID)
	})
}

// whenAsked calls f with every question of a session, until stop, which returns when f
// has. The context of f ends when the question has been answered, or is no more.
func (s *streams) whenAsked(ctx context.Context, client *api.Client, session string, f func(context.Context, api.Question)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	open := map[string]context.CancelFunc{} // by question
	var work sync.WaitGroup
	work.Go(func() {
		lost := func() {
			for id, over := range open {
				over()
				delete(open, id)
			}
		}
		err := watchQuestions(ctx, client, lost, func(ev api.QuestionEvent) error {
			switch id := ev.Question.ID; {
			case ev.Kind == "asked" && ev.Question.Session == session && open[id] == nil:
				asked, over := context.WithCancel(ctx)
				open[id] = over
				work.Go(func() { f(asked, ev.Question) })
			case ev.Kind != "changed" && open[id] != nil:
				open[id]()
				delete(open, id)
			}
			return nil
		})
		if err != nil && ctx.Err() == nil {
			s.say("watching for questions: %v", err)
		}
	})
	return sync.OnceFunc(func() {
		cancel()
		work.Wait()
	})
}

// say tells the person something that is no error.
func (s *streams) say(format string, a ...any) {
	fmt.Fprint(s.err, printable("ringfence: "+fmt.Sprintf(format, a...)+"\n"))
}

// sayEach says each of texts, in the place of %s.
func (s *streams) sayEach(format string, texts []string) {
	for _, text := range texts {
		s.say(format, display.Line(text))
	}
}

// A settling waits until what a box had is given back.
type settling func() error

func settled() error { return nil }

// launch runs spec with our streams and returns its exit status, when that is on record.
func (s *streams) launch(ctx context.Context, o launch.Options, spec sandbox.Spec) (int, settling, error) {
	if s.json {
		status, err := s.launchJSON(ctx, o, spec)
		return status, settled, err
	}
	o.Narrowed = func(note string) { s.say("%s", display.Line(note)) }
	var relay func() error
	var said beginning
	if s.atTerminal() {
		in := s.in.(*os.File) //nolint:forcetypeassert // atTerminal
		master, slave, err := pty.Open(in)
		if err != nil {
			return 0, settled, err
		}
		defer master.Close()
		spec.Stdin, spec.Stdout, spec.Stderr = slave, slave, slave
		relay = func() error {
			return errors.Join(slave.Close(), pty.Relay(context.WithoutCancel(ctx), io.MultiWriter(s.out, &said), master))
		}
		defer slave.Close() // closed already where it was used
	}
	if s.held != nil {
		master, slave, err := pty.Open(nil)
		if err != nil {
			return 0, settled, err
		}
		defer master.Close()
		spec.Stdin, spec.Stdout, spec.Stderr = slave, slave, slave
		relay = func() error { return errors.Join(slave.Close(), s.held.Relay(master)) }
		defer slave.Close() // closed already where it was used
	}
	r, err := launch.Start(ctx, o, spec)
	if err != nil {
		return 0, settled, err
	}
	if s.held != nil {
		s.held.ends(r.Signal, r.Kill)
	}
	if s.guard != nil {
		defer s.guard(r.Kill)()
	}
	stop := forward(r)
	defer stop()
	var dropped int64
	if relay != nil {
		err = relay()
	} else {
		dropped, err = s.pipe(r, s.out, io.MultiWriter(s.err, &said), spec.Bounds().Output)
	}
	if err != nil {
		err = errors.Join(fmt.Errorf("passing on what it writes: %w", err), r.Kill())
	}
	res, _, ferr := r.Conclude(ctx, nil, nil, dropped)
	if dropped > 0 {
		s.say("%d bytes of output were dropped: it may write %d to each stream (--output)", dropped, spec.Bounds().Output)
	}
	if relay == nil || spec.Profile == sandbox.ProfileCommand { // else it was a person's session, who read it all
		res.Denials = append(res.Denials, inferred(r.Spec, res, string(said))...)
	}
	for _, d := range s.told(r.Spec, res.Denials, o.Fixed) {
		s.say("%s", denialLine(d))
	}
	if res.Ended.Cause != sandbox.CauseKill { // that was us
		if note := mediator.Ended(ctx, r.Spec, res.Ended); note != "" {
			s.say("%s", note)
		}
	}
	settle := func() error {
		if _, err := r.Wait(); !errors.Is(ferr, err) {
			return err
		}
		return nil
	}
	return res.Status, settle, errors.Join(err, ferr)
}

// told returns denials as who typed the command can act on them: what the policy does not
// give, no flag does.
func (s *streams) told(spec sandbox.Spec, denials []sandbox.Denial, fixed []string) []sandbox.Denial {
	all := mediator.Told(spec, denials)
	for i := range all {
		if slices.ContainsFunc(fixed, func(p string) bool { return all[i].Rule == native.RuleHeld(p) }) {
			all[i].Fix = "a change of the clause that holds it, which \"ringfence run --explain\" shows"
		}
		if s.narrowed != "" && all[i].Fix == "--rw "+s.narrowed {
			all[i].Rule = "it is not in what the policy gives a box of " + s.narrowed + " to change"
			all[i].Fix = "a clause that lets it be changed, without a question or a limit"
		}
	}
	return all
}

// inferred returns what the box refused a program that did not end well, as far as it
// has said so.
func inferred(spec sandbox.Spec, res launch.Result, said string) []sandbox.Denial {
	if res.Status == 0 {
		return nil
	}
	all := mediator.Told(spec, res.Denials)
	return slices.DeleteFunc(mediator.Refused(spec, said), func(d sandbox.Denial) bool {
		return slices.ContainsFunc(all, func(seen sandbox.Denial) bool {
			return seen.Object == d.Object || seen.Fix == d.Fix && d.Op == "memory"
		})
	})
}

// A beginning keeps the first bytes that are written to it.
type beginning []byte

func (b *beginning) Write(p []byte) (int, error) {
	const most = 16 << 10
	*b = append(*b, p[:min(len(p), most-len(*b))]...)
	return len(p), nil
}

// launching starts commands of agents that may change what they are given: what that
// is, is decided with the command.
func launching(session launch.Session) func(context.Context, string, sandbox.Tier, sandbox.Spec) (sandbox.Box, func() error, error) {
	return func(ctx context.Context, call string, tier sandbox.Tier, s sandbox.Spec) (sandbox.Box, func() error, error) {
		r, err := launch.Start(ctx, launch.Options{Session: session, Tier: tier, Call: call}, s)
		if err != nil {
			return nil, nil, err
		}
		stop := context.AfterFunc(ctx, func() { _ = r.Kill() }) // what cannot be killed shows in Finish
		return r, func() error {
			stop()
			_, _, err := r.Finish(ctx, nil, nil, 0) // the output is in the result of the call
			return err
		}, nil
	}
}

// denialLine is a denial for people, in one line whatever the object is called.
func denialLine(d sandbox.Denial) string {
	line := fmt.Sprintf("refused in the box: %s %s: %s", d.Op, d.Object, d.Rule)
	if d.Op == "memory" {
		line = fmt.Sprintf("refused in the box: memory for %s: %s", d.Object, d.Rule)
	}
	if d.Op == sandbox.OpNotHeld {
		line = fmt.Sprintf("not held: %s: %s", d.Object, d.Rule)
	}
	if d.Count > 1 {
		line += fmt.Sprintf(" (%d times)", d.Count)
	}
	if !d.Observed {
		line += " (inferred)"
	}
	if d.Fix != "" {
		line += "; to allow it: " + d.Fix
	}
	return display.Line(line)
}

// pipe connects our input, out and err with the streams of the box, up to limit bytes of
// each, and returns how many were dropped.
func (s *streams) pipe(box sandbox.Box, out, err io.Writer, limit int64) (int64, error) {
	stdout, stderr := box.Stdout(), box.Stderr()
	var capped []*sandbox.Capped
	if limit != sandbox.Unlimited {
		capped = []*sandbox.Capped{sandbox.Cap(stdout, limit), sandbox.Cap(stderr, limit)}
		stdout, stderr = capped[0], capped[1]
	}
	go func() {
		// Ends with our input, or when the box has closed its end.
		_, _ = io.Copy(box.Stdin(), s.in)
		_ = box.Stdin().Close()
	}()
	var outErr, errErr error
	var both sync.WaitGroup
	both.Go(func() { _, outErr = io.Copy(out, stdout) })
	both.Go(func() { _, errErr = io.Copy(err, stderr) })
	both.Wait()
	var dropped int64
	for _, c := range capped {
		dropped += c.Dropped()
	}
	return dropped, errors.Join(outErr, errErr)
}

// forward sends the signals that end programs on to the box.
func forward(box sandbox.Box) (stop func()) {
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	done := make(chan struct{})
	go func() {
		for {
			select {
			case sig := <-signals:
				if n, ok := sig.(syscall.Signal); ok {
					_ = box.Signal(int(n)) // a box that has ended needs none
				}
			case <-done:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(done)
	}
}
