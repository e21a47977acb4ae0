package native

import (
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// preferForOOM has a machine without memory end what is in boxes first. It holds
// nothing: a machine that does not let us say so goes by size, as it does without us.
func preferForOOM() {
	if fd, err := unix.Open("/proc/self/oom_score_adj", unix.O_WRONLY|unix.O_CLOEXEC, 0); err == nil {
		_, _ = unix.Write(fd, []byte("500"))
		unix.Close(fd)
	}
}

// isolate sets up what the other namespaces are about.
func (s *stage) isolate() {
	s.do("host name", func() error { return unix.Sethostname([]byte(s.plan.hostname)) })
	if !s.plan.open { // the machine's is not ours to set up
		s.do("loopback", loopback)
		s.openWays()
	}
	s.do("shares of the machine", s.bound)
}

// A share is how much of something the namespaces of a box may take, of which the kernel
// has one count for a user, or for the machine, whatever namespaces there are.
type share struct{ file, value string }

var (
	shares = []share{
		{"sys/user/max_inotify_instances", "64"}, // of 128 of a user
		{"sys/user/max_inotify_watches", "65536"},
		{"sys/user/max_user_namespaces", "0"}, // the filter refuses them as well
	}
	// What is sent and not read is in memory that no limit of a process counts.
	networkShares = []share{
		{"sys/net/ipv4/tcp_rmem", "4096 131072 262144"},
		{"sys/net/ipv4/tcp_wmem", "4096 65536 262144"},
	}
)

// bound writes down the shares, by a /proc that is mounted nowhere: the box's is
// read-only. A kernel that does not know one has nothing to share.
func (s *stage) bound() error {
	proc, err := newFS("proc", unix.MOUNT_ATTR_NOSUID|unix.MOUNT_ATTR_NODEV|unix.MOUNT_ATTR_NOEXEC)
	if err != nil {
		return err
	}
	defer unix.Close(proc)
	all := shares
	if !s.plan.open {
		all = slices.Concat(all, networkShares)
	}
	for _, h := range all {
		fd, err := unix.Openat(proc, h.file, unix.O_WRONLY|unix.O_CLOEXEC, 0)
		if err == unix.ENOENT {
			continue
		}
		if err == nil {
			_, err = unix.Write(fd, []byte(h.value))
			unix.Close(fd)
		}
		if err != nil {
			return fmt.Errorf("/proc/%s: %w", h.file, err)
		}
	}
	return nil
}

// loopback brings up the only interface of a new network namespace.
func loopback() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	r, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r)
}
