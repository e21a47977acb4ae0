package cli

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"testing"

	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// TestWatchesTheNextEngine: who watches questions goes on when the engine was replaced.
func TestWatchesTheNextEngine(t *testing.T) {
	dir, err := os.MkdirTemp("", "rf")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	home := filepath.Join(dir, "home")
	if err := os.Mkdir(home, 0o700); err != nil {
		t.Fatal(err)
	}
	engine := func() (stop func()) {
		ctx, cancel := context.WithCancel(t.Context())
		ready, ended := make(chan struct{}), make(chan error, 1)
		go func() {
			ended <- daemon.Run(ctx, daemon.Options{Home: home, UserHome: dir, Program: "test", Ready: func() { close(ready) }})
		}()
		<-ready
		return func() {
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	stop := engine()
	socket, err := paths.EngineSocket(home)
	if err != nil {
		t.Fatal(err)
	}
	dialled := make(chan struct{}, 100)
	client, err := api.Connect(t.Context(), api.Options{
		Start: func(context.Context) error { stop = engine(); return nil },
		Dial: func(ctx context.Context) (net.Conn, error) {
			c, err := ipc.Dial(ctx, socket)
			if err == nil {
				dialled <- struct{}{}
			}
			return c, err
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	lost, done := make(chan struct{}), make(chan error, 1)
	go func() {
		done <- watchQuestions(ctx, client, func() { lost <- struct{}{} }, func(api.QuestionEvent) error { return nil })
	}()
	for range 2 {
		<-dialled // for calls
		<-dialled // for the watch, which starts the next engine
		stop()
		<-lost
	}
	<-dialled
	cancel()
	if err := <-done; err == nil {
		t.Error("a watch that was ended says nothing")
	}
	stop()
}
