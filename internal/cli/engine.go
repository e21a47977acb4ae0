package cli

import (
	"context"
	"errors"

	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
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

// connectRunning is connect for verbs that have nothing to do without an engine.
func connectRunning(ctx context.Context) (*api.Client, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	return dial(ctx, home, nil)
}

func dial(ctx context.Context, home string, start func(context.Context) error) (*api.Client, error) {
	c, err := api.Connect(ctx, api.Options{Home: home, Start: start})
	if errors.Is(err, api.ErrVersion) {
		return nil, &exitError{code: codeFailed, err: err, hint: `end the older one with "ringfence engine stop"`}
	}
	return c, err
}

// with runs f with a client and closes it.
func with(ctx context.Context, connect func(context.Context) (*api.Client, error), f func(*api.Client) error) error {
	c, err := connect(ctx)
	if err != nil {
		return err
	}
	return errors.Join(f(c), c.Close())
}
