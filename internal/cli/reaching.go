package cli

import (
	"context"

	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/remote"
	"ringfence/internal/sandbox"
)

// reaching starts servers in boxes, and reaches those that have a URL, with the tokens
// that there are for them; that nothing confines these is on record first.
func reaching(boxes mediator.Boxes, session *api.Session) mediator.Starter {
	o := remote.Options{Local: boxes, Authorize: authorizing}
	if session != nil {
		o.Record = func(ctx context.Context, server, line string, r sandbox.Report) error {
			return session.RecordBox(ctx, server, "", line, r)
		}
	}
	return remote.New(o)
}
