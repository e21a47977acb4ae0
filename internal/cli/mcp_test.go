//go:build unix

package cli

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"ringfence/internal/sandbox/native"
)

// TestMain lets the test binary be ringfence when it is called with a verb.
func TestMain(m *testing.M) {
	native.Child()
	if len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		os.Exit(Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(m.Run())
}

// A place is a home with an engine of its own.
type place struct {
	t         *testing.T
	dir, list string
}

func newPlace(t *testing.T) *place {
	t.Helper()
	// A short path: the name of a socket in it may have about 100 bytes.
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	p := &place{t: t, dir: dir, list: filepath.Join(dir, "servers.json")}
	err = errors.Join(
		os.MkdirAll(filepath.Join(dir, "work"), 0o700),
		os.WriteFile(filepath.Join(dir, "work", "a.txt"), []byte("swordfish"), 0o600),
		os.WriteFile(p.list, []byte(`{"mcpServers":{"files":{"ringfence":{"builtin":"filesystem"}}}}`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = p.command("engine", "stop", "--force").Output() // it fails if none runs
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *place) command(args ...string) *exec.Cmd {
	c := exec.Command(os.Args[0], args...)
	c.Dir = filepath.Join(p.dir, "work")
	c.Env = append(os.Environ(), "HOME="+p.dir, "RINGFENCE_HOME="+filepath.Join(p.dir, "home"))
	return c
}

func (p *place) run(args ...string) string {
	p.t.Helper()
	out, err := p.command(args...).Output()
	if err != nil {
		p.t.Fatalf("%v: %v", args, err)
	}
	return string(out)
}

const (
	initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}` + "\n"
	readFile   = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"read_text_file","arguments":{"path":"a.txt"}}}` + "\n"
)

// TestPipedMCP: requests from a pipe that has ended are answered.
func TestPipedMCP(t *testing.T) {
	p := newPlace(t)
	c := p.command("mcp", "--servers", p.list)
	c.Stdin = strings.NewReader(initialize + readFile)
	out, err := c.Output()
	if err != nil || bytes.Count(out, []byte("\n")) != 2 || !bytes.Contains(out, []byte("swordfish")) {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInterruptedMCP: Ctrl-C ends with 130 and the polite signal of a client with
// 0; in both cases the session has its end on record.
func TestInterruptedMCP(t *testing.T) {
	p := newPlace(t)
	for n, c := range []struct {
		signal os.Signal
		want   int
	}{{os.Interrupt, codeInterrupted}, {syscall.SIGTERM, codeDone}} {
		m := p.command("mcp", "--servers", p.list)
		in, err := m.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := m.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Write([]byte(initialize)); err != nil {
			t.Fatal(err)
		}
		if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
			t.Fatal(line, err)
		}
		if err := m.Process.Signal(c.signal); err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); m.ProcessState.ExitCode() != c.want {
			t.Errorf("%v: %v, want status %d", c.signal, err, c.want)
		}
		if got := p.run("ledger", "show", "--type", "session-end"); strings.Count(got, "closed by its client") != n+1 {
			t.Errorf("%v: on record\n%s", c.signal, got)
		}
	}
}

// TestOnceEach: what each request to a server that is not reached came to is said once.
func TestOnceEach(t *testing.T) {
	log := "POST: refused\nserver/discover: it could not be reached\nPOST: refused\ninitialize: it could not be reached\n"
	if got := onceEach(log, "initialize came to an error: \"it could not be reached\""); !slices.Equal(got, []string{"refused"}) {
		t.Errorf("%q", got)
	}
}
