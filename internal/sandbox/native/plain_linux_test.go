package native

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

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
		lacksGroupsOnly(out.Report) || !lacksGroupsOnly(out.Report, sandbox.LayerMountNamespace, sandbox.LayerPIDNamespace) {
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

// Where nothing but Landlock holds the program, modes and times are changed for it in the
// workspace, and nowhere else: not by a link, a descriptor or another name.
func TestModesAndTimes(t *testing.T) {
	for kind, tier := range kinds {
		top := dir(t)
		w, out := top+"/w", top+"/out"
		long := time.Date(2001, 1, 1, 0, 0, 0, 0, time.UTC)
		for _, err := range []error{
			os.Mkdir(w, 0o755), os.WriteFile(out, nil, 0o640), os.WriteFile(w+"/.envrc", nil, 0o640), os.Link(out, w+"/shared"), os.Symlink(out, w+"/soft"),
			os.WriteFile(w+"/file", nil, 0o640), os.Chtimes(out, long, long), os.Chtimes(w+"/.envrc", long, long),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		s := sh(`cd ` + w + `; chmod 755 file && ./file && touch -d 2002-02-02 file && touch -h -d 2003-03-03 soft && cp -p file copy && stat -c '%a %y' file copy && stat -c %y soft
			for f in ` + out + ` soft shared .envrc; do chmod 600 $f; touch -d 2002-02-02 $f; touch -m $f; done 2>/dev/null
			exec 5<` + out + ` 2>/dev/null; chmod 600 /proc/self/fd/5 2>/dev/null; chmod 4755 file 2>/dev/null || echo kept`)
		s.ReadOnly = []string{out}
		s.Workspace = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
		got := run(t, tier, s, "")
		if a := strings.Fields(string(got.Stdout)); len(a) < 11 || a[0] != "755" || a[1] != "2002-02-02" || a[4] != "755" || a[5] != "2002-02-02" || a[8] != "2003-03-03" || a[len(a)-1] != "kept" {
			t.Errorf("%s: %s%s", kind, got.Stdout, got.Stderr)
		}
		for _, p := range []string{out, w + "/.envrc"} {
			if fi, err := os.Stat(p); err != nil || fi.Mode().Perm() != 0o640 || kind == "plain" && !fi.ModTime().Equal(long) {
				t.Errorf("%s: %s was changed: %v, %v", kind, p, fi, err)
			}
		}
	}
}
