package container

import (
	"encoding/binary"
	"testing"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// TestFilter runs the filter over calls, as the kernel would.
func TestFilter(t *testing.T) {
	const arch = unix.AUDIT_ARCH_X86_64
	var raw []bpf.RawInstruction
	for _, i := range filterFor(arch) {
		raw = append(raw, bpf.RawInstruction{Op: i.Code, Jt: i.Jt, Jf: i.Jf, K: i.K})
	}
	program, ok := bpf.Disassemble(raw)
	if !ok {
		t.Fatal("the filter holds what is no instruction")
	}
	vm, err := bpf.NewVM(program)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		what   string
		arch   uint32
		number uint32
		args   [3]uint64
		want   uint32
	}{
		{"read", arch, unix.SYS_READ, [3]uint64{}, retAllow},
		{"execve", arch, unix.SYS_EXECVE, [3]uint64{}, retAllow},
		{"a 32-bit call", unix.AUDIT_ARCH_I386, unix.SYS_READ, [3]uint64{}, retKill},
		{"an x32 call", arch, x32 | unix.SYS_READ, [3]uint64{}, retKill},
		{"clone3", arch, unix.SYS_CLONE3, [3]uint64{}, retNoSys},
		{"clone of a thread", arch, unix.SYS_CLONE, [3]uint64{unix.CLONE_VM | unix.CLONE_THREAD}, retAllow},
		{"clone of a user namespace", arch, unix.SYS_CLONE, [3]uint64{unix.CLONE_NEWUSER | unix.CLONE_VM}, retPerm},
		{"clone of a mount namespace", arch, unix.SYS_CLONE, [3]uint64{1<<40 | unix.CLONE_NEWNS}, retPerm},
		{"unshare", arch, unix.SYS_UNSHARE, [3]uint64{}, retPerm},
		{"the last of the list", arch, denied[len(denied)-1], [3]uint64{}, retPerm},
		{"TIOCSTI", arch, unix.SYS_IOCTL, [3]uint64{0, unix.TIOCSTI}, retPerm},
		{"TIOCLINUX", arch, unix.SYS_IOCTL, [3]uint64{0, 1<<32 | unix.TIOCLINUX}, retPerm},
		{"TIOCGWINSZ", arch, unix.SYS_IOCTL, [3]uint64{0, unix.TIOCGWINSZ}, retAllow},
		{"a Unix socket", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_UNIX}, retAllow},
		{"an Internet socket", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET}, retAllow},
		{"an IPv6 socket", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_INET6}, retAllow},
		{"routes", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, 0, unix.NETLINK_ROUTE}, retAllow},
		{"audit", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_NETLINK, 0, unix.NETLINK_AUDIT}, retNoFam},
		{"vsock", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_VSOCK}, retNoFam},
		{"algorithms", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_ALG}, retNoFam},
		{"packets", arch, unix.SYS_SOCKET, [3]uint64{unix.AF_PACKET}, retNoFam},
	} {
		// The VM reads big-endian words where the kernel reads its own; the low half of
		// an argument comes first.
		data := make([]byte, 64)
		binary.BigEndian.PutUint32(data[dataNumber:], c.number)
		binary.BigEndian.PutUint32(data[dataArch:], c.arch)
		for i, a := range c.args {
			binary.BigEndian.PutUint32(data[dataArg0+8*i:], uint32(a))
			binary.BigEndian.PutUint32(data[dataArg0+8*i+4:], uint32(a>>32))
		}
		if got, err := vm.Run(data); err != nil || uint32(got) != c.want {
			t.Errorf("%s: %#x, %v, want %#x", c.what, uint32(got), err, c.want)
		}
	}
}
