package container

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"ringfence/internal/sandbox"
)

// rootless are the sockets of engines that scripts/engines.sh has started as an ordinary
// user, by name, and that user.
func rootless(t *testing.T) (sockets map[string]string, uid int) {
	t.Helper()
	sockets = map[string]string{}
	for name, variable := range map[string]string{"docker": "RINGFENCE_TEST_ROOTLESS_DOCKER", "podman": "RINGFENCE_TEST_ROOTLESS_PODMAN"} {
		if sockets[name] = os.Getenv(variable); sockets[name] == "" {
			delete(sockets, name)
		}
	}
	uid, err := strconv.Atoi(os.Getenv("RINGFENCE_TEST_ROOTLESS_USER"))
	if len(sockets) < 2 || err != nil || os.Getuid() != 0 {
		const needs = "needs root, RINGFENCE_TEST_ROOTLESS_USER, …_DOCKER and …_PODMAN: run scripts/engines.sh go test …"
		if os.Getenv("CI") == "true" {
			t.Fatal(needs)
		}
		if len(sockets) == 0 {
			t.Skip(needs)
		}
	}
	return sockets, uid
}

// TestRootless shows boxes of engines without the rights of root, made by the user whose
// they are. What such an engine cannot limit here is refused; all else of a box holds.
func TestRootless(t *testing.T) {
	if os.Getenv("CONTAINER_TEST_ROOTLESS") != "" {
		inRootless(t)
		return
	}
	sockets, uid := rootless(t)
	for name, socket := range sockets {
		t.Run(name, func(t *testing.T) {
			dir := world(t, boxCase{})
			for _, d := range []string{"home", "home/ws", "temp"} {
				if err := errors.Join(os.Mkdir(filepath.Join(dir, d), 0o700), os.Chown(filepath.Join(dir, d), uid, uid)); err != nil {
					t.Fatal(err)
				}
			}
			if err := os.WriteFile(dir+"/home/secret", []byte("secret\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			cmd := exec.Command("/proc/self/exe", "-test.run=^TestRootless$", "-test.v")
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
			cmd.Dir = "/"
			cmd.Env = append(os.Environ(), "CONTAINER_TEST_ROOTLESS="+name, "HOME="+dir+"/home", "OWNER_SOCKET="+socket, "OWNER_INIT="+testInit(t), "OWNER_DIR="+dir+"/temp")
			if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
				t.Errorf("%v\n%s", err, out)
			}
			if text, err := os.ReadFile(dir + "/home/ws/made"); err != nil || string(text) != "in the box\n" {
				t.Errorf("the box made %q, %v", text, err)
			} else if fi, err := os.Stat(dir + "/home/ws/made"); err != nil || fi.Sys().(*syscall.Stat_t).Uid != uint32(uid) {
				t.Errorf("what it made is not its user's: %v", err)
			}
		})
	}
}

// inRootless is what the user does.
func inRootless(t *testing.T) {
	name, home := os.Getenv("CONTAINER_TEST_ROOTLESS"), os.Getenv("HOME")
	tier := New(Options{
		Runtime: Runtime(name), Socket: os.Getenv("OWNER_SOCKET"), Image: os.Getenv("RINGFENCE_TEST_IMAGE"), Home: home,
		Init: os.Getenv("OWNER_INIT"), Dir: os.Getenv("OWNER_DIR"),
	})
	s := sh("cat " + home + "/secret 2>/dev/null; echo in the box >made; touch /new 2>/dev/null; cat made")
	s.Workspace, s.LaterWritable = sandbox.Workspace{Path: home + "/ws", Mode: sandbox.ReadWrite}, true
	out, err := sandbox.Run(t.Context(), tier, s, nil)
	if _, unified := os.Stat("/sys/fs/cgroup/cgroup.controllers"); unified != nil || err != nil {
		if !errors.Is(err, sandbox.ErrNotBuilt) || unified != nil && strings.Count(err.Error(), "a rootless engine can limit only with cgroup v2") != 3 {
			t.Fatalf("without limits: %v", err)
		}
		if _, err := os.Lstat(home + "/ws/made"); err == nil {
			t.Fatal("the program ran")
		}
		tier.limitless = true
		out, err = sandbox.Run(t.Context(), tier, s, nil)
	}
	r := out.Report
	if err != nil || string(out.Stdout) != "in the box\n" || !strings.Contains(r.Evidence[sandbox.LayerContainer], ", rootless") {
		t.Fatalf("%q, %s, %v, from %s", out.Stdout, out.Stderr, err, r.Evidence[sandbox.LayerContainer])
	}
	for _, layer := range []string{
		sandbox.LayerSeccomp, sandbox.LayerNoNewPrivileges, sandbox.LayerNoCapabilities, sandbox.LayerUnprivileged, sandbox.LayerNetworkNamespace,
		sandbox.LayerPIDNamespace, sandbox.LayerMountNamespace, LayerReadOnlyRoot, LayerMounts, sandbox.LayerRlimits,
	} {
		if !r.Has(layer) {
			t.Errorf("%s is not in force: %s", layer, r)
		}
	}
	t.Logf("%s", r)
	nothingLeft(t, tier)
}
