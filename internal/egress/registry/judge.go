package registry

import (
	"context"

	"ringfence/internal/act"
)

// A Judge decides what may be installed, and has it on record when it returns.
// Errors that are a [*DeniedError] are for the client to see; any other is a failure.
type Judge interface {
	// Offered decides reading, at the address at, what versions of a package there are,
	// and returns which of offers must not be shown, by their place. A package without
	// version stands for whether there could be one that may be installed.
	Offered(ctx context.Context, at string, offers []act.Resource) (withheld []int, err error)
	// Install decides installing pkg from the address at. done takes what came of it.
	Install(ctx context.Context, at string, pkg act.Resource) (done func(Outcome), err error)
	// Pass decides reading what names no package, such as a signed index.
	Pass(ctx context.Context, at string) (done func(Outcome), err error)
	// Refuse puts on record what is no read of a package, and why it was refused.
	Refuse(ctx context.Context, at, why string)
}

// An Outcome is what came of a request that was allowed.
type Outcome struct {
	Status int    // what the registry answered; 0: nothing
	Bytes  int64  // of the body, as far as they were handed on
	Error  string // "" if all of it was
}

// A DeniedError says no, in words for the client.
type DeniedError struct{ Reason string }

// Error returns the reason.
func (d *DeniedError) Error() string { return d.Reason }
