package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringfence/test/rig"
)

// agents measures what "ringfence run" costs an agent, beside the agent alone.
func agents(ctx context.Context, b *bench) error {
	if b.node == "" {
		b.leftOut("agents: they are not installed (scripts/need.sh)")
		return nil
	}
	h, err := rig.New(b.bin)
	if err != nil {
		return err
	}
	return errors.Join(agentRows(ctx, b, h), h.Close())
}

func agentRows(ctx context.Context, b *bench, h *rig.Home) (err error) {
	s := &scene{Home: h}
	if s.policy, err = h.Policy(ctx, "may run any program and read files anywhere", "may do anything in the workspace"); err != nil {
		return err
	}
	if s.log, err = os.OpenFile(h.Log(), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600); err != nil {
		return err
	}
	defer s.log.Close()
	conn, err := h.Connect(ctx) // so that the engine runs
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	for _, name := range []string{"claude", "codex"} {
		program := filepath.Join(b.node, "node_modules", ".bin", name)
		if _, err := os.Stat(program); err != nil {
			b.leftOut("run %s: %v", name, err)
			continue
		}
		there := func(c *exec.Cmd) *exec.Cmd {
			for i, kv := range c.Env {
				if path, ok := strings.CutPrefix(kv, "PATH="); ok {
					c.Env[i] = "PATH=" + filepath.Dir(program) + ":" + path
				}
			}
			return c
		}
		mine, theirs, err := inTurn(ctx, b.times(40),
			func() error {
				return s.run(there(s.Command(ctx, "run", "--ask", "never", "--policy", s.policy, name, "--version")))
			},
			func() error {
				c := exec.CommandContext(ctx, program, "--version")
				c.Env, c.Dir = s.Env(), s.Work
				return s.run(there(c))
			})
		if err != nil {
			return err
		}
		b.add(latency("run "+name+" --version", mine, name+" --version", theirs).added(mine, theirs, 80*time.Millisecond))
	}
	return nil
}
