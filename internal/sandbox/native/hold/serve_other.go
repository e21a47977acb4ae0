//go:build !linux

package hold

import (
	"context"
	"errors"
)

// Serve needs the notifications of Linux.
func Serve(context.Context, int, Options) error {
	return errors.New("serving held files: only Linux hands calls over")
}
