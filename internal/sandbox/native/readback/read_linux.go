package readback

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// maxFile bounds what is read of one file. The largest is mountinfo: a namespace
// holds 100,000 mounts at most by default (fs.mount-max), of some 150 bytes each.
const maxFile = 32 << 20

// namespaces are the links under /proc/<pid>/ns that are read. pid and time stand
// for those of the process, pid_for_children and time_for_children for what it
// starts.
var namespaces = []string{"cgroup", "ipc", "mnt", "net", "pid", "pid_for_children", "time", "time_for_children", "user", "uts"}

// Read states the facts about the process with the number pid in the namespace of
// the caller's /proc. Errors wrap ErrGone when there is none, or no more. What the
// caller may not see of a process that he may see is in Facts.Hidden.
func Read(pid int) (Facts, error) {
	d, err := openProcess(pid)
	if err != nil {
		return Facts{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	defer unix.Close(int(d))
	f, err := d.facts(pid)
	if err != nil {
		return Facts{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	return f, nil
}

// ReadPidfd states the facts about the process behind pidfd. No other process can
// take its number meanwhile.
func ReadPidfd(pidfd int) (Facts, error) {
	pid, err := pidOf(pidfd)
	if err != nil {
		return Facts{}, fmt.Errorf("reading process of descriptor %d: %w", pidfd, err)
	}
	d, err := openProcess(pid)
	if err != nil {
		return Facts{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	defer unix.Close(int(d))
	// The number was still its own after the directory was opened, so the directory
	// is its own too, and stays so.
	if err := unix.PidfdSendSignal(pidfd, 0, nil, 0); err != nil && err != unix.EPERM {
		return Facts{}, fmt.Errorf("reading process %d: %w", pid, gone(err))
	}
	f, err := d.facts(pid)
	if err != nil {
		return Facts{}, fmt.Errorf("reading process %d: %w", pid, err)
	}
	return f, nil
}

// pidOf reads the "Pid:" line of pidfd_open(2).
func pidOf(pidfd int) (int, error) {
	text, err := os.ReadFile("/proc/self/fdinfo/" + strconv.Itoa(pidfd))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(line, "Pid:\t"); ok {
			switch value {
			case "-1\n":
				return 0, ErrGone
			case "0\n":
				return 0, errors.New("the process is in no namespace that is seen from here")
			}
			v, err := number(strings.TrimSuffix(value, "\n"), 31)
			return int(v), err
		}
	}
	return 0, errors.New("the descriptor is not of a process")
}

// A process is an open directory /proc/<pid>. The kernel ties it to the process, not
// to its number: once the process is reaped, everything in it is ESRCH or ENOENT.
type process int

func openProcess(pid int) (process, error) {
	if pid <= 0 {
		return 0, errors.New("not a process number")
	}
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid), unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, gone(err)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.PROC_SUPER_MAGIC {
		unix.Close(fd)
		return 0, errors.Join(errors.New("/proc is not a proc file system"), err)
	}
	return process(fd), nil
}

func (d process) facts(pid int) (Facts, error) {
	f, owner, err := d.status()
	if err != nil {
		return Facts{}, err
	}
	if f.PID != pid {
		return Facts{}, fmt.Errorf("status is of process %d", f.PID)
	}
	f.Dumpable = dumpable(owner, f.UID[1])
	f.Hidden = map[string]error{}
	for _, part := range []struct {
		name string
		read func() error
	}{
		{"namespaces", func() (err error) { f.Namespaces, err = d.namespaces(); return }},
		{"limits", func() (err error) { f.Limits, err = parsed(d, "limits", parseLimits); return }},
		{"cgroups", func() (err error) { f.Cgroups, err = parsed(d, "cgroup", parseCgroups); return }},
		{"mounts", func() (err error) { f.Mounts, err = parsed(d, "mountinfo", parseMounts); return }},
		{"root", func() (err error) { f.Root, err = d.link("root"); return }},
		// Last, because of all these a process that ends loses its directories first
		// (kernel/exit.c, do_exit), before it shows as a zombie: with this there, what
		// was read before is whole.
		{"cwd", func() (err error) { f.Cwd, err = d.link("cwd"); return }},
	} {
		err := part.read()
		if errors.Is(err, unix.EACCES) || errors.Is(err, unix.EPERM) {
			f.Hidden[part.name] = err
			continue
		}
		if err != nil {
			return Facts{}, gone(err)
		}
	}
	return f, nil
}

func (d process) status() (f Facts, owner uint32, err error) {
	text, owner, err := d.read("status")
	if err != nil {
		return Facts{}, 0, err
	}
	f, err = parseStatus(text)
	if err != nil {
		return Facts{}, 0, err
	}
	if f.State == 'Z' || f.State == 'X' {
		return Facts{}, 0, fmt.Errorf("%w (state %c)", ErrGone, f.State)
	}
	return f, owner, nil
}

// dumpable tells from the owner of the files under /proc/<pid>: those of a process
// that must not be dumped belong to the root of its user namespace, or to the
// machine's, instead of its effective user (proc(5); fs/proc/base.c,
// task_dump_owner). For a process of that root it does not show.
func dumpable(owner, effective uint32) Tri {
	switch {
	case owner != effective:
		return No
	case effective != 0:
		return Yes
	}
	return Unknown
}

func (d process) namespaces() (map[string]uint64, error) {
	all := map[string]uint64{}
	for _, name := range namespaces {
		text, err := d.link("ns/" + name)
		if errors.Is(err, unix.ENOENT) {
			continue // this kernel was built without it
		}
		if err != nil {
			return nil, err
		}
		if all[name], err = parseLink(text); err != nil {
			return nil, err
		}
	}
	if len(all) == 0 {
		return nil, errors.New("there are no namespaces")
	}
	return all, nil
}

func parsed[T any](d process, name string, parse func(string) (T, error)) (T, error) {
	text, _, err := d.read(name)
	if err != nil {
		var zero T
		return zero, err
	}
	return parse(text)
}

// read returns the text and the owner of a file in d.
func (d process) read(name string) (text string, owner uint32, err error) {
	fd, err := unix.Openat(int(d), name, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", 0, fmt.Errorf("%s: %w", name, gone(err))
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return "", 0, fmt.Errorf("%s: %w", name, gone(err))
	}
	buf := make([]byte, 0, 8<<10)
	for len(buf) <= maxFile {
		if cap(buf)-len(buf) < 4<<10 {
			buf = slices.Grow(buf, cap(buf))
		}
		n, err := unix.Read(fd, buf[len(buf):cap(buf)])
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			return "", 0, fmt.Errorf("%s: %w", name, gone(err))
		case n == 0:
			return string(buf), st.Uid, nil
		default:
			buf = buf[:len(buf)+n]
		}
	}
	return "", 0, fmt.Errorf("%s: longer than %d bytes", name, maxFile)
}

// maxLink is the longest target of a link that the kernel prints: a page.
const maxLink = 64 << 10

func (d process) link(name string) (string, error) {
	for size := 256; size <= maxLink; size *= 16 {
		buf := make([]byte, size)
		n, err := unix.Readlinkat(int(d), name, buf)
		if err != nil {
			return "", fmt.Errorf("%s: %w", name, err)
		}
		if n < size {
			return string(buf[:n]), nil
		}
	}
	return "", fmt.Errorf("%s: its target is longer than %d bytes", name, maxLink)
}

// gone turns what the kernel says of a process that has ended into ErrGone. EINVAL is
// what mountinfo answers when its mounts are given up, ENOENT what links answer.
func gone(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EINVAL) {
		return fmt.Errorf("%w: %w", ErrGone, err)
	}
	return err
}
