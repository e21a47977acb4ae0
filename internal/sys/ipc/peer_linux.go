package ipc

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// privateSocket sets the mode that the socket file will get, so that there is
// no moment at which others could connect.
func privateSocket(_, _ string, c syscall.RawConn) error {
	var err error
	if e := c.Control(func(fd uintptr) { err = unix.Fchmod(int(fd), 0o600) }); e != nil {
		return e
	}
	return err
}

func peerOf(raw syscall.RawConn) (Peer, error) {
	var cred *unix.Ucred
	var credErr, pidfdErr error
	pidfd := -1
	err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
		pidfd, pidfdErr = unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PEERPIDFD)
	})
	if err := errors.Join(err, credErr); err != nil {
		return Peer{}, err
	}
	peer := Peer{PID: int(cred.Pid), UID: cred.Uid, GID: cred.Gid, HasUID: true}
	switch {
	case pidfdErr == nil:
		defer unix.Close(pidfd)
		describe(&peer, func() bool { return alive(pidfd) })
	case errors.Is(pidfdErr, unix.ENOPROTOOPT): // Linux before 6.5
		describe(&peer, func() bool { return true })
	}
	return peer, nil
}

// alive reports whether the process of pidfd has not ended. While it has not,
// its number is not used again.
func alive(pidfd int) bool {
	fds := []unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}
	for {
		n, err := unix.Poll(fds, 0)
		if !errors.Is(err, unix.EINTR) {
			return err == nil && n == 0
		}
	}
}

// describe fills in what /proc says of p.PID, if afterwards it is still the
// same process (I2): still alive by its pidfd where there is one; in any case
// owned by the same user and started at the same moment before and after.
func describe(p *Peer, alive func() bool) {
	if p.PID <= 0 {
		return
	}
	dir := "/proc/" + strconv.Itoa(p.PID)
	before, err := readStat(dir)
	if err != nil {
		return
	}
	exe, err := os.Readlink(dir + "/exe")
	if err != nil {
		exe = ""
	}
	owner, err := ownerOf(dir)
	if err != nil || owner != p.UID {
		return
	}
	after, err := readStat(dir)
	if err != nil || after != before || !alive() {
		return
	}
	p.SID, p.TTY, p.Exe, p.Known = after.sid, ttyName(after.tty), exe, true
}

// ownerOf returns the effective user of the process at dir. The owner of the
// directory itself will not do: it is root for a process that cannot be dumped.
func ownerOf(dir string) (uint32, error) {
	text, err := os.ReadFile(dir + "/status")
	if err != nil {
		return 0, err
	}
	return parseEUID(string(text))
}

func readStat(dir string) (procStat, error) {
	text, err := os.ReadFile(dir + "/stat")
	if err != nil {
		return procStat{}, fmt.Errorf("reading process: %w", err)
	}
	return parseStat(string(text))
}
