package ipc

import (
	"syscall"

	"golang.org/x/sys/unix"
)

// privateSocket leaves the mode to the directory and to chmod: this system does
// not let a socket have a mode before it has a name.
func privateSocket(_, _ string, _ syscall.RawConn) error { return nil }

// peerOf knows the user and the process, not its session and terminal.
func peerOf(raw syscall.RawConn) (Peer, error) {
	var peer Peer
	var err error
	ctlErr := raw.Control(func(fd uintptr) {
		cred, e := unix.GetsockoptXucred(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERCRED)
		if e != nil {
			err = e
			return
		}
		peer.UID, peer.HasUID = cred.Uid, true
		if cred.Ngroups > 0 {
			peer.GID = cred.Groups[0]
		}
		if peer.PID, err = unix.GetsockoptInt(int(fd), unix.SOL_LOCAL, unix.LOCAL_PEERPID); err != nil {
			peer.PID, err = 0, nil
		}
	})
	if ctlErr != nil {
		err = ctlErr
	}
	return peer, err
}
