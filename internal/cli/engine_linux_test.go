package cli

import (
	"context"
	"testing"

	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// Who listens at the socket of the engine and does not greet is not the engine, whose
// stage boxes are started from.
func TestEngineThatDoesNotGreet(t *testing.T) {
	home := t.TempDir()
	t.Setenv(paths.EnvHome, home)
	socket, err := paths.EngineSocket(home)
	if err != nil {
		t.Fatal(err)
	}
	l, err := ipc.Listen(socket)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 1)) // it begins to say hello
			defer c.Close()
		}
		cancel()
	}()
	c, err := connectAs(ctx, func(pid int) { t.Errorf("process %d is taken for the engine", pid) })
	if err == nil {
		t.Error("connected", c.Close())
	}
}
