package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
	"ringfence/internal/sandbox/native/landlock"
)

// A plain box has no namespaces. Landlock and the filter of system calls alone must do
// what its Spec says; where they cannot, there is no box.

// plainABI is the version of Landlock that a plain box needs: the first that holds
// back truncation (3), and signals and sockets that lead outside (6).
const plainABI = 6

// accounts are what a plain box sees of /etc that other boxes have made up for them,
// and what programs will not go on without if it is there and cannot be read.
var accounts = []string{"/etc/passwd", "/etc/group", "/etc/nsswitch.conf", "/etc/hosts", "/etc/localtime", "/etc/gitconfig"}

// harmless are the files of /proc that a plain box may read: those about the machine
// that runtimes size themselves by. The directories of processes are not among them.
var harmless = []string{
	"/proc/cpuinfo", "/proc/filesystems", "/proc/loadavg", "/proc/meminfo", "/proc/stat", "/proc/uptime", "/proc/version",
	"/proc/sys/kernel/osrelease", "/proc/sys/kernel/random", "/proc/sys/vm/overcommit_memory",
}

// A lackError says what a plain box cannot do, and how a full one is to be had.
type lackError struct {
	what    string
	because error
}

func (e *lackError) Error() string {
	return fmt.Sprintf("%s needs user namespaces, which are not to be had here (%v); allow them: %s", e.what, e.because, howToNamespaces())
}

func (e *lackError) Unwrap() error { return e.because }

// howToNamespaces looks for the switch that is off.
func howToNamespaces() string {
	for _, s := range []struct{ file, off, fix string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "an AppArmor profile for ringfence with the rule \"userns,\", or sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if b, err := os.ReadFile(s.file); err == nil && strings.TrimSpace(string(b)) == s.off {
			return s.fix
		}
	}
	return "in a container, a seccomp profile that lets clone make namespaces (or --cap-add SYS_ADMIN), and a /proc that is not masked (--security-opt systempaths=unconfined)"
}

// thinkPlain works out what is particular to the plan of a plain box.
func (b *builder) thinkPlain(p *plan, v *view) error {
	lack := func(what string) error { return &lackError{what, b.because} }
	if b.spec.Workspace.Upper != "" {
		return fmt.Errorf("%w: %w", sandbox.ErrNoOverlay, lack("an overlay as the workspace"))
	}
	if b.spec.Home != (sandbox.Home{}) {
		return lack("a home of the box's own")
	}
	switch b.spec.Network {
	case sandbox.NetworkNone:
	case sandbox.NetworkOpen:
		return lack("the network of the machine")
	default:
		return lack("a network by policy")
	}
	for _, n := range v.sorted() {
		above, ok := v.above(n.path)
		switch inside := ok && above.kind == kindBind; {
		case inside && n.kind == kindMask:
			return lack("hiding " + n.path + " within " + above.path)
		case inside && n.kind == kindBind && above.write && !n.write:
			return lack("keeping " + n.path + " read-only within " + above.path)
		case n.kind == kindMask:
		case n.kind == kindFile || n.kind == kindBind && beneath(n.path, "/etc") && !n.mapped:
			p.grants = append(p.grants, grant{path: n.path, access: landlock.Read})
		case n.kind == kindBind:
			p.grants = append(p.grants, b.plainGrant(n))
		}
	}
	for _, path := range slices.Concat(accounts, harmless) {
		p.plainIfThere(path, landlock.Read)
	}
	for _, d := range devices {
		p.plainIfThere("/dev/"+d, landlock.Read|landlock.Write|landlock.Device)
	}
	p.minABI = plainABI
	if err := b.plainProcesses(p); err != nil {
		return err
	}
	return b.makeTemp(p)
}

func (b *builder) plainGrant(n node) grant {
	g := grant{path: n.path, access: landlock.Read | landlock.Execute}
	switch {
	case n.write && b.plan.hold.names:
		g.own = landlock.Write
	case n.write:
		g.access |= landlock.Write
	}
	return g
}

// plainIfThere grants access to what a path leads to, if it is there.
func (p *plan) plainIfThere(path string, access landlock.Access) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		p.grants = append(p.grants, grant{path: real, access: access})
	}
}

// plainProcesses makes the limit of processes one of this box: without a user
// namespace the kernel counts all that the user has, and does not count root's.
func (b *builder) plainProcesses(p *plan) error {
	i := slices.IndexFunc(p.limits, func(l limit) bool { return l.resource == unix.RLIMIT_NPROC })
	if i < 0 || slices.Contains(b.box.leaf.Enforced(), cgroup.PIDs) {
		return nil
	}
	if os.Getuid() == 0 {
		return &lackError{"a limit of processes for root, where no control group can be had,", b.because}
	}
	n, err := tasksOf(os.Getuid())
	if err != nil {
		return fmt.Errorf("counting processes: %w", err)
	}
	p.limits[i].value += n
	p.limits[i] = p.limits[i].within()
	b.shared = n
	return nil
}

// tasksOf counts the threads of all processes of a user.
func tasksOf(uid int) (int64, error) {
	names, err := processes()
	if err != nil {
		return 0, err
	}
	n := int64(0)
	for _, pid := range names {
		var st unix.Stat_t
		// Every thread is a directory, and every directory has a link to its parent.
		if err := unix.Stat(fmt.Sprintf("/proc/%d/task", pid), &st); err == nil && int(st.Uid) == uid {
			n += max(int64(st.Nlink)-2, 1)
		}
	}
	return n, nil
}

// processes lists the numbers of all processes that can be seen.
func processes() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// endDescendants ends everything that this process has started, directly or not: we
// are the reaper of all of it, so that none is lost by losing its parent. All are
// stopped first, so that none forks while others are killed.
func endDescendants() error {
	self := os.Getpid()
	for range 1000 {
		pids, err := processes()
		if err != nil {
			return err
		}
		parents := map[int]int{}
		for _, pid := range pids {
			parents[pid] = parentOf(pid)
		}
		left := 0
		for _, pid := range pids {
			if descends(pid, self, parents) {
				left++
				_ = unix.Kill(pid, unix.SIGSTOP)
			}
		}
		if left == 0 {
			return nil
		}
		for _, pid := range pids {
			if descends(pid, self, parents) {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		}
		for {
			if pid, err := unix.Wait4(-1, nil, unix.WNOHANG|unix.WALL, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
	return errors.New("the processes of the box start others faster than they can be ended")
}

func descends(pid, from int, parents map[int]int) bool {
	for range len(parents) {
		pid = parents[pid]
		if pid == from {
			return true
		}
		if pid <= 1 {
			return false
		}
	}
	return false
}

// parentOf reads the fourth field of /proc/<pid>/stat, after the name in parentheses.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	_, rest, ok := strings.Cut(string(b[max(0, strings.LastIndexByte(string(b), ')')):]), ") ")
	f := strings.Fields(rest)
	if !ok || len(f) < 2 {
		return 0
	}
	n, err := strconv.Atoi(f[1])
	if err != nil {
		return 0
	}
	return n
}
