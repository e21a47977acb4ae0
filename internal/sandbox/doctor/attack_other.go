//go:build !linux

package doctor

import (
	"errors"
	"io"
)

// Attack is the inside of a box: nothing is known of boxes here.
func Attack(string, io.Writer) error { return errors.ErrUnsupported }
