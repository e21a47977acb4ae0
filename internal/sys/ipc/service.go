package ipc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
)

// DialService connects to the Unix socket at path of a service of this machine,
// such as a container engine, that root or our own user runs. The error is
// [ErrStranger] if the kernel says that somebody else listens there. Where the
// kernel does not tell, only the directory of the socket protects us.
func DialService(ctx context.Context, path string) (*net.UnixConn, error) {
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, err
	}
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %T is not a Unix socket", path, c), c.Close())
	}
	peer, err := PeerOf(conn)
	if err == nil && peer.HasUID && peer.UID != 0 && peer.UID != uint32(os.Geteuid()) {
		err = fmt.Errorf("%w (%d)", ErrStranger, peer.UID)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connecting to %s: %w", path, err), conn.Close())
	}
	return conn, nil
}
