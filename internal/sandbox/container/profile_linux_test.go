package container

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// What Docker is given lets nobody do what its own default profile is for, whatever the tables
// of boxes come to hold.
func TestProfile(t *testing.T) {
	text, err := profile()
	if err != nil {
		t.Fatal(err)
	}
	var p seccompProfile
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	if p.DefaultAction != "SCMP_ACT_ERRNO" || len(p.Architectures) != 1 {
		t.Errorf("%s, %q", p.DefaultAction, p.Architectures)
	}
	free := map[string]bool{} // allowed, whatever the arguments
	for _, r := range p.Syscalls {
		for _, name := range r.Names {
			free[name] = free[name] || r.Action == "SCMP_ACT_ALLOW" && len(r.Args) == 0
		}
	}
	for _, name := range []string{"execve", "seccomp", "landlock_restrict_self", "process_vm_readv", "pidfd_getfd"} {
		if !free[name] {
			t.Errorf("%s is not allowed, without which there is no box", name)
		}
	}
	for name, allowed := range free {
		if allowed && slices.Contains([]string{
			"acct", "add_key", "bpf", "chroot", "clone", "clone3", "delete_module", "fanotify_init", "finit_module", "fsconfig", "fsmount", "fsopen",
			"init_module", "io_uring_setup", "ioperm", "iopl", "kcmp", "kexec_load", "keyctl", "mount", "mount_setattr", "move_mount", "open_by_handle_at",
			"open_tree", "perf_event_open", "personality", "pivot_root", "process_vm_writev", "ptrace", "reboot", "request_key", "setns", "settimeofday",
			"socket", "swapon", "syslog", "umount2", "unshare", "userfaultfd",
		}, name) {
			t.Errorf("%s is allowed", name)
		}
	}
}

// A profile that somebody has chosen for the engine is not replaced: if it keeps the init from
// looking into the program, there is no box.
func TestChosenProfile(t *testing.T) {
	for name, tier := range engines(t) {
		if name != "docker" { // the default of Podman lets it
			continue
		}
		tier = New(tier.o)
		e, err := tier.connect(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		e.stock = false
		s := sh("true")
		s.Workspace = sandbox.Workspace{Path: world(t, boxCase{}) + "/ws", Mode: sandbox.ReadWrite}
		if _, err = tier.Start(t.Context(), s); !errors.Is(err, sandbox.ErrNotBuilt) || !strings.Contains(err.Error(), "the engine refuses") {
			t.Errorf("%v", err)
		}
		nothingLeft(t, tier)
	}
}
