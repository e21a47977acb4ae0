package native

import (
	"context"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/pty"
)

// A terminal becomes that of the box's session: job control, sizes, signals by keys.
func TestTerminal(t *testing.T) {
	for kind, tier := range kinds {
		master, slave, err := pty.Open(nil)
		if err != nil {
			t.Fatal(err)
		}
		s := sh(`stty -echo; stty size; tty; echo by name >/dev/tty; set -m; sleep 1000 & kill %1; wait; echo jobs
			trap 'echo interrupted; exit 3' INT; echo ready; read line; echo not reached`)
		s.Stdin, s.Stdout, s.Stderr = slave, slave, slave
		if err := unix.IoctlSetWinsize(int(slave.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
			t.Fatal(err)
		}
		b, err := tier.Start(t.Context(), s)
		slave.Close()
		if err != nil {
			t.Fatal(err)
		}
		var seen strings.Builder
		buf := make([]byte, 256)
		for !strings.Contains(seen.String(), "ready") {
			n, err := master.Read(buf)
			if err != nil {
				t.Fatalf("%s: %v after %q", kind, err, seen.String())
			}
			seen.Write(buf[:n])
		}
		// A shell that is about to read misses a signal that comes just before.
		again := time.NewTicker(time.Second)
		stop := context.AfterFunc(t.Context(), again.Stop)
		ended := make(chan struct{})
		go func() {
			for {
				_, _ = io.WriteString(master, "\x03") // when the box has ended nobody is there
				select {
				case <-again.C:
				case <-ended:
					return
				}
			}
		}()
		exit, err := b.Wait()
		close(ended)
		stop()
		again.Stop()
		if err != nil || exit != (sandbox.Exit{Cause: sandbox.CauseExit, Code: 3}) {
			t.Errorf("%s: %v %v", kind, exit, err)
		}
		for _, want := range []string{"33 77\r\n", "by name\r\n", "jobs\r\n", "ready\r\n"} {
			if !strings.Contains(seen.String(), want) {
				t.Errorf("%s: no %q in %q", kind, want, seen.String())
			}
		}
		if kind == "full" && !strings.Contains(seen.String(), "/dev/console\r\n") {
			t.Errorf("the terminal has no name: %q", seen.String())
		}
		master.Close()
	}
}

// A file that is no terminal is none.
func TestNoTerminal(t *testing.T) {
	null, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	s := sh("tty; (: </dev/tty) 2>/dev/null || echo none")
	s.Stdin = null
	if out := run(t, full(), s, ""); string(out.Stdout) != "not a tty\nnone\n" {
		t.Errorf("%q", out.Stdout)
	}
}
