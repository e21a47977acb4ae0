package native

import (
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
)

// Where user namespaces are used up, the kernel says so, and a box is a plain one, or
// an error that names what is missing and the switch that is off. The number counts
// for each user namespace: it is set in one of the test's own.
func TestNoUserNamespaces(t *testing.T) {
	if os.Getenv("NATIVE_TEST_NO_USERNS") == "" {
		cmd := exec.Command(self, "-test.run=^TestNoUserNamespaces$", "-test.v")
		cmd.Env = append(os.Environ(), "NATIVE_TEST_NO_USERNS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getgid(), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_RESOURCE},
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0); err != nil {
		t.Fatal(err)
	}
	out := run(t, full(), sh("echo plain; exit 3"), "")
	if string(out.Stdout) != "plain\n" || out.Exit.Status() != 3 || out.Report.Has(sandbox.LayerUserNamespace) ||
		!slices.Equal(out.Report.Missing, []string{sandbox.LayerMountNamespace, sandbox.LayerPIDNamespace}) {
		t.Errorf("%q %v %v", out.Stdout, out.Exit, out.Report)
	}
	if why := out.Report.Evidence[sandbox.LayerUserNamespace]; !strings.Contains(why, "no space left") || !strings.Contains(why, "sysctl user.max_user_namespaces=") {
		t.Errorf("the report says: %s", why)
	}
	s := sh("true")
	s.Network, s.Egress = sandbox.NetworkPolicy, dir(t)
	_, err := full().Start(t.Context(), s)
	if !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), "network by policy") || !strings.Contains(err.Error(), "sysctl user.max_user_namespaces=") {
		t.Errorf("%v", err)
	}
}

// A plain box counts processes where the kernel does not do it by box.
func TestTasksOf(t *testing.T) {
	before, err := tasksOf(os.Getuid())
	if err != nil {
		t.Fatal(err)
	}
	if before < 2 { // this process has threads
		t.Errorf("%d tasks", before)
	}
	if n, err := tasksOf(0x7fff_fff0); n != 0 || err != nil {
		t.Errorf("nobody has %d tasks, %v", n, err)
	}
}
