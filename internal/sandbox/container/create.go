package container

import (
	"path/filepath"
	"strconv"
	"strings"

	"ringfence/internal/sandbox"
)

// Sizes of what a container gets in memory.
const (
	defaultTemp = 256 << 20 // of /tmp, without a limit of memory; else half of it
	sharedMem   = 64 << 20  // of /dev/shm
)

// Paths of our own files in a container.
const (
	initPath    = ownDir + "/init"
	controlPath = ownDir + "/control"
)

// maxUserProcs is the limit of processes of one user on the whole machine, which an
// engine would else raise to a default of its own that it may not be allowed to
// give. What counts for a box is the limit of its cgroup.
const maxUserProcs = 1 << 15

// hostname is what every box is called inside.
const hostname = "box"

// initThreads is how many threads our own init may have, beside those of the
// program.
const initThreads = 12

// body returns what a container for p is made from. What runs in it is added by
// [createBody.runInit] or [createBody.runProgram].
func (p *plan) body(e *engine, image imageAnswer, lease map[string]string) createBody {
	b := createBody{
		Image:           image.ID,
		User:            strconv.FormatUint(p.uid, 10) + ":" + strconv.FormatUint(p.gid, 10),
		WorkingDir:      "/",
		Hostname:        hostname,
		NetworkDisabled: e.local, // Docker then leaves the files of names alone
		Labels:          lease,
		StopTimeout:     1,
	}
	h := &b.HostConfig
	h.NetworkMode = "none"
	h.ReadonlyRootfs = true
	h.CapDrop = []string{"ALL"}
	h.SecurityOpt = []string{"no-new-privileges"} // seccomp and AppArmor: the engine's defaults (K4)
	if e.selinux {
		h.SecurityOpt = append(h.SecurityOpt, "label=disable")
	}
	if p.memory > 0 {
		h.Memory, h.MemorySwap = p.memory, p.memory // both together: no swap
	}
	h.NanoCPUs = p.cpus
	if pids := p.pidsLimit(e); pids > 0 {
		h.PidsLimit = &pids
	}
	h.IpcMode = "private"
	h.CgroupnsMode = "private"
	h.UsernsMode = p.userns
	h.LogConfig.Type = "none"
	h.ShmSize = sharedMem
	h.Ulimits = []ulimit{{"core", 0, 0}, {"nproc", maxUserProcs, maxUserProcs}}
	h.Tmpfs = p.tmpfs(e, image)
	for _, m := range p.mounts {
		h.bind(e, m.source, m.target, m.readOnly)
	}
	b.Env = unsetAll(e, image)
	return b
}

// pidsLimit is the limit of threads in the container; 0 for none.
func (p *plan) pidsLimit(e *engine) int64 {
	if p.pids > 0 && e.local {
		return p.pids + initThreads
	}
	return p.pids
}

// tmpfs are the file systems in memory: /tmp, and an empty one over whatever else
// the engine or the image would make writable.
func (p *plan) tmpfs(e *engine, image imageAnswer) map[string]string {
	temp := int64(defaultTemp)
	if p.memory > 0 {
		temp = p.memory / 2
	}
	const options = ",noexec,nosuid,nodev,size="
	empty := "ro" + options + "4096"
	all := map[string]string{"/tmp": "rw" + options + strconv.FormatInt(temp, 10) + ",mode=1777"}
	for v := range image.Config.Volumes {
		all[v] = empty
	}
	if e.kind == RuntimePodman { // which would make these writable, though the root is not
		all["/run"], all["/var/tmp"] = empty, empty
	}
	for _, m := range p.mounts {
		delete(all, m.target)
	}
	return all
}

