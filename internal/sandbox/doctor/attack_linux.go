package doctor

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Attack is the inside of a box: it tries what told describes and writes the
// trials to out as JSON. It gets through or it does not; both are results.
func Attack(told string, out io.Writer) error {
	var w world
	if err := json.Unmarshal([]byte(told), &w); err != nil {
		return fmt.Errorf("reading what there is to attack: %w", err)
	}
	var all []Trial
	for _, a := range w.attacks() {
		err := a.try()
		all = append(all, Trial{Name: a.name, Attack: a.attack, Worked: err == nil, Answer: answer(err)})
	}
	return json.NewEncoder(out).Encode(all)
}

func answer(err error) string {
	var no syscall.Errno
	switch {
	case err == nil:
		return "it worked"
	case errors.As(err, &no):
		return no.Error()
	}
	return err.Error()
}

type attempt struct {
	name   string
	attack bool
	try    func() error
}

func (w world) attacks() []attempt {
	return append(append(w.onFiles(), w.onProcesses()...), w.harmless()...)
}

func (w world) onFiles() []attempt {
	return []attempt{
		{"read a file outside", true, func() error { return reads(w.File) }},
		{"read it through a link", true, func() error {
			link := filepath.Join(w.Workspace, "link")
			if err := os.Symlink(w.File, link); err != nil {
				return err
			}
			return reads(link)
		}},
		{"write a file outside", true, func() error {
			f, err := os.OpenFile(w.File, os.O_WRONLY|os.O_APPEND, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		}},
		{"see that it is there", true, func() error {
			_, err := os.Lstat(w.File)
			return err
		}},
		{"change its mode", true, func() error {
			return os.Chmod(w.File, 0o777) //nolint:gosec // G302: an attack, which is to fail
		}},
		{"link it into the workspace", true, func() error { return os.Link(w.File, filepath.Join(w.Workspace, "hard")) }},
		{"make a file beside it", true, func() error {
			return makes(filepath.Join(w.Dir, "new"))
		}},
		{"plant a git hook that the host would run", true, func() error {
			hooks := filepath.Join(w.Workspace, ".git", "hooks")
			if err := os.MkdirAll(hooks, 0o700); err != nil {
				return err
			}
			return makes(filepath.Join(hooks, "pre-commit"))
		}},
		{"plant settings that an agent on the host would obey", true, func() error {
			return makes(filepath.Join(w.Workspace, ".mcp.json"))
		}},
		{"plant them by a detour through /proc", true, func() error {
			return makes("/proc/self/cwd/.envrc")
		}},
		{"make a device", true, func() error {
			return unix.Mknod(filepath.Join(w.Workspace, "mem"), unix.S_IFCHR|0o600, int(unix.Mkdev(1, 1)))
		}},
	}
}

func makes(path string) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func reads(path string) error {
	b, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(b), secret) {
		err = errors.New("it is another file")
	}
	return err
}

func (w world) onProcesses() []attempt {
	null := func(nr, first uintptr) func() error {
		return func() error {
			if _, _, errno := unix.RawSyscall(nr, first, 0, 0); errno != 0 && errno != unix.EFAULT && errno != unix.EINVAL {
				return errno
			}
			return nil
		}
	}
	proc := "/proc/" + strconv.Itoa(w.PID)
	return []attempt{
		{"read the environment of who started it", true, func() error {
			b, err := os.ReadFile(proc + "/environ")
			if err == nil && len(b) == 0 {
				err = errors.New("it is empty")
			}
			if err == nil && os.Getpid() == w.PID {
				err = errors.New("it is its own")
			}
			return err
		}},
		{"signal who started it", true, func() error {
			if os.Getpid() == w.PID {
				return errors.New("that is its own number in the box")
			}
			return unix.Kill(w.PID, 0)
		}},
		{"trace a process", true, null(unix.SYS_PTRACE, unix.PTRACE_TRACEME)},
		{"make a user namespace", true, func() error { return unix.Unshare(unix.CLONE_NEWUSER) }},
		{"mount a file system", true, null(unix.SYS_MOUNT, 0)},
		{"load a program into the kernel", true, null(unix.SYS_BPF, 0)},
		{"make an io_uring", true, null(unix.SYS_IO_URING_SETUP, 1)},
		{"use the kernel's keyrings", true, null(unix.SYS_KEYCTL, 0)},
		{"connect to a socket outside", true, func() error { return connects(unix.AF_UNIX, &unix.SockaddrUnix{Name: w.Socket}) }},
		{"connect to an address of the network", true, func() error {
			// 192.0.2.1 is nobody's (RFC 5737): who can try, waits.
			err := connects(unix.AF_INET|unix.SOCK_NONBLOCK<<16, &unix.SockaddrInet4{Port: 80, Addr: [4]byte{192, 0, 2, 1}})
			if errors.Is(err, unix.EINPROGRESS) {
				return nil
			}
			return err
		}},
		{"find a descriptor that was left open", true, func() error {
			for fd := 3; fd < 64; fd++ {
				flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0)
				if err == nil && flags&unix.FD_CLOEXEC == 0 { // our own runtime's are closed on exec
					return nil
				}
			}
			return errors.New("there is none")
		}},
		{"gain privileges", true, func() error {
			no, err := unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
			if err == nil && no == 1 {
				err = errors.New("no_new_privs is set")
			}
			return err
		}},
	}
}

// connects tries a stream socket of a family; flags for the type are in the upper
// half of family.
func connects(family int, to unix.Sockaddr) error {
	fd, err := unix.Socket(family&0xffff, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|family>>16, 0)
	if err != nil {
		return err
	}
	return errors.Join(unix.Connect(fd, to), unix.Close(fd))
}

func (w world) harmless() []attempt {
	return []attempt{
		{"make and remove a directory in the workspace", false, func() error {
			dir := filepath.Join(w.Workspace, "dir")
			return errors.Join(os.Mkdir(dir, 0o700), os.Remove(dir))
		}},
		{"use a temporary file", false, func() error {
			f, err := os.CreateTemp("", "x")
			if err != nil {
				return err
			}
			return errors.Join(f.Close(), os.Remove(f.Name()))
		}},
		{"write to /dev/null", false, func() error {
			f, err := os.OpenFile("/dev/null", os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString("x")
			return errors.Join(err, f.Close())
		}},
		{"read random bytes", false, func() error { return readsSome("/dev/urandom") }},
		{"look at itself in /proc", false, func() error { return readsSome("/proc/self/status") }},
	}
}

func readsSome(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	_, err = f.Read(make([]byte, 16))
	return errors.Join(err, f.Close())
}
