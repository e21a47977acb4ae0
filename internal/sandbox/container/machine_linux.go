package container

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// kernelRelease returns the release of our kernel, as uname -r has it.
func kernelRelease() string {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return ""
	}
	return unix.ByteSliceToString(u.Release[:])
}

// ownProgram is the running program, also where its file has been replaced since, or lies
// where we may not look.
func ownProgram() (string, error) { return "/proc/self/exe", nil }

func startCommands(kind Runtime, own bool) string {
	unit := "docker"
	if kind == RuntimePodman {
		unit = "podman.socket"
	}
	if own {
		return "systemctl --user start " + unit
	}
	return "sudo systemctl start " + unit
}

// mostFiles returns our hard limit of descriptors: more, an engine may not be
// allowed to give.
func mostFiles() int64 {
	const usual = 1 << 20
	var l unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &l) != nil || l.Max > usual {
		return usual
	}
	return int64(l.Max)
}

// identify returns the labels that say who we are, so that a later process can
// tell whether we live.
func identify() (owner, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return owner{}, fmt.Errorf("identifying this process: %w", err)
	}
	start, err := startOf(os.Getpid())
	if err != nil {
		return owner{}, fmt.Errorf("identifying this process: %w", err)
	}
	space, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return owner{}, fmt.Errorf("identifying this process: %w", err)
	}
	return owner{pid: os.Getpid(), boot: strings.TrimSpace(string(boot)), start: start, space: space}, nil
}

// startOf returns when a process started, in clock ticks since boot: field 22 of
// /proc/<pid>/stat (proc_pid_stat(5)). The name, field 2, may hold anything.
func startOf(pid int) (string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	if len(fields) < 20 {
		return "", syscall.EINVAL
	}
	if fields[0] == "Z" || fields[0] == "X" { // it has ended, and nobody has asked yet how
		return "", syscall.ESRCH
	}
	return fields[19], nil
}

// lives reports whether a process of this boot and this pid namespace does.
func (o owner) lives() bool {
	start, err := startOf(o.pid)
	return err == nil && start == o.start
}

// A fileID is what tells two files of one kernel apart.
type fileID struct{ Dev, Ino uint64 }

// openFile opens path for its identity alone, without following a last link.
func openFile(path string) (*os.File, fileID, os.FileInfo, error) {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fileID{}, nil, &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	fi, err := f.Stat()
	if err != nil {
		f.Close()
		return nil, fileID{}, nil, err
	}
	return f, idOf(fi), fi, nil
}

func idOf(fi os.FileInfo) fileID {
	st, ok := fi.Sys().(*syscall.Stat_t)
	if !ok {
		return fileID{}
	}
	return fileID{Dev: st.Dev, Ino: st.Ino}
}