// bind adds a mount of a file or tree, without what is mounted beneath it. Podman
// can be asked for nosuid and nodev. Docker cannot: not for a bind, and with a volume
// that is one it forgets them where it may be written. See [attach] and
// [missingOptions].
func (h *hostConfig) bind(e *engine, source, target string, readOnly bool) {
	if e.kind == RuntimePodman {
		mode := "rw"
		if readOnly {
			mode = "ro"
		}
		h.Binds = append(h.Binds, source+":"+target+":"+mode+",bind,nosuid,nodev,rprivate")
		return
	}
	h.Mounts = append(h.Mounts, mountBody{
		Type: "bind", Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &bindOptions{Propagation: "rprivate", NonRecursive: true},
	})
}

// unsetAll takes away the variables that engine and image would set. Docker removes
// a variable that has no "="; Podman would look for its value in the environment
// of its service, so there they stay.
func unsetAll(e *engine, image imageAnswer) []string {
	if e.kind == RuntimePodman {
		return nil
	}
	unset := []string{"PATH", "HOSTNAME", "HOME", "TERM"}
	for _, v := range image.Config.Env {
		name, _, _ := strings.Cut(v, "=")
		unset = append(unset, name)
	}
	return unset
}

// runInit makes our init the container's first process. Program, arguments and
// environment never reach the engine, which writes them to disk.
func (b *createBody) runInit(e *engine, program, dir string, files int64) {
	b.Entrypoint = []string{initPath}
	b.Cmd = []string{childVerb}
	b.Env = append(b.Env, "GOMAXPROCS=1", "GOTRACEBACK=none")
	no := false
	b.HostConfig.Init = &no
	b.HostConfig.Ulimits = append(b.HostConfig.Ulimits, ulimit{"nofile", files, files})
	b.HostConfig.bind(e, program, initPath, true)
	b.HostConfig.bind(e, filepath.Join(dir, controlName), controlPath, true)
	b.HostConfig.bind(e, filepath.Join(dir, hostsName), "/etc/hosts", true) // Podman's would be a copy of the machine's
}

// Names in the directory of a box.
const (
	controlName  = "s"
	hostsName    = "hosts"
	resolverName = "resolv.conf"
)

// resolver is whom a box with a network asks for names; a person may be asked about one.
const resolver = "nameserver 127.0.0.1\noptions timeout:15 attempts:2\n"

// reach lets our init, which has no capability, listen where programs look for a resolver
// and for servers.
func (b *createBody) reach(e *engine, s sandbox.Spec, dir string) {
	if s.Network != sandbox.NetworkPolicy || !s.Ways.Any() {
		return
	}
	b.HostConfig.Sysctls = map[string]string{"net.ipv4.ip_unprivileged_port_start": "0"}
	b.HostConfig.bind(e, filepath.Join(dir, resolverName), "/etc/resolv.conf", true)
}

// hosts is how a box's own loopback is called in it.
const hosts = "127.0.0.1 localhost " + hostname + "\n::1 localhost\n"

// runProgram makes the program the child of the engine's own init, with its limits
// set by the engine: not that of address space, under which the engine itself does
// not get as far as the program.
func (b *createBody) runProgram(e *engine, s sandbox.Spec, p *plan) {
	b.Entrypoint = s.Argv[:1]
	b.Cmd = s.Argv[1:]
	b.WorkingDir = p.dir
	set := map[string]bool{}
	for _, v := range s.Env {
		name, _, _ := strings.Cut(v, "=")
		set[name] = true
	}
	env := make([]string, 0, len(b.Env)+len(s.Env))
	for _, name := range b.Env {
		if !set[name] {
			env = append(env, name)
		}
	}
	b.Env = append(env, s.Env...)
	b.AttachStdin, b.AttachStdout, b.AttachStderr = true, true, true
	b.OpenStdin, b.StdinOnce = true, true
	b.HostConfig.Init = &e.hasInit
	b.HostConfig.OomScoreAdj = maxOOMScore
	for name, v := range map[string]uint64{"nofile": p.limits.Descriptors, "cpu": p.limits.CPU} {
		if v > 0 {
			b.HostConfig.Ulimits = append(b.HostConfig.Ulimits, ulimit{name, int64(v), int64(v)})
		}
	}
}

// maxOOMScore makes the kernel end the program first when memory is short.
const maxOOMScore = 1000
