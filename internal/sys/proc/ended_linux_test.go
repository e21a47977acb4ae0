package proc

import (
	"context"
	"errors"
	"testing"
)

// TestAwaitEnd: the end of a process is seen, whether it is reaped or not, and nothing
// else is.
func TestAwaitEnd(t *testing.T) {
	c, err := Detach(Command{Argv: []string{"/bin/sleep", "60"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Kill() })
	over, cancel := context.WithCancel(t.Context())
	waited := make(chan error, 2)
	go func() { waited <- AwaitEnd(over, c.Pid()) }()
	cancel()
	if err := <-waited; !errors.Is(err, context.Canceled) || Ended(c.Pid()) {
		t.Errorf("a process that lives: %v, ended %v", err, Ended(c.Pid()))
	}
	go func() { waited <- AwaitEnd(t.Context(), c.Pid()) }()
	if err := c.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-waited; err != nil || !Ended(c.Pid()) {
		t.Errorf("one that was ended: %v, ended %v", err, Ended(c.Pid()))
	}
	if AwaitEnd(t.Context(), 0) == nil || Ended(0) || Ended(-1) {
		t.Error("no process has ended")
	}
}
