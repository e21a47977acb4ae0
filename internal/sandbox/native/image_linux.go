package native

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sys/ipc"
)

// An image is the stage that was built into this program (command stage), in memory that
// nobody can change any more: sealed, memfd_create(2). To make one takes as long as it
// saves, so that the engine keeps one for all who build boxes. Without one a stage is this
// program again, which does the same and takes longer to begin.
const (
	imagePrefix  = "ringfence-box "
	maxImageName = 249 // bytes (memfd_create(2))
	imageSeals   = unix.F_SEAL_SEAL | unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_WRITE
)

// KeepImage makes the image and keeps it until it is closed, for [ImageOf]. It is nil, and
// no error, for a program that no stage was built into.
func KeepImage() (io.Closer, error) {
	name := imageName(stageProgram)
	if name == "" {
		return nil, nil
	}
	if own, err := os.Readlink(self); err == nil {
		name += own // whose it is, to who looks
	}
	f, err := newImage(name[:min(len(name), maxImageName)], stageProgram)
	if err != nil {
		return nil, fmt.Errorf("keeping the stage of boxes: %w", err)
	}
	return f, nil
}

// ImageOf returns the image that process pid keeps: nil if there is none that is, byte by
// byte, the stage of this program and can be no other any more, so that it does not matter
// who keeps it. That of a process in a box is not looked at.
func ImageOf(pid int) *os.File { return imageOf(pid, stageProgram) }

func imageOf(pid int, text string) *os.File {
	name := imageName(text)
	if name == "" || ipc.Beside(pid) != nil {
		return nil
	}
	dir := "/proc/" + strconv.Itoa(pid) + "/fd/"
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if to, err := os.Readlink(dir + e.Name()); err != nil || !strings.HasPrefix(to, "/memfd:"+name) {
			continue
		}
		f, err := os.Open(dir + e.Name())
		if err != nil {
			return nil
		}
		if sealed(f, len(text)) && holds(f, text) { // in this order
			return f
		}
		f.Close()
		return nil
	}
	return nil
}

// sealed reports whether f is in memory, all of it, has so many bytes, and cannot be changed.
func sealed(f *os.File, size int) bool {
	var st unix.Stat_t
	seals, err := unix.FcntlInt(f.Fd(), unix.F_GET_SEALS, 0)
	return err == nil && unix.Fstat(int(f.Fd()), &st) == nil && seals&imageSeals == imageSeals &&
		st.Size == int64(size) && st.Blocks*512 >= st.Size && int(st.Blksize) == os.Getpagesize()
}

// holds reports whether f, which is sealed and so never shorter, is text. It is mapped, as
// copying it takes as long as comparing it, and a box waits for this.
func holds(f *os.File, text string) bool {
	if text == "" {
		return false
	}
	kept, err := unix.Mmap(int(f.Fd()), 0, len(text), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return false
	}
	same := string(kept) == text
	return unix.Munmap(kept) == nil && same
}

// imageName begins the name of the image of a program with the hash of its content, the last
// part of what the linker notes at its beginning (cmd/internal/buildid, readELF); "" if
// there is none.
func imageName(program string) string {
	before, after, found := strings.Cut(program[:min(len(program), 4<<10)], "\x04\x00\x00\x00Go\x00\x00") // type and name
	if !found || len(before) < 4 {
		return ""
	}
	size := binary.NativeEndian.Uint32([]byte(before[len(before)-4:]))
	if size == 0 || size > uint32(len(after)) {
		return ""
	}
	id := after[:size]
	return imagePrefix + id[strings.LastIndexByte(id, '/')+1:] + " "
}

func newImage(name, text string) (*os.File, error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	fd, err := unix.MemfdCreate(name, flags|unix.MFD_EXEC)
	if errors.Is(err, unix.EINVAL) { // before Linux 6.3
		fd, err = unix.MemfdCreate(name, flags)
	}
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err = io.Copy(f, strings.NewReader(text)); err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, imageSeals)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// chooseProgram says what the stage is started from, and whether it must become who it is
// to be: the stage executes it as the user that it becomes, if that one may. All may execute
// an image.
func (b *builder) chooseProgram() error {
	if b.image != nil {
		if b.box.image = b.image(); b.box.image != nil {
			b.box.exe = fmt.Sprintf("/proc/self/fd/%d", imageFD)
			return nil
		}
	}
	if b.ids.outer < 0 {
		return nil
	}
	var st unix.Stat_t
	if err := unix.Stat(b.box.exe, &st); err != nil {
		return err
	}
	b.become = st.Mode&0o001 == 0
	return nil
}
