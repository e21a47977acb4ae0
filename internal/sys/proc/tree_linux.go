package proc

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// Rounds of freezing before we kill what we have: a tree that still grows after
// that many is forking faster than it can be read.
const maxRounds = 64

// stat is what one line of /proc/<pid>/stat says that we need.
type stat struct {
	pid, parent, group, session int
	zombie                      bool
	started                     string // clock ticks since boot; with pid it names a process for good
}

// held is a process that we froze and hold by descriptor, so that its number
// cannot pass to another before we kill it.
type held struct {
	fd int
}

// KillTree ends process pid and everything that belongs to it: its descendants,
// the members of its process group, and the members of its session.
//
// All are stopped first, again and again until no new one appears, so that none
// can fork while we count; then all are killed. What left both group and session
// and lost its parents beforehand is not found: that is what boxes with a process
// namespace or cgroup are for. It returns nil when nothing of the tree is left.
//
// pid must be a child of ours that was not reaped (see [AwaitExit]); otherwise its
// number may name a stranger.
func KillTree(pid int) error {
	if pid <= 1 || pid == os.Getpid() {
		return fmt.Errorf("ending process %d: refused", pid)
	}
	seen := map[stat]held{}
	defer func() {
		for _, h := range seen {
			unix.Close(h.fd)
		}
	}()
	for range maxRounds {
		n, err := freeze(pid, seen)
		if err != nil {
			return fmt.Errorf("ending process %d: %w", pid, err)
		}
		if n == 0 {
			break
		}
	}
	var errs []error
	for s, h := range seen {
		if err := unix.PidfdSendSignal(h.fd, unix.SIGKILL, nil, 0); err != nil && err != unix.ESRCH {
			errs = append(errs, fmt.Errorf("ending process %d: %w", s.pid, err))
		}
	}
	return errors.Join(errs...)
}

// AwaitExit blocks until our child pid has ended, and does not reap it: its number
// stays taken, so [KillTree] can still be told to end what it left behind.
func AwaitExit(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return fmt.Errorf("waiting for process %d: %w", pid, err)
		}
	}
}

// freeze stops every member of the tree that is not in seen, adds it there, and
// returns how many there were.
func freeze(root int, seen map[stat]held) (int, error) {
	all, err := processes()
	if err != nil {
		return 0, err
	}
	n := 0
	for _, s := range members(all, root) {
		if _, ok := seen[s.key()]; ok || s.zombie || s.pid == os.Getpid() || s.pid == 1 {
			continue
		}
		fd, err := unix.PidfdOpen(s.pid, 0)
		if err == unix.ESRCH {
			continue
		}
		if err != nil {
			return n, err
		}
		if now, ok := readStat(strconv.Itoa(s.pid)); !ok || now.started != s.started {
			unix.Close(fd)
			continue
		}
		seen[s.key()] = held{fd}
		n++
		if err := unix.PidfdSendSignal(fd, unix.SIGSTOP, nil, 0); err != nil && err != unix.ESRCH {
			return n, err
		}
	}
	return n, nil
}

// key is s reduced to what names the process.
func (s stat) key() stat { return stat{pid: s.pid, started: s.started} }

// members returns the processes of all that are root, descend from it, or share
// its group or session number.
func members(all []stat, root int) []stat {
	in := map[int]bool{root: true}
	for grew := true; grew; {
		grew = false
		for _, s := range all {
			if !in[s.pid] && (in[s.parent] || s.group == root || s.session == root) {
				in[s.pid], grew = true, true
			}
		}
	}
	var out []stat
	for _, s := range all {
		if in[s.pid] {
			out = append(out, s)
		}
	}
	return out
}

func processes() ([]stat, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var all []stat
	for _, n := range names {
		if n[0] < '1' || n[0] > '9' {
			continue
		}
		if s, ok := readStat(n); ok {
			all = append(all, s)
		}
	}
	return all, nil
}

// readStat reads /proc/<pid>/stat (proc_pid_stat(5)). The second field is the
// program's name in parentheses, which may hold spaces and parentheses itself,
// so fields are counted from the last one.
func readStat(pid string) (stat, bool) {
	b, err := os.ReadFile("/proc/" + pid + "/stat")
	if err != nil {
		return stat{}, false
	}
	return parseStat(b)
}

func parseStat(b []byte) (stat, bool) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return stat{}, false
	}
	f := bytes.Fields(b[end+1:])
	if len(f) < 20 {
		return stat{}, false
	}
	num := func(b []byte) int {
		n, err := strconv.Atoi(string(b))
		if err != nil {
			return -1
		}
		return n
	}
	s := stat{
		pid:     num(bytes.TrimSpace(b[:open])),
		zombie:  f[0][0] == 'Z' || f[0][0] == 'X',
		parent:  num(f[1]),
		group:   num(f[2]),
		session: num(f[3]),
		started: string(f[19]),
	}
	return s, s.pid > 0
}

// SealDescriptors marks every descriptor above 2 close-on-exec. The runtime opens
// its own that way; those that our parent left open would otherwise pass to every
// child. Descriptors handed down on purpose are not affected: the runtime
// duplicates them in the child. Needs Linux 5.11 for the fast way.
func SealDescriptors() error {
	if unix.CloseRange(3, math.MaxUint32, unix.CLOSE_RANGE_CLOEXEC) == nil {
		return nil
	}
	d, err := os.Open("/proc/self/fd")
	if err != nil {
		return fmt.Errorf("sealing descriptors: %w", err)
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return fmt.Errorf("sealing descriptors: %w", err)
	}
	for _, n := range names {
		if fd, err := strconv.Atoi(n); err == nil && fd > 2 {
			unix.CloseOnExec(fd)
		}
	}
	return nil
}
