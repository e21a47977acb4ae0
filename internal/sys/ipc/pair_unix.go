//go:build unix

package ipc

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
)

// Pair makes two ends of a connection: one for this process, and one to hand down to a
// child, who takes it with [Inherited].
func Pair() (own net.Conn, other *os.File, err error) {
	syscall.ForkLock.RLock()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err == nil {
		syscall.CloseOnExec(fds[0])
		syscall.CloseOnExec(fds[1])
	}
	syscall.ForkLock.RUnlock()
	if err != nil {
		return nil, nil, fmt.Errorf("making a pair of sockets: %w", err)
	}
	f, other := os.NewFile(uintptr(fds[0]), "pair"), os.NewFile(uintptr(fds[1]), "pair")
	own, err = net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("making a pair of sockets: %w", err), other.Close())
	}
	return own, other, nil
}

// Inherited is the connection that was handed down as descriptor fd.
func Inherited(fd uintptr) (net.Conn, error) {
	f := os.NewFile(fd, "inherited")
	if f == nil {
		return nil, fmt.Errorf("descriptor %d is none", fd)
	}
	c, err := net.FileConn(f)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("taking descriptor %d: %w", fd, err)
	}
	return c, nil
}
