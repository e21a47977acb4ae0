package container

import (
	"encoding/json"
	"fmt"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox/native/filter"
)

// The default profile of Docker refuses pidfd_getfd and, until version 23, process_vm_readv
// to whoever lacks CAP_SYS_PTRACE, whatever they are about (profiles/seccomp/default.json of
// github.com/moby/moby). The init cannot look into the program without them. So where names
// are held, Docker is given a profile in place of that one: the calls that the filters of
// boxes and of their pid 1 let through, these two among them, and no ptrace. The program
// itself has neither: its own filter refuses them. A profile that somebody has chosen for
// the engine is left as it is.

// A seccompProfile is what engines take (runtime-spec, config-linux.md, and
// profiles/seccomp of moby).
type seccompProfile struct {
	DefaultAction string        `json:"defaultAction"`
	Architectures []string      `json:"architectures"`
	Syscalls      []seccompRule `json:"syscalls"`
}

type seccompRule struct {
	Names    []string     `json:"names"`
	Action   string       `json:"action"`
	ErrnoRet *uint        `json:"errnoRet,omitempty"`
	Args     []seccompArg `json:"args"`
}

type seccompArg struct {
	Index    uint   `json:"index"`
	Value    uint64 `json:"value"`
	ValueTwo uint64 `json:"valueTwo"`
	Op       string `json:"op"`
}

// cloneSpaces are the flags of clone(2) that make namespaces: CLONE_NEWNS, …NEWCGROUP,
// …NEWUTS, …NEWIPC, …NEWUSER, …NEWPID and …NEWNET.
const cloneSpaces = 0x7e020000

// profile returns the text of the profile.
func profile() (string, error) {
	arch, ok := map[string]string{"amd64": "SCMP_ARCH_X86_64", "arm64": "SCMP_ARCH_AARCH64"}[runtime.GOARCH]
	if !ok {
		return "", fmt.Errorf("there is no profile of system calls for %s", runtime.GOARCH)
	}
	const allow = "SCMP_ACT_ALLOW"
	rules := []seccompRule{
		{Names: []string{"clone"}, Action: allow, Args: []seccompArg{{Index: 0, Value: cloneSpaces, Op: "SCMP_CMP_MASKED_EQ"}}},
		{Names: []string{"socket"}, Action: allow, Args: []seccompArg{{Index: 0, Value: unix.AF_VSOCK, Op: "SCMP_CMP_NE"}}},
	}
	for _, value := range []uint64{0, 0x0008, 0x20000, 0x20008, 0xffffffff} { // as Docker's
		rules = append(rules, seccompRule{Names: []string{"personality"}, Action: allow, Args: []seccompArg{{Index: 0, Value: value, Op: "SCMP_CMP_EQ"}}})
	}
	absent := uint(unix.ENOSYS)
	rules = append(rules, seccompRule{Names: []string{"clone3"}, Action: "SCMP_ACT_ERRNO", ErrnoRet: &absent})
	var names []string
	for _, g := range filter.Table() {
		if g.Never {
			continue
		}
		for _, call := range g.Calls {
			if !slices.Contains([]string{"clone", "clone3", "personality", "ptrace", "socket"}, call) && !slices.Contains(names, call) {
				names = append(names, call)
			}
		}
	}
	slices.Sort(names)
	rules = append(rules, seccompRule{Names: names, Action: allow})
	text, err := json.Marshal(seccompProfile{DefaultAction: "SCMP_ACT_ERRNO", Architectures: []string{arch}, Syscalls: rules})
	return string(text), err
}

// ownProfile reports whether a container for p is given our profile.
func ownProfile(e *engine, p *plan) bool { return p.held != nil && e.kind == RuntimeDocker && e.stock }

// holds gives b what holding names takes.
func (b *createBody) holds(e *engine, p *plan) error {
	if !ownProfile(e, p) {
		return nil
	}
	text, err := profile()
	if err != nil {
		return err
	}
	b.HostConfig.SecurityOpt = append(b.HostConfig.SecurityOpt, "seccomp="+text)
	return nil
}
