package native

import (
	"os"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What other processes of the user have on its way is waited for, not an error. It does
// not count for root; all tests run as an ordinary user too.
func TestDescriptorsOnTheirWay(t *testing.T) {
	if os.Getuid() == 0 {
		return
	}
	var old unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
		t.Fatal(err)
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 256, Max: old.Max}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &old); err != nil {
			t.Error(err)
		}
	})
	pair := func() (a, b int) {
		p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
		if err != nil {
			t.Fatal(err)
		}
		return p[0], p[1]
	}
	a, b := pair()
	defer unix.Close(a)
	for range 2 {
		if err := unix.Sendmsg(a, []byte{0}, unix.UnixRights(slices.Repeat([]int{a}, 200)...), nil, 0); err != nil {
			t.Fatal(err)
		}
	}
	ours, theirs := pair()
	w, err := newWire(os.NewFile(uintptr(ours), "wire"))
	if err != nil {
		t.Fatal(err)
	}
	defer w.close()
	defer unix.Close(theirs)
	time.AfterFunc(20*time.Millisecond, func() { unix.Close(b) }) // and all that nobody received
	if err := w.send(frameFiles, nil, a); err != nil {
		t.Error(err)
	}
}
