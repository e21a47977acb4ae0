package daemon

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
)

// TestOwnStateByMounts: our home under another name is our home (it could be read there).
// The mount is in a namespace of the test's own.
func TestOwnStateByMounts(t *testing.T) {
	const marker = "RINGFENCE_TEST_MOUNTS"
	dir := os.Getenv(marker)
	if dir == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOwnStateByMounts$", "-test.v")
		cmd.Env = append(os.Environ(), marker+"="+t.TempDir())
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("needs user namespaces: %v\n%s", err, out)
		}
		return
	}
	home, other := filepath.Join(dir, "home"), filepath.Join(dir, "other")
	err := errors.Join(os.Mkdir(home, 0o700), os.Mkdir(other, 0o700),
		syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""), syscall.Mount(home, other, "", syscall.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	if own := ownState(home, "", "/bin/sh"); !slices.Contains(own, other) {
		t.Errorf("our own state is %q", own)
	}
}
