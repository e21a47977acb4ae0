package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringfence/test/rig"
)

// A caller calls one tool of one server, and says what is wrong with the answer.
type caller struct {
	m    *rig.MCP
	tool string
	args json.RawMessage
	deny bool // it must be denied
}

func (c caller) call(ctx context.Context) error {
	r, err := c.m.Call(ctx, c.tool, c.args)
	switch {
	case err != nil:
		return err
	case r.IsError != c.deny:
		return fmt.Errorf("%s: unexpected answer %q (%s)", c.tool, r.Text, r.Code)
	}
	return nil
}

// calls measures calls through us beside calls of the same server without us.
func calls(ctx context.Context, b *bench) error {
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	err = callsOfFiles(ctx, b, h)
	if err == nil && b.node != "" {
		err = callsOfNode(ctx, b, h)
	}
	return errors.Join(err, h.Close())
}

func callsOfFiles(ctx context.Context, b *bench, h *rig.Home) error {
	small := filepath.Join(h.Work, "small.txt")
	if err := os.WriteFile(small, []byte("one line of text\n"), 0o600); err != nil {
		return err
	}
	direct, err := h.Start(ctx, h.Command(ctx, "server", "filesystem", "--root", h.Work))
	if err != nil {
		return err
	}
	through, err := behindUs(ctx, h, rig.Filesystem())
	if err != nil {
		return errors.Join(err, direct.Close())
	}
	relay, err := startRelays(ctx, b, h)
	if err == nil {
		err = errors.Join(callRows(ctx, b, h, through, direct, relay, small), relay.close())
	}
	return errors.Join(err, through.Close(), direct.Close())
}

// behindUs starts us in front of servers, where anything in the workspace is
// allowed, and asks for the tools, as clients do.
func behindUs(ctx context.Context, h *rig.Home, servers map[string]any) (*rig.MCP, error) {
	policy, err := h.Policy(ctx, "may do anything in the workspace", "may use the tools everything.*")
	if err != nil {
		return nil, err
	}
	file, err := h.Servers(servers)
	if err != nil {
		return nil, err
	}
	m, err := h.MCP(ctx, policy, file)
	if err != nil {
		return nil, err
	}
	if _, err := m.Tools(ctx); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

func callRows(ctx context.Context, b *bench, h *rig.Home, through, direct *rig.MCP, relay *relays, small string) error {
	read := fmt.Appendf(nil, `{"path":%q}`, small)
	write := fmt.Appendf(nil, `{"path":%q,"content":"another line of text\n"}`, filepath.Join(h.Work, "other.txt"))
	outside := fmt.Appendf(nil, `{"path":%q}`, filepath.Join(h.Person, "outside.txt"))
	for _, c := range []struct {
		what, tool   string
		args, beside json.RawMessage
		deny         bool
		limit        time.Duration
		relay        *rig.MCP
		floor        string
	}{
		{
			"stdio call that observes: the entry is written first", "read_text_file", read, read, false, 150 * time.Microsecond,
			relay.pass, "a relay that does nothing, in our place",
		},
		{"stdio call that mutates: the entry is on disk first", "write_file", write, write, false, time.Millisecond, relay.pass, ""},
		{
			"stdio call that is denied", "read_text_file", outside, read, true, 200 * time.Microsecond,
			relay.deny, "a relay that denies, in our place",
		},
	} {
		ours, beside := caller{through, c.tool, c.args, c.deny}, caller{direct, c.tool, c.beside, false}
		idle := caller{c.relay, c.tool, c.args, c.deny}
		took, err := allInTurn(ctx, b.times(3000), func() error { return ours.call(ctx) },
			func() error { return beside.call(ctx) }, func() error { return idle.call(ctx) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		mine, theirs, least := took[0], took[1], took[2]
		r := latency(c.what, mine, "the server called directly", theirs)
		if c.deny {
			r = r.within(mine.p50(), c.limit)
		} else {
			r = r.added(mine, theirs, c.limit)
		}
		b.add(r)
		if c.tool == "write_file" {
			b.add(tail(mine, theirs))
		}
		what, _, _ := strings.Cut(c.what, ":")
		b.add(besideRelay(what, mine, least))
		if c.floor != "" {
			b.add(floorRow(c.floor, least, theirs, c.deny))
		}
	}
	return errors.Join(hops(ctx, b, relay), crowdRows(ctx, b, h, through, direct, read))
}

// tail is the row about the slowest calls that mutate.
func tail(mine, theirs series) row {
	more := mine.p99() - theirs.p99()
	return row{
		What: "stdio call that mutates, its tail", Ours: [2]string{"", span(mine.p99())}, Name: "the server called directly",
		Beside: [2]string{"", span(theirs.p99())}, Ratio: float64(mine.p99()) / float64(theirs.p99()),
		Figure: "added p99 " + span(more), Reach: "≤ 2 ms", Met: more <= 2*time.Millisecond,
	}
}

// crowdRows measures many calls in flight on one connection.
func crowdRows(ctx context.Context, b *bench, h *rig.Home, through, direct *rig.MCP, read json.RawMessage) error {
	for _, c := range []struct {
		what, tool string
		args       json.RawMessage
	}{
		{"stdio calls, 16 at once, observing", "read_text_file", read},
		{"stdio calls, 16 at once, mutating", "create_directory", fmt.Appendf(nil, `{"path":%q}`, filepath.Join(h.Work, "made"))},
	} {
		ours, beside := caller{through, c.tool, c.args, false}, caller{direct, c.tool, c.args, false}
		mine, theirs, err := crowdsInTurn(ctx, b.times(10), 16, b.times(60),
			func(int) error { return ours.call(ctx) }, func(int) error { return beside.call(ctx) })
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		b.add(rates(c.what, "calls", mine.rate, "the server called directly", theirs.rate).atLeast(mine.rate, 1000, "calls"))
	}
	return nil
}

// callsOfNode measures a server that is not ours.
func callsOfNode(ctx context.Context, b *bench, h *rig.Home) error {
	node := filepath.Join(b.node, "node_modules", ".bin", "node")
	script := filepath.Join(b.node, "node_modules", "@modelcontextprotocol", "server-everything", "dist", "index.js")
	cmd := exec.CommandContext(ctx, node, script)
	cmd.Env, cmd.Dir = h.Env(), h.Work
	direct, err := h.Start(ctx, cmd)
	if err != nil {
		return err
	}
	through, err := behindUs(ctx, h, map[string]any{"everything": map[string]any{"command": node, "args": []string{script}}})
	if err != nil {
		return errors.Join(err, direct.Close())
	}
	args := json.RawMessage(`{"message":"hello"}`)
	ours, beside := caller{through, "echo", args, false}, caller{direct, "echo", args, false}
	mine, theirs, err := inTurn(ctx, b.times(2000),
		func() error { return ours.call(ctx) }, func() error { return beside.call(ctx) })
	if err == nil {
		b.add(latency("stdio call of echo of server-everything", mine, "the server called directly", theirs).added(mine, theirs, 150*time.Microsecond))
	}
	return errors.Join(err, through.Close(), direct.Close())
}

func validJSON(b []byte) error {
	if !json.Valid(b) {
		return errors.New("not JSON")
	}
	return nil
}
