package container

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/paths"
)

// TestOwnStateByMounts: our own state is in no container, whatever mounts show it. The
// mounts are in a name space of the test's own.
func TestOwnStateByMounts(t *testing.T) {
	const marker = "RINGFENCE_TEST_OWN"
	if os.Getenv(marker) == "" {
		cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestOwnStateByMounts$", "-test.v")
		cmd.Env = append(os.Environ(), marker+"=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  syscall.CLONE_NEWNS | syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getgid(), Size: 1}},
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("needs user namespaces: %v\n%s", err, out)
		}
		return
	}
	top := t.TempDir()
	home, w := top+"/home", top+"/w"
	err := errors.Join(os.Mkdir(home, 0o700), os.MkdirAll(w+"/bound", 0o755), os.MkdirAll(w+"/laid", 0o755), os.Mkdir(top+"/empty", 0o755),
		os.WriteFile(home+"/key", []byte("secret"), 0o600), syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""),
		syscall.Mount(home, w+"/bound", "", syscall.MS_BIND, ""))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	o := Options{Own: []string{home}}
	s := sandbox.Spec{Argv: []string{"/x"}, Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadOnly}, ReadOnly: []string{top}}
	p, err := newPlan(s, o, &engine{local: true})
	if err != nil {
		t.Fatal(err)
	}
	p.close()
	denied := map[string]bool{}
	for _, m := range p.mounts {
		denied[m.target] = m.denied
	}
	if !denied[home] || !denied[w+"/bound"] || denied[w] {
		t.Errorf("denied are %v", denied)
	}
	if err := syscall.Mount("none", w+"/laid", "overlay", 0, "lowerdir=home:empty,userxattr"); err != nil {
		t.Fatal(err)
	}
	if _, err := newPlan(s, o, &engine{local: true}); err == nil || !strings.Contains(err.Error(), w+"/laid/key would show the state of ringfence") {
		t.Errorf("an overlay of a relative path: %v", err)
	}
	if err := errors.Join(syscall.Unmount(w+"/bound", syscall.MNT_DETACH), syscall.Unmount(w+"/laid", syscall.MNT_DETACH)); err != nil {
		t.Error(err)
	}
}

// Homes of ringfence that are not ours are in no container, however deep they lie.
func TestHomesOfOthers(t *testing.T) {
	w := t.TempDir()
	keys, deep := w+"/another/keys", w+"/deep/er/one/keys"
	for _, dir := range []string{keys, deep} {
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(dir+"/policy.key", []byte("ringfence-key/v1 ed25519 secret"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	s := sandbox.Spec{Argv: []string{"/x"}}
	for _, given := range []sandbox.Spec{
		{Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadOnly}},
		{ReadOnly: []string{w}},
		{ReadWrite: []string{w}, LaterWritable: true},
		{Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, LaterWritable: true},
	} {
		given.Argv = s.Argv
		p, err := newPlan(given, Options{}, &engine{local: true})
		if err != nil {
			t.Fatal(err)
		}
		p.close()
		for _, dir := range []string{keys, deep} {
			if in, shown := p.innermost(dir); !shown || !in.denied {
				t.Errorf("%s is seen in a container of %+v", dir, given)
			}
		}
	}
	s.Workspace = sandbox.Workspace{Path: keys, Mode: sandbox.ReadOnly}
	if _, err := newPlan(s, Options{}, &engine{local: true}); !errors.Is(err, paths.ErrForeignHome) {
		t.Errorf("in it: %v", err)
	}
}
