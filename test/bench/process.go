package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"ringfence/internal/constitution"
	"ringfence/internal/sys/keychain"
	"ringfence/test/rig"

	"github.com/cedar-policy/cedar-go"
)

// compiles measures the way from English to a signed bundle that has decided its
// own scenarios, beside parsing the Cedar that comes out.
func compiles(ctx context.Context, b *bench) error {
	key, err := keychain.LoadOrCreate(b.dir + "/policy.key")
	if err != nil {
		return err
	}
	for _, name := range constitution.ShippedNames() {
		text, lists, err := constitution.Shipped(name)
		if err != nil {
			return err
		}
		compile := func() (*constitution.Compiled, error) {
			c, err := constitution.Compile(constitution.Source{Name: name, Text: text}, constitution.Options{Granting: true, Lists: lists})
			if err != nil {
				return nil, err
			}
			return c, constitution.Write(b.dir+"/bundle", c, "bench", key)
		}
		c, err := compile()
		if err != nil {
			return err
		}
		mine, theirs, err := inTurn(ctx, b.times(100),
			func() error { _, err := compile(); return err },
			func() error { _, err := cedar.NewPolicySetFromBytes("policy.cedar", c.Cedar); return err })
		if err != nil {
			return err
		}
		b.add(latency("constitution "+name+": compile, prove, sign, write", mine, "cedar-go parsing the outcome", theirs).
			within(mine.p50(), 50*time.Millisecond))
	}
	return nil
}

// starts measures processes until they have done what they were started for.
func starts(ctx context.Context, b *bench) error {
	mine, theirs, err := inTurn(ctx, b.times(60),
		func() error { return exec.CommandContext(ctx, b.bin, "--version").Run() },
		func() error { return exec.CommandContext(ctx, b.idle).Run() })
	if err != nil {
		return err
	}
	b.add(latency("start of --version", mine, "a Go program that does nothing", theirs).within(mine.p50(), 15*time.Millisecond))
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(readyRows(ctx, b, h), h.Close())
}

// readyRows measures how long it takes until a mediator answers its client.
func readyRows(ctx context.Context, b *bench, h *rig.Home) (err error) {
	policy, err := h.Policy(ctx, "may do anything in the workspace")
	if err != nil {
		return err
	}
	servers, err := h.Servers(rig.Filesystem())
	if err != nil {
		return err
	}
	conn, err := h.Connect(ctx) // so that the engine runs
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	ready := func(tools bool, start func() (*rig.MCP, error)) func() (func() error, error) {
		return func() (func() error, error) {
			m, err := start()
			if err != nil {
				return nil, err
			}
			if tools {
				_, err = m.Tools(ctx)
			}
			return m.Close, err
		}
	}
	ours := func() (*rig.MCP, error) { return h.MCP(ctx, policy, servers) }
	beside := func() (*rig.MCP, error) {
		return h.Start(ctx, h.Command(ctx, "server", "filesystem", "--root", h.Work))
	}
	for _, c := range []struct {
		what  string
		tools bool
	}{{"mediator ready, its server in a box: initialize is answered", false}, {"mediator ready, its server in a box: its tools are listed", true}} {
		mine, theirs, err := startsInTurn(ctx, b.times(30), ready(c.tools, ours), ready(c.tools, beside))
		if err != nil {
			return fmt.Errorf("%s: %w", c.what, err)
		}
		r := latency(c.what, mine, "the server started directly, no box", theirs)
		if !c.tools {
			r = r.within(mine.p50(), 20*time.Millisecond)
		}
		b.add(r)
	}
	return nil
}

// addMemory adds a row about a process that now runs, beside one that holds so
// many bytes. Limit is in megabytes.
func (b *bench) addMemory(what string, pid int, beside int64, limit int64) error {
	bytes, err := anonymous(pid)
	if err != nil {
		return err
	}
	b.add(row{
		What: what, Ours: [2]string{size(bytes), ""}, Name: "a Go program that does nothing", Beside: [2]string{size(beside), ""},
		Ratio: float64(bytes) / float64(beside), Figure: size(bytes), Reach: fmt.Sprintf("≤ %d MB", limit), Met: bytes <= limit*1e6,
	})
	return nil
}

// idleMemory is what a Go program holds that does nothing.
func idleMemory(ctx context.Context, b *bench) (int64, error) {
	cmd := exec.CommandContext(ctx, b.idle, "wait")
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 0, err
	}
	_, err = bufio.NewReader(out).ReadString('\n')
	var bytes int64
	if err == nil {
		bytes, err = anonymous(cmd.Process.Pid)
	}
	return bytes, errors.Join(err, in.Close(), cmd.Wait())
}

var anonymousLine = regexp.MustCompile(`(?m)^Anonymous: +(\d+) kB$`)

// anonymous is the memory of a process that no file backs, in bytes.
func anonymous(pid int) (int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	m := anonymousLine.FindSubmatch(text)
	if m == nil {
		return 0, errors.New("the kernel does not say how much memory is anonymous")
	}
	kilobytes, err := strconv.ParseInt(string(m[1]), 10, 64)
	return kilobytes * 1024, err
}
