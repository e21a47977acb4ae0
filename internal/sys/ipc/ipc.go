// Package ipc is how processes of one user on one machine talk: Unix sockets,
// what the kernel says about who is at the other end, the lock that decides who
// listens, and frames.
//
// It knows no messages, and is not for other machines; other users are let in only by
// [ListenForOthers] and [DialOther].
//
// Invariants:
//
//	I1  Only the holder of a lock removes a socket that is in the way or
//	    listens in its place, so two processes never take turns stealing one.
//	I2  What [PeerOf] says comes from the kernel, never from the peer; what may
//	    belong to a later process with the same number is not said.
//	I3  No length on the wire makes a reader allocate more than it was told to,
//	    or more than was really sent by more than 1 MiB.
package ipc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
)

// A Listener is a listening Unix socket. Its Accept returns connections that
// [PeerOf] understands. Close removes the socket, and gives back the lock if
// [Listen] took it.
type Listener struct {
	net.Listener
	lock *Lock // nil unless ours to release
}

// Close stops listening.
func (l *Listener) Close() error {
	err := l.Listener.Close()
	if l.lock != nil {
		err = errors.Join(err, l.lock.Unlock())
	}
	return err
}

// Listen listens on a Unix socket at path, mode 0600, and makes its directory,
// mode 0700, if there is none. It holds a lock on path+".lock" until the
// listener is closed; the error is [ErrLocked] if another process does.
func Listen(path string) (*Listener, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	lock, err := NewLock(path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l, err := lock.Listen(path)
	if err != nil {
		return nil, errors.Join(err, lock.Unlock())
	}
	l.lock = lock
	return l, nil
}

// Listen is [Listen] under a lock that the caller already holds and keeps, and
// that every process listening on path must hold.
func (k *Lock) Listen(path string) (*Listener, error) {
	if err := checkDir(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	if err := removeStale(path); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	config := net.ListenConfig{Control: privateSocket}
	l, err := config.Listen(context.Background(), "unix", path)
	if err != nil {
		return nil, err // net says "listen unix path"
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, err), l.Close())
	}
	return &Listener{Listener: l}, nil
}

// ListenForOthers is [Listen] on a socket that every user can connect to who can enter
// its directory, which must be there. Only this user and root may be able to put another
// directory or socket in the place of one on the way to it: that it is theirs, and not
// writable for others, is checked from / down, through links. Who accepts asks [PeerOf]
// which user that is.
func ListenForOthers(path string) (*Listener, error) {
	if err := checkWay(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("listening on %s: %w", path, err)
	}
	l, err := Listen(path)
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(path, 0o666); err != nil { //nolint:gosec // that is what it is for
		return nil, errors.Join(fmt.Errorf("listening on %s: %w", path, err), l.Close())
	}
	return l, nil
}

// checkDir makes dir, or refuses one in which others could replace the socket.
func checkDir(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if checksMode && fi.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("others may write to %s (mode %04o; run chmod go-w)", dir, fi.Mode().Perm())
	}
	return nil
}

// maxLinks is how many links a way has at most, as in the kernel.
const maxLinks = 40

// checkWay refuses an absolute dir if others could replace it, or a directory or link on
// the way to it: what is in a directory with the sticky bit only its owner can.
func checkWay(dir string) error {
	if !filepath.IsAbs(dir) {
		return fmt.Errorf("%s is no absolute path", dir)
	}
	at, rest, links := dir, []string(nil), 0
	for at != filepath.Dir(at) {
		rest = append([]string{filepath.Base(at)}, rest...)
		at = filepath.Dir(at)
	}
	root := at
	for ; ; rest = rest[1:] {
		fi, err := os.Lstat(at)
		if err != nil {
			return err
		}
		link := fi.Mode().Type() == fs.ModeSymlink
		if uid, ok := fileOwner(fi); ok && uid != 0 && uid != os.Geteuid() {
			return fmt.Errorf("%s belongs to another user (%d), who could replace what is in it", at, uid)
		}
		if checksMode && !link && fi.Mode().Perm()&0o022 != 0 && fi.Mode()&fs.ModeSticky == 0 {
			return fmt.Errorf("others may write to %s (mode %04o; run chmod go-w)", at, fi.Mode().Perm())
		}
		if link {
			target, err := os.Readlink(at)
			if links++; err != nil || links > maxLinks {
				return errors.Join(fmt.Errorf("following the link %s", at), err)
			}
			rest = append(strings.Split(target, "/"), rest...)
			if at = filepath.Dir(at); filepath.IsAbs(target) {
				at = root
			}
		}
		if len(rest) == 0 {
			return nil
		}
		at = filepath.Join(at, rest[0])
	}
}

// removeStale removes a socket at path that nobody can be listening on, because
// we hold the lock (I1). Anything but a socket stays, and is an error.
func removeStale(path string) error {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if fi.Mode().Type() != fs.ModeSocket {
		return fmt.Errorf("something that is not a socket is in the way (%v)", fi.Mode())
	}
	return os.Remove(path)
}

// ErrStranger marks a socket whose listener runs as another user. Nothing has
// been sent to it.
var ErrStranger = errors.New("the socket belongs to another user")

// ErrApart marks a socket whose listener is in other namespaces than we are, such as
// a program in a box, or cannot be seen to be in ours. Nothing has been sent to it.
var ErrApart = errors.New("who listens there cannot be told from a program in a box")

// DialOther connects to the socket at path, whoever listens there, and says who does:
// nothing may be sent that this user must not have.
func DialOther(ctx context.Context, path string) (net.Conn, Peer, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, Peer{}, err
	}
	peer, err := PeerOf(conn)
	if err != nil {
		return nil, Peer{}, errors.Join(fmt.Errorf("connecting to %s: %w", path, err), conn.Close())
	}
	return conn, peer, nil
}

// Dial connects to the Unix socket at path. The error is [ErrStranger] if the
// kernel says that another user listens there, and [ErrApart] if it does not say that
// the process which listens is in our user and pid namespaces: a program in a box has our
// user, too.
func Dial(ctx context.Context, path string) (net.Conn, error) {
	conn, _, err := DialOwn(ctx, path)
	return conn, err
}

// DialOwn is [Dial], and says who listens.
func DialOwn(ctx context.Context, path string) (net.Conn, Peer, error) {
	conn, peer, err := DialOther(ctx, path)
	if err != nil {
		return nil, Peer{}, err
	}
	if peer.HasUID && peer.UID != uint32(os.Geteuid()) {
		err = fmt.Errorf("%w (%d)", ErrStranger, peer.UID)
	} else {
		err = beside(conn, peer.PID)
	}
	if err != nil {
		return nil, Peer{}, errors.Join(fmt.Errorf("connecting to %s: %w", path, err), conn.Close())
	}
	return conn, peer, nil
}
