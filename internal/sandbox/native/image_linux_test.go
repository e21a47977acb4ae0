package native

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// A box whose stage is an image is the same box, whoever it is for.
func TestImage(t *testing.T) {
	exe := filepath.Join(dir(t), "stage")
	build := exec.CommandContext(t.Context(), "go", "build", "-buildvcs=false", "-o", exe, "ringfence/cmd/stage")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building a stage: %v: %s", err, out)
	}
	b, err := os.ReadFile(exe)
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	name := imageName(text)
	if strings.Count(name, " ") != 2 || imageName(text[:100]) != "" || imageName("") != "" {
		t.Fatalf("its name is %q", name)
	}
	other, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := unix.Write(other, b); err != nil {
		t.Fatal(err)
	}
	if imageOf(os.Getpid(), text) != nil {
		t.Error("one that can be changed is taken")
	}
	if b[len(b)-1]++; errors.Join(func() error { _, err := unix.Pwrite(other, b, 0); return err }(), seal(other)) != nil {
		t.Fatal("forging one")
	}
	if imageOf(os.Getpid(), text) != nil {
		t.Error("one of another content is taken, which has the name, the size and the seals")
	}
	unix.Close(other)
	kept, err := newImage(name+"x", text)
	if err != nil {
		t.Fatal(err)
	}
	defer kept.Close()
	if _, err := kept.WriteAt([]byte{0}, 0); err == nil || kept.Truncate(0) == nil {
		t.Error("it can be changed")
	}
	if imageOf(os.Getpid(), text+"x") != nil || imageOf(1<<30, text) != nil || imageOf(os.Getpid(), "") != nil {
		t.Error("another is taken")
	}
	image := imageOf(os.Getpid(), text)
	if image == nil {
		t.Fatal("it is not found")
	}
	defer image.Close()
	for kind, tier := range kinds {
		s := sh("read x; id -u")
		want := run(t, tier, s, "")
		tier.fault.stage, tier.Image = "", func() *os.File { return image }
		for _, tier := range []sandbox.Tier{tier, early{tier, func(s sandbox.Spec) sandbox.Spec { return s }}} {
			b, err := tier.Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			from, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", b.(*box).stage.Pid))
			if err != nil && os.Getuid() != 0 { // it lets nobody look
				from = "/memfd:" + name
			}
			b.Stdin().Close()
			exit, err := b.Wait()
			if err != nil || !strings.HasPrefix(from, "/memfd:"+name) || exit != want.Exit || strings.Join(b.Report().Enforced, " ") != strings.Join(want.Report.Enforced, " ") {
				t.Errorf("%s: of %q, %v, %v: %v\nwant %v: %v", kind, from, exit, err, b.Report(), want.Exit, want.Report)
			}
			closeStreams(t, b)
		}
	}
}

func seal(fd int) error {
	_, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, imageSeals)
	return err
}

// What is not in memory yet would have to be found when it is compared: that is no image.
func TestImageWithHoles(t *testing.T) {
	const size = 1 << 20
	for _, text := range []string{"", strings.Repeat("x", size)} {
		fd, err := unix.MemfdCreate("image", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
		if err != nil {
			t.Fatal(err)
		}
		f := os.NewFile(uintptr(fd), "image")
		defer f.Close()
		if _, err := f.WriteString(text); err != nil || f.Truncate(size) != nil || seal(fd) != nil {
			t.Fatal(err)
		}
		if whole := text != ""; sealed(f, size) != whole || whole && !holds(f, text) || holds(f, "") {
			t.Errorf("with %d bytes of %d: %v", len(text), size, sealed(f, size))
		}
	}
}

func BenchmarkHolds(b *testing.B) {
	text := strings.Repeat("stage of 32 bytes for comparing.", 2736290/32)
	f, err := newImage("bench", text)
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	for b.Loop() {
		if !holds(f, text) {
			b.Fatal("it does not")
		}
	}
}
