package container

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// runTry tries in a container what must not be possible, says what is, and returns
// 1 if anything is.
func runTry(w io.Writer) int {
	status := 0
	for _, t := range []struct {
		what string
		do   func() error
		want []unix.Errno
	}{
		{"write to the root", func() error { return touch("/ringfence-probe") }, []unix.Errno{unix.EROFS}},
		{"reach the network", connectOut, []unix.Errno{unix.ENETUNREACH, unix.EAFNOSUPPORT}},
		{"make a user namespace", func() error { return unix.Unshare(unix.CLONE_NEWUSER) }, []unix.Errno{unix.EPERM, unix.ENOSYS}},
		{"mount", func() error { return unix.Mount("none", "/nosuch", "tmpfs", 0, "") }, []unix.Errno{unix.EPERM}},
		{"become root", func() error { return unix.Setresuid(0, 0, 0) }, []unix.Errno{unix.EPERM}},
		{"read what the init was given", func() error { return peek("/proc/1/environ") }, []unix.Errno{unix.EACCES, unix.EPERM}},
	} {
		err := t.do()
		refused := false
		for _, e := range t.want {
			refused = refused || errors.Is(err, e)
		}
		if !refused {
			status = 1
			_, _ = fmt.Fprintf(w, "%s: %v; ", t.what, err) // the status says it as well
		}
	}
	return status
}

func touch(path string) error {
	fd, err := unix.Open(path, unix.O_CREAT|unix.O_WRONLY|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	return unix.Close(fd)
}

func peek(path string) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Read(fd, make([]byte, 1))
	return err
}

// connectOut tries an address that belongs to nobody (RFC 5737).
func connectOut() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return unix.Connect(fd, &unix.SockaddrInet4{Port: 9, Addr: [4]byte{192, 0, 2, 1}})
}
