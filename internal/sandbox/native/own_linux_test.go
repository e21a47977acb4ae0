package native

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sys/paths"
)

// N6: our own state is in no box, whatever mounts show it, in both kinds of boxes. The
// mounts are made in a name space of the test's own, which nobody knew of who decided.
func TestOwnStateByMounts(t *testing.T) {
	if os.Getenv("NATIVE_TEST_MOUNTS") == "" {
		cmd := exec.Command(copyOfTest(t), "-test.run=^TestOwnStateByMounts$", "-test.v")
		cmd.Env = append(os.Environ(), "NATIVE_TEST_MOUNTS=1")
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags:  unix.CLONE_NEWUSER | unix.CLONE_NEWNS,
			UidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getuid(), Size: 1}},
			GidMappings: []syscall.SysProcIDMap{{ContainerID: ordinary, HostID: os.Getgid(), Size: 1}},
			AmbientCaps: []uintptr{unix.CAP_SYS_ADMIN, unix.CAP_DAC_OVERRIDE},
		}
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "PASS") {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	for _, test := range ownTests {
		t.Run(test.name, func(t *testing.T) { test.run(t) })
	}
}

// An ownTest is what is mounted, and what is shown besides.
type ownTest struct {
	name    string
	mounts  []string // what, or the options of an overlay, and where
	shown   string
	mode    sandbox.Mode // of the workspace; "ro" if it is not said
	refused bool
	hidden  bool // where it must be hidden, a box without mounts of its own is refused
}

