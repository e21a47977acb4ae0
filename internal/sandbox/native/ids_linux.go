package native

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The user ids that boxes of root run as, seen from outside: a block of 65,536 for
// each box. systemd's list of user ids (docs/UIDS-GIDS.md) has nothing between the
// blocks of its containers and 2³¹, beyond which some file systems fail.
const (
	firstID   = 0x7000_0000
	blockSize = 1 << 16
	blocks    = 0x0ff0
)

// ids are who a box runs as.
type ids struct {
	uid, gid int // in the box
	outer    int // what 0 is outside, if the box has a block of ids; else -1
	lock     int // holds the block, or -1
}

// ownIDs are those of an ordinary user: his own, inside and outside.
func ownIDs() ids { return ids{uid: os.Geteuid(), gid: os.Getegid(), outer: -1, lock: -1} }

// machineRoot reports whether we are the root of the machine, who can map ids as he
// likes, rather than that of some user namespace.
func machineRoot() bool {
	if os.Geteuid() != 0 {
		return false
	}
	text, err := os.ReadFile("/proc/self/uid_map")
	return err == nil && strings.Join(strings.Fields(string(text)), " ") == "0 0 4294967295"
}

// takeBlock reserves a block of ids for a box whose program is uid and gid within.
// A socket in the abstract name space holds it: it goes when the last descriptor
// does, also if we are killed. Who can squat all the names can keep boxes from being
// built, no more.
func takeBlock(uid, gid int) (ids, error) {
	if uid >= blockSize || gid >= blockSize {
		return ids{}, fmt.Errorf("the owner of the workspace has the ids %d and %d; a box of root knows those below %d", uid, gid, blockSize)
	}
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return ids{}, err
	}
	var seed [4]byte
	if _, err := rand.Read(seed[:]); err != nil {
		unix.Close(fd)
		return ids{}, err
	}
	start := int(binary.BigEndian.Uint32(seed[:]) % blocks)
	for i := range blocks {
		outer := firstID + (start+i)%blocks*blockSize
		err := unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("@ringfence/ids/%d", outer)})
		if err == nil {
			return ids{uid: uid, gid: gid, outer: outer, lock: fd}, nil
		}
		if err != unix.EADDRINUSE {
			unix.Close(fd)
			return ids{}, err
		}
	}
	unix.Close(fd)
	return ids{}, errors.New("all blocks of user ids are taken by other boxes")
}

func (i ids) release() {
	if i.lock >= 0 {
		unix.Close(i.lock)
	}
}

// maps are the id maps of the user namespace.
func (i ids) maps() (uids, gids []syscall.SysProcIDMap) {
	if i.outer < 0 {
		return []syscall.SysProcIDMap{{ContainerID: i.uid, HostID: i.uid, Size: 1}},
			[]syscall.SysProcIDMap{{ContainerID: i.gid, HostID: i.gid, Size: 1}}
	}
	all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: i.outer, Size: blockSize}}
	return all, all
}
