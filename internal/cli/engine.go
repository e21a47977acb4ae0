package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// connect returns a client of the engine of this home, started if need be.
func connect(ctx context.Context) (*api.Client, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	return dial(ctx, home, daemon.Starter(home))
}

// connectAs is connect, and tells which process the engine is once it has greeted us.
func connectAs(ctx context.Context, told func(pid int)) (*api.Client, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	socket, err := paths.EngineSocket(home)
	if err != nil {
		return nil, err
	}
	var engine atomic.Int64 // of the last connection, which others of the client may make
	c, err := dialed(api.Connect(ctx, api.Options{Home: home, Start: daemon.Starter(home), Dial: func(ctx context.Context) (net.Conn, error) {
		conn, peer, err := ipc.DialOwn(ctx, socket)
		if err == nil {
			engine.Store(int64(peer.PID))
		}
		return conn, err
	}}))
	if err == nil {
		told(int(engine.Load()))
	}
	return c, err
}

// connectRunning is connect for verbs that have nothing to do without an engine.
func connectRunning(ctx context.Context) (*api.Client, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	return dial(ctx, home, nil)
}

func dial(ctx context.Context, home string, start func(context.Context) error) (*api.Client, error) {
	return dialed(api.Connect(ctx, api.Options{Home: home, Start: start}))
}

// dialed says what to do about an engine of another version.
func dialed(c *api.Client, err error) (*api.Client, error) {
	if errors.Is(err, api.ErrVersion) {
		return nil, &exitError{code: codeFailed, err: err, hint: `end the older one with "ringfence engine stop"`}
	}
	return c, err
}

// connectTo is connect to the engine of another user, which listens at socket and lets
// this user answer there. Who that user is, is said.
func connectTo(s *streams, socket string) func(context.Context) (*api.Client, error) {
	return func(ctx context.Context) (*api.Client, error) {
		told := ""
		c, err := api.Connect(ctx, api.Options{Dial: func(ctx context.Context) (net.Conn, error) {
			conn, peer, err := ipc.DialOther(ctx, socket)
			if err == nil && peer.HasUID && told == "" {
				told = paths.UserName(peer.UID)
				s.say("questions of the user %q", told)
			}
			return conn, err
		}})
		if errors.Is(err, api.ErrNotRunning) && told != "" {
			err = &exitError{code: codeDenied, err: fmt.Errorf("the user %q does not take answers of this user", told), hint: `it is for those whom "approvers" in the config.json of ` + told + " names"}
		}
		return c, err
	}
}

// with runs f with a client and closes it.
func with(ctx context.Context, connect func(context.Context) (*api.Client, error), f func(*api.Client) error) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}
