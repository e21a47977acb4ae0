//go:build !linux

package native

import (
	"io"
	"os"
)

// KeepImage keeps what boxes on Linux are started from; elsewhere there is no such thing.
func KeepImage() (io.Closer, error) { return nil, nil }

// ImageOf is nil: see [KeepImage].
func ImageOf(int) *os.File { return nil }