func (test ownTest) run(t *testing.T) {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if test.mode == "" {
		test.mode = sandbox.ReadOnly
	}
	top, bin := dir(t), filepath.Dir(exe)
	home, w := top+"/all/home", top+"/w"
	for _, d := range []string{home + "/keys", home + "/sessions/1", home + "/none", w + "/m", top + "/empty", top + "/o"} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(home+"/keys/key", []byte("secret"), 0o600), os.WriteFile(w+"/f", nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	t.Chdir(top)
	for _, m := range test.mounts {
		f := strings.Fields(strings.ReplaceAll(m, "BIN", bin))
		err := unix.Mount(f[0], f[1], "", unix.MS_BIND, "")
		if strings.Contains(f[0], "lowerdir=") {
			err = unix.Mount("none", f[1], "overlay", 0, strings.ReplaceAll(f[0], "TOP", top)+",userxattr")
		}
		if err != nil {
			t.Fatalf("%s: %s: %v", test.name, m, err)
		}
	}
	for kind, tier := range kinds {
		tier.Own = []string{home, top + "/nowhere"}
		s := sh("cat " + w + "/f " + w + "/m/key " + w + "/m/keys/key " + w + "/m/home/keys/key " + home + "/keys/key 2>/dev/null; exit 0")
		s.Workspace = sandbox.Workspace{Path: w, Mode: test.mode}
		s.ReadOnly = append(s.ReadOnly, strings.Fields(strings.ReplaceAll(test.shown, "TOP", top))...)
		out, err := sandbox.Run(t.Context(), tier, s, nil)
		refused := errors.Is(err, sandbox.ErrNotBuilt) && (strings.Contains(err.Error(), "would show the") || kind == "plain" && strings.Contains(err.Error(), "hiding"))
		if refused != test.refused && (kind != "plain" || test.hidden != refused) || err != nil && !refused || len(out.Stdout) > 0 {
			t.Errorf("%s: %s: %q %v", test.name, kind, out.Stdout, err)
		}
	}
	for range test.mounts {
		for _, at := range []string{w + "/m", w + "/f", top + "/o"} {
			_ = unix.Unmount(at, unix.MNT_DETACH) // one of them is mounted
		}
	}
}

var ownTests = []ownTest{
	{name: "no mount"},
	{name: "bind", mounts: []string{"all/home w/m"}, refused: true},
	{name: "bind of a part", mounts: []string{"all/home/keys w/m"}, refused: true},
	{name: "bind of what is above", mounts: []string{"all w/m"}, refused: true},
	{name: "bind of a file", mounts: []string{"all/home/keys/key w/f"}, refused: true},
	{name: "bind that another covers", mounts: []string{"all/home w/m", "empty w/m"}},
	{name: "overlay", mounts: []string{"lowerdir=TOP/all/home:TOP/empty w/m"}, refused: true},
	{name: "overlay of an empty part", mounts: []string{"lowerdir=TOP/all/home/none:TOP/empty w/m"}, refused: true},
	{name: "overlay by a relative path", mounts: []string{"lowerdir=all/home:empty w/m"}, refused: true},
	{name: "overlay of what is above, by a relative path", mounts: []string{"lowerdir=all:empty w/m"}, refused: true},
	{name: "overlay of a part by a relative path", mounts: []string{"lowerdir=empty:all/home/keys w/m"}, refused: true},
	{name: "overlay of an overlay", mounts: []string{"lowerdir=TOP/all:TOP/empty o", "lowerdir=TOP/o/home:TOP/empty w/m"}, refused: true},
	{name: "overlay of a bind", mounts: []string{"all/home o", "lowerdir=TOP/o:TOP/empty w/m"}, refused: true},
	{name: "overlay of something else", mounts: []string{"lowerdir=TOP/empty:TOP/w w/m"}},
	{name: "our program", mounts: []string{"BIN w/m"}},
	{name: "our program, to be changed", mounts: []string{"BIN w/m"}, mode: sandbox.ReadWrite, refused: true},
	{name: "by its own name", shown: "TOP/all", hidden: true},
	{name: "what is named in it", shown: "TOP/all/home/sessions/1"},
}

// Homes of ringfence that are not ours are in no box, by their name or by their keys: what
// is in them lets its reader sign as their owner, and who listens there is taken for an
// engine.
func TestHomesOfOthers(t *testing.T) {
	w := dir(t)
	for _, d := range []string{"/.ringfence/keys", "/another/keys", "/no/keys", "/deep/er/.ringfence/keys", "/deep/another/keys", "/deep/no/keys"} {
		if err := errors.Join(os.MkdirAll(w+d, 0o700), os.WriteFile(w+d+"/ledger.key", []byte("ringfence-key/v1 ed25519 secret"), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.WriteFile(w+"/no/keys/ledger.key", []byte("seen"), 0o600), os.WriteFile(w+"/deep/no/keys/ledger.key", []byte(", deep"), 0o600)); err != nil {
		t.Fatal(err)
	}
	for kind, tier := range kinds {
		s := sh("cat */keys/* .*/keys/* deep/*/keys/* deep/er/.r*/keys/* 2>/dev/null; echo x 2>/dev/null >another/engine.sock; exit 0")
		for how, given := range map[string]sandbox.Spec{
			"held":     {Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}},
			"later":    {Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}, LaterWritable: true},
			"to read":  {Workspace: sandbox.Workspace{Path: w, Mode: sandbox.ReadOnly}},
			"a tree":   {ReadOnly: []string{w}, Dir: w},
			"writable": {ReadWrite: []string{w}, Dir: w, LaterWritable: true},
		} {
			given.Argv, given.Env = s.Argv, s.Env
			out, err := sandbox.Run(t.Context(), tier, given, nil)
			if _, there := os.Lstat(w + "/another/engine.sock"); there == nil || string(out.Stdout) != "seen, deep" && (kind != "plain" || !errors.Is(err, sandbox.ErrNotBuilt)) {
				t.Errorf("%s, %s: %q, %v", kind, how, out.Stdout, err)
			}
		}
		s.Workspace = sandbox.Workspace{Path: w, Mode: sandbox.ReadWrite}
		for _, in := range []string{"/another", "/another/keys", "/.ringfence/keys"} {
			s.Workspace.Path = w + in
			if _, err := sandbox.Run(t.Context(), tier, s, nil); !errors.Is(err, paths.ErrForeignHome) {
				t.Errorf("%s: in %s: %v", kind, in, err)
			}
		}
		tier.Own = []string{w + "/another"}
		s.Workspace.Path = w + "/another/keys"
		if _, err := sandbox.Run(t.Context(), tier, s, nil); err != nil {
			t.Errorf("%s: in what is ours, which somebody has decided on: %v", kind, err)
		}
	}
}
