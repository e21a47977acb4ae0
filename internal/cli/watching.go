package cli

import (
	"context"
	"errors"
	"time"

	"ringfence/internal/daemon/api"
)

// rewatch is how long nobody is watched when a connection was lost.
const rewatch = 250 * time.Millisecond

// watchQuestions is [api.Client.WatchQuestions] that goes on when the engine has ended or
// was replaced: lost is told first, and then the questions that are open come again. The
// next engine is started if there is none, as any other verb would.
func watchQuestions(ctx context.Context, client *api.Client, lost func(), each func(api.QuestionEvent) error) error {
	for {
		err := client.WatchQuestions(ctx, each)
		ended := errors.Is(err, api.ErrUnreachable) || errors.Is(err, &api.Error{Code: api.CodeStopping})
		if ctx.Err() != nil || !ended {
			return err
		}
		lost()
		again := time.NewTimer(rewatch)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return err
		}
	}
}
