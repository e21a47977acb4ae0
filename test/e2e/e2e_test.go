//go:build unix

// Package e2e tells stories with the real binary, in processes of its own.
//
// A story is a script in scripts/ (the language is that of testscript). Each has
// a RINGFENCE_HOME of its own, ringfence on its PATH, and, where the machine has
// what scripts/need.sh installs, node, the MCP servers and the agents too. A
// script that needs those starts with "[!node] skip 'needs make test'"; in CI
// that fails. "status N PROGRAM…" runs a program that must exit with N.
package e2e

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"ringfence/internal/cli"
	"ringfence/internal/sandbox/native"
)

// TestMain lets the test binary be ringfence when it is called by that name. So
// "ringfence" is on the PATH of every test of this package.
func TestMain(m *testing.M) {
	native.Child()
	testscript.Main(m, map[string]func(){
		"ringfence": func() { os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr)) },
	})
}

func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:                 "scripts",
		RequireExplicitExec: true,
		RequireUniqueNames:  true,
		Setup: func(env *testscript.Env) error {
			// A short path: the name of a socket in it may have about 100 bytes.
			home, err := os.MkdirTemp("", "rf")
			if err != nil {
				return err
			}
			env.Defer(func() {
				if err := endHome(home); err != nil {
					t.Error(err)
				}
			})
			env.Setenv("HOME", env.WorkDir)
			env.Setenv("RINGFENCE_HOME", filepath.Join(home, "home"))
			if dir := os.Getenv("RINGFENCE_TEST_NODE_DIR"); dir != "" {
				env.Setenv("RINGFENCE_TEST_NODE_DIR", dir)
				env.Setenv("PATH", filepath.Join(dir, "node_modules", ".bin")+string(filepath.ListSeparator)+env.Getenv("PATH"))
			}
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"status": status},
		Condition: func(name string) (bool, error) {
			if name != "node" {
				return false, errors.New("unknown condition " + name)
			}
			have := os.Getenv("RINGFENCE_TEST_NODE_DIR") != ""
			if !have && os.Getenv("CI") == "true" {
				return false, errors.New("RINGFENCE_TEST_NODE_DIR is not set; run make test")
			}
			return have, nil
		},
	})
}

// endHome ends the engine of the home in dir, if there is one, and removes dir.
func endHome(dir string) error {
	home := filepath.Join(dir, "home")
	if _, err := os.Stat(home); err == nil {
		stop := exec.Command("ringfence", "engine", "stop", "--force")
		stop.Env = append(os.Environ(), "RINGFENCE_HOME="+home)
		// It fails if no engine runs, which is as well.
		_ = stop.Run()
	}
	// The engine may write its last lines after it has said that it ends.
	deadline := time.After(10 * time.Second)
	for {
		err := os.RemoveAll(dir)
		if err == nil {
			return nil
		}
		select {
		case <-deadline:
			return err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// status is the command "status N PROGRAM [ARGUMENT…]".
func status(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: status N PROGRAM [ARGUMENT…]")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("%s: exit status %d, want %d", strings.Join(args[1:], " "), got, want)
	}
}
