package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/oauth"
	"ringfence/internal/mediator/remote"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// authorizing shows servers the tokens that "ringfence servers login" has obtained.
func authorizing(s mediator.Server, carrier http.RoundTripper) (remote.Authorizer, error) {
	return oauth.New(loginOptions(s, carrier))
}

// loginOptions are those of a process in which nobody agrees.
func loginOptions(s mediator.Server, carrier http.RoundTripper) oauth.Options {
	return oauth.Options{Server: s, Carrier: carrier, Store: oauth.Kept(engineRecords{}), Hold: holdLogin}
}

// engineRecords keeps tokens in the vault, through the engine. It connects for each
// request: there are a few in an hour.
type engineRecords struct{}

// Load implements [oauth.Records].
func (engineRecords) Load(ctx context.Context, name string) (value []byte, err error) {
	err = with(ctx, connect, func(c *api.Client) error {
		value, err = c.TokenLoad(ctx, name)
		return err
	})
	if errors.Is(err, api.ErrNotFound) {
		return nil, nil
	}
	return value, err
}

// Save implements [oauth.Records].
func (engineRecords) Save(ctx context.Context, name string, value []byte) error {
	return with(ctx, connect, func(c *api.Client) error { return c.TokenSave(ctx, name, value) })
}

// Delete implements [oauth.Records].
func (engineRecords) Delete(ctx context.Context, name string) error {
	return with(ctx, connect, func(c *api.Client) error { return c.TokenDelete(ctx, name) })
}

// holdPause is how long is waited before a lock that is held is tried again.
const holdPause = 50 * time.Millisecond

// holdLogin waits until no other process of this home renews the token of the server id.
func holdLogin(ctx context.Context, id string) (release func(), err error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	dir := filepath.Join(home, "logins")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("making the folder of locks: %w", err)
	}
	pause := time.NewTicker(holdPause)
	defer pause.Stop()
	for {
		lock, err := ipc.NewLock(filepath.Join(dir, id+".lock"))
		if err == nil {
			return func() { _ = lock.Unlock() }, nil // closing a file that was not written to
		}
		if !errors.Is(err, ipc.ErrLocked) {
			return nil, err
		}
		select {
		case <-pause.C:
		case <-ctx.Done():
			return nil, errors.New("another process renews it and does not end")
		}
	}
}
