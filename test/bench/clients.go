package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/test/rig"
)

const many = 20 // clients at once

// A client is a session of an engine that decides calls and hands in outcomes,
// as a mediator does, without a server behind it.
type client struct {
	conn *api.Client
	*api.Session
}

// open opens n sessions, each on a connection of its own, for the filesystem
// server of h.
func open(ctx context.Context, h *rig.Home, n int) (all []*client, err error) {
	policy, err := h.Policy(ctx, "may do anything in the workspace")
	if err != nil {
		return nil, err
	}
	server, err := h.Start(ctx, h.Command(ctx, "server", "filesystem", "--root", h.Work))
	if err != nil {
		return nil, err
	}
	tools, err := server.Tools(ctx)
	if err = errors.Join(err, server.Close()); err != nil {
		return nil, err
	}
	for range n {
		c := &client{}
		if c.conn, err = h.Connect(ctx); err != nil {
			return all, err
		}
		all = append(all, c)
		c.Session, err = c.conn.OpenSession(ctx, api.OpenRequest{
			Principal: "default/bench", Workspace: h.Work, PolicyDir: policy, Ask: api.AskNever,
			Servers: []api.ServerInfo{{Name: "filesystem", Argv: []string{h.Bin, "server", "filesystem"}, Annotations: "filesystem"}},
		})
		if err != nil {
			return all, err
		}
		if err := c.do(ctx, act.Request{Verb: act.VerbList, Tool: "filesystem", Args: tools}, tools, nil); err != nil {
			return all, err
		}
	}
	return all, nil
}

// do decides a request and hands in an outcome; decided, unless nil, gets what
// the decision took.
func (c *client) do(ctx context.Context, r act.Request, body []byte, decided *series) error {
	start := time.Now()
	t, err := c.Decide(ctx, r)
	if decided != nil {
		*decided = append(*decided, time.Since(start))
	}
	if err != nil {
		return err
	}
	if t.Verdict != act.Allow {
		return fmt.Errorf("%s is denied: %s", r.Tool, t.Reason)
	}
	_, err = c.Finish(ctx, t, act.Outcome{Body: body})
	return err
}

func closeAll(ctx context.Context, all []*client) error {
	var errs []error
	for _, c := range all {
		if c.Session != nil {
			errs = append(errs, c.Close(ctx))
		}
		if c.conn != nil {
			errs = append(errs, c.conn.Close())
		}
	}
	return errors.Join(errs...)
}

// reading and writing are calls that observe and that mutate.
func reading(h *rig.Home) act.Request {
	return act.Request{Verb: act.VerbCall, Tool: "filesystem.read_text_file", Args: fmt.Appendf(nil, `{"path":%q}`, filepath.Join(h.Work, "a.txt"))}
}

func writing(h *rig.Home) act.Request {
	return act.Request{Verb: act.VerbCall, Tool: "filesystem.write_file", Args: fmt.Appendf(nil, `{"path":%q,"content":"text"}`, filepath.Join(h.Work, "b.txt"))}
}

var someResult = []byte(`{"content":[{"type":"text","text":"one line of text\n"}]}`)

// clients measures what many clients of one engine wait for a decision, beside
// one client alone.
func clients(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	all, err := open(ctx, h, many)
	if err == nil {
		err = clientRows(ctx, b, h, all)
	}
	return errors.Join(err, closeAll(ctx, all), h.Close())
}

func clientRows(ctx context.Context, b *bench, h *rig.Home, all []*client) error {
	for _, c := range []struct {
		what  string
		call  act.Request
		pause time.Duration // from the start of one call to that of the next; 0: none
	}{
		{"20 clients of one engine: a decision that observes", reading(h), 0},
		{"20 clients of one engine: a decision on disk first", writing(h), 0},
		{"20 clients, 1,000 calls a second together: a decision that observes", reading(h), many * time.Millisecond},
		{"20 clients, 1,000 calls a second together: a decision on disk first", writing(h), many * time.Millisecond},
	} {
		var mine, theirs series
		windows, n := b.times(10), b.times(50)
		for i := range 2 * windows {
			callers, into := many, &mine
			if i%2 == 1 {
				callers, into = 1, &theirs
			}
			decided := make([]series, callers)
			var w crowd
			start := time.Now()
			err := w.window(callers, n, func(k int) error {
				next := start.Add(time.Duration(len(decided[k]))*c.pause + time.Duration(k)*c.pause/many)
				if err := sleepUntil(ctx, next); err != nil {
					return err
				}
				return all[k].do(ctx, c.call, someResult, &decided[k])
			})
			if err != nil {
				return fmt.Errorf("%s: %w", c.what, err)
			}
			for _, d := range decided {
				*into = append(*into, d...)
			}
		}
		r := latency(c.what, mine, "one client alone", theirs)
		r = r.within(mine.p99(), 5*time.Millisecond)
		r.Figure = "p99 " + r.Figure
		b.add(r)
	}
	return nil
}

// sleepUntil waits until a moment, if it is still to come.
func sleepUntil(ctx context.Context, t time.Time) error {
	wait := time.NewTimer(time.Until(t))
	defer wait.Stop()
	select {
	case <-wait.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// memory measures what the engine holds, beside a Go program that does nothing.
func memory(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(memoryRows(ctx, b, h), h.Close())
}

func memoryRows(ctx context.Context, b *bench, h *rig.Home) (err error) {
	idle, err := idleMemory(ctx, b)
	if err != nil {
		return err
	}
	conn, err := h.Connect(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	pid := conn.Hello().PID
	if err := b.addMemory("memory of the engine, idle", pid, idle, 25); err != nil {
		return err
	}
	all, err := open(ctx, h, many)
	if err == nil {
		err = b.addMemory("memory of the engine, 20 sessions open", pid, idle, 120)
	}
	if err == nil {
		n := b.times(100_000)
		var w crowd
		err = w.window(many, n/many+1, func(k int) error { return all[k].do(ctx, reading(h), someResult, nil) })
		if err == nil {
			err = b.addMemory(fmt.Sprintf("memory of the engine, after %s calls of them", grouped(float64(n))), pid, idle, 40)
		}
	}
	return errors.Join(err, closeAll(ctx, all))
}
