package ipc

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
)

// A Peer is the process at the other end of a connection: the one that called
// connect or, seen from a client, listen. The connection may since have been
// handed on to a child.
type Peer struct {
	PID      int
	UID, GID uint32 // valid only with HasUID
	HasUID   bool
	SID      int    // POSIX session (getsid)
	TTY      string // controlling terminal, "/dev/pts/3"; "" for none
	Exe      string // executable, "" where we may not look
	Known    bool   // SID and TTY are those of that process
}

// PeerOf asks the kernel who is at the other end of a Unix socket connection.
// HasUID and Known say which answers it gave; a process that is gone, or in
// another pid namespace, has Known false. An error means that conn is not such
// a connection.
func PeerOf(conn net.Conn) (Peer, error) {
	sc, ok := conn.(syscall.Conn)
	if _, unix := conn.(*net.UnixConn); !unix || !ok {
		return Peer{}, fmt.Errorf("identifying the peer: %T is not a Unix socket", conn)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return Peer{}, fmt.Errorf("identifying the peer: %w", err)
	}
	peer, err := peerOf(raw)
	if err != nil {
		return Peer{}, fmt.Errorf("identifying the peer: %w", err)
	}
	return peer, nil
}

// A procStat is what we use of /proc/<pid>/stat (proc_pid_stat(5)).
type procStat struct {
	sid   int
	tty   int    // device number; 0 for none
	start string // in clock ticks since boot
}

var errStat = errors.New("malformed /proc/<pid>/stat")

// parseStat reads the text of /proc/<pid>/stat. The name of the program, field
// 2, is in parentheses and may itself hold any bytes, so fields are counted
// from the last one.
func parseStat(text string) (procStat, error) {
	i := strings.LastIndexByte(text, ')')
	if i < 0 {
		return procStat{}, errStat
	}
	fields := strings.Fields(text[i+1:]) // fields[0] is field 3
	if len(fields) < 20 {
		return procStat{}, errStat
	}
	sid, err1 := strconv.Atoi(fields[3])
	tty, err2 := strconv.Atoi(fields[4])
	if err1 != nil || err2 != nil {
		return procStat{}, errStat
	}
	return procStat{sid: sid, tty: tty, start: fields[19]}, nil
}

// ttyName names the terminal with a device number as in field 7 of
// /proc/<pid>/stat: minor in bits 31 to 20 and 7 to 0, major in 15 to 8.
func ttyName(device int) string {
	d := uint32(device)
	major, minor := d>>8&0xff, d>>12&0xfff00|d&0xff
	switch {
	case d == 0:
		return ""
	case major >= 136 && major <= 143:
		return fmt.Sprintf("/dev/pts/%d", (major-136)<<8+minor)
	case major == 4 && minor < 64:
		return fmt.Sprintf("/dev/tty%d", minor)
	case major == 4:
		return fmt.Sprintf("/dev/ttyS%d", minor-64)
	}
	return fmt.Sprintf("device %d:%d", major, minor)
}

// parseEUID reads the effective user id from the text of /proc/<pid>/status.
func parseEUID(text string) (uint32, error) {
	_, rest, found := strings.Cut(text, "\nUid:")
	line, _, _ := strings.Cut(rest, "\n")
	fields := strings.Fields(line)
	if !found || len(fields) != 4 {
		return 0, errors.New("malformed /proc/<pid>/status")
	}
	uid, err := strconv.ParseUint(fields[1], 10, 32)
	if err != nil {
		return 0, fmt.Errorf("malformed /proc/<pid>/status: %w", err)
	}
	return uint32(uid), nil
}
