//go:build !unix

package ipc

import (
	"errors"
	"net"
	"os"
)

// Pair is not to be had here.
func Pair() (net.Conn, *os.File, error) { return nil, nil, errors.ErrUnsupported }

// Inherited is not to be had here.
func Inherited(uintptr) (net.Conn, error) { return nil, errors.ErrUnsupported }
