package landlock

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// call makes the call that line of a case names, and returns what the kernel says.
func call(line string) error {
	w := strings.Fields(line)
	if f, ok := fileCalls[w[0]]; ok {
		var args [2]string
		copy(args[:], w[1:])
		return f(args[0], args[1])
	}
	var n int
	if len(w) > 1 && w[0] != "connect-abstract" && w[0] != "send-abstract" {
		var err error
		if n, err = strconv.Atoi(w[1]); err != nil {
			return err
		}
	}
	switch w[0] {
	case "bind-tcp":
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, 0, func(fd int) error {
			return unix.Bind(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
		})
	case "connect-tcp", "connect-mptcp":
		protocol := 0
		if w[0] == "connect-mptcp" {
			protocol = unix.IPPROTO_MPTCP
		}
		return withSocket(unix.AF_INET, unix.SOCK_STREAM, protocol, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrInet4{Port: n, Addr: [4]byte{127, 0, 0, 1}})
		})
	case "connect-tcp6":
		return withSocket(unix.AF_INET6, unix.SOCK_STREAM, 0, func(fd int) error {
			return unix.Connect(fd, &unix.SockaddrInet6{Port: n, Addr: [16]byte{15: 1}})
		})
	case "bind-udp", "connect-udp", "send-udp", "bound-send-udp":
		return withSocket(unix.AF_INET, unix.SOCK_DGRAM, 0, func(fd int) error { return udp(fd, w[0], n, w[2:]) })
	case "connect-abstract":
		return connectUnix(w[1])
	case "send-abstract":
		return withSocket(unix.AF_UNIX, unix.SOCK_DGRAM, 0, func(fd int) error {
			return unix.Sendto(fd, []byte("x"), 0, &unix.SockaddrUnix{Name: w[1] + "-datagrams"})
		})
	case "signal":
		return unix.Kill(n, 0)
	case "pidfd-signal":
		fd, err := unix.PidfdOpen(n, 0)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.PidfdSendSignal(fd, 0, nil, 0)
	case "ptrace":
		if err := unix.PtraceAttach(n); err != nil {
			return err
		}
		_, err := unix.Wait4(n, nil, unix.WALL, nil)
		return errors.Join(err, unix.PtraceDetach(n))
	default:
		return ownCall(w[0])
	}
}

func udp(fd int, what string, port int, more []string) error {
	at := &unix.SockaddrInet4{Port: port, Addr: [4]byte{127, 0, 0, 1}}
	switch what {
	case "bind-udp":
		return unix.Bind(fd, at)
	case "connect-udp":
		return unix.Connect(fd, at)
	case "bound-send-udp": // a socket that is not bound would have to be
		if err := unix.Bind(fd, at); err != nil {
			return err
		}
		to, err := strconv.Atoi(more[0])
		if err != nil {
			return err
		}
		at = &unix.SockaddrInet4{Port: to, Addr: at.Addr}
	}
	return unix.Sendto(fd, []byte("x"), 0, at)
}

// ownCall makes the calls about the process itself.
func ownCall(name string) error {
	switch name {
	case "own-abstract":
		return ownSocket(fmt.Sprintf("@own-%d", os.Getpid()), "")
	case "signal-self":
		return unix.Kill(os.Getpid(), 0)
	case "signal-own": // another thread, that is not restricted
		id, done := make(chan int), make(chan bool)
		defer close(done)
		go func() {
			runtime.LockOSThread()
			id <- unix.Gettid()
			<-done
		}()
		return unix.Tgkill(os.Getpid(), <-id, 0)
	case "memfd":
		fd, err := unix.MemfdCreate("x", unix.MFD_CLOEXEC)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		return unix.Ftruncate(fd, 100)
	case "pipe-reopen":
		var p [2]int
		if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
			return err
		}
		return opened("/proc/self/fd/"+strconv.Itoa(p[0]), unix.O_RDONLY|unix.O_NONBLOCK)
	}
	return fmt.Errorf("no call %q", name)
}

var fileCalls = map[string]func(a, b string) error{
	"stat":          func(a, _ string) error { return unix.Stat(a, new(unix.Stat_t)) },
	"read":          func(a, _ string) error { return opened(a, unix.O_RDONLY) },
	"write":         func(a, _ string) error { return opened(a, unix.O_WRONLY) },
	"append":        func(a, _ string) error { return opened(a, unix.O_WRONLY|unix.O_APPEND) },
	"open-truncate": func(a, _ string) error { return opened(a, unix.O_WRONLY|unix.O_TRUNC) },
	"create":        func(a, _ string) error { return opened(a, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL) },
	"list":          func(a, _ string) error { return opened(a, unix.O_RDONLY|unix.O_DIRECTORY) },
	"truncate":      func(a, _ string) error { return unix.Truncate(a, 1) },
	"connect-unix":  func(a, _ string) error { return connectUnix(a) },
	"own-unix":      ownSocket,
	"mkdir":         func(a, _ string) error { return unix.Mkdir(a, 0o755) },
	"rmdir":         func(a, _ string) error { return unix.Rmdir(a) },
	"mkfifo":        func(a, _ string) error { return unix.Mkfifo(a, 0o644) },
	"mksock":        func(a, _ string) error { return unix.Mknod(a, unix.S_IFSOCK|0o644, 0) },
	"mkchar":        func(a, _ string) error { return unix.Mknod(a, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))) },
	"mkblock":       func(a, _ string) error { return unix.Mknod(a, unix.S_IFBLK|0o644, int(unix.Mkdev(7, 0))) },
	"symlink":       unix.Symlink,
	"link":          unix.Link,
	"rename":        unix.Rename,
	"exchange": func(a, b string) error {
		return unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE)
	},
	"unlink":   func(a, _ string) error { return unix.Unlink(a) },
	"chmod":    func(a, _ string) error { return unix.Chmod(a, 0o600) },
	"utimes":   func(a, _ string) error { return unix.Utimes(a, make([]unix.Timeval, 2)) },
	"readlink": func(a, _ string) error { _, err := unix.Readlink(a, make([]byte, 100)); return err },
	// The kernel looks the file system up after it asked its security modules.
	"mount": func(a, _ string) error { return unix.Mount("none", a, "nosuchfs", 0, "") },
	"exec":  func(a, _ string) error { return unix.Exec(a, []string{a}, nil) },
	"ioctl": func(a, _ string) error {
		fd, err := unix.Open(a, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening: %w", err)
		}
		defer unix.Close(fd)
		_, err = unix.IoctlGetTermios(fd, unix.TCGETS)
		return err
	},
	"reopen-write": func(a, _ string) error {
		fd, err := unix.Open(a, unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("opening: %w", err)
		}
		defer unix.Close(fd)
		return opened("/proc/self/fd/"+strconv.Itoa(fd), unix.O_WRONLY)
	},
}

func connectUnix(name string) error {
	return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error {
		return unix.Connect(fd, &unix.SockaddrUnix{Name: name})
	})
}

// ownSocket connects to a socket that is made under the same rules.
func ownSocket(name, _ string) error {
	return withSocket(unix.AF_UNIX, unix.SOCK_STREAM, 0, func(fd int) error {
		return cmp.Or(unix.Bind(fd, &unix.SockaddrUnix{Name: name}), unix.Listen(fd, 1), connectUnix(name))
	})
}

func opened(name string, flags int) error {
	fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		err = unix.Close(fd)
	}
	return err
}

func withSocket(family, kind, protocol int, f func(fd int) error) error {
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC, protocol)
	if err != nil {
		return fmt.Errorf("socket: %w", err)
	}
	defer unix.Close(fd)
	return f(fd)
}
