package container

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/readback"
)

// A judge compares what the kernel says of a container with what was asked for.
type judge struct {
	limitless bool // limits that are not in force are missing, and no error
	e         *engine
	p         *plan
	tmpfs     map[string]string
	inside    facts
	outside   facts // completed by inside
	ours      facts
	cg        cgroup
	paths     []pathAccount // of p.mounts, in that order
	held      *held         // what the stage tried; nil where no names are held

	spec sandbox.Spec
	pid  int // of the init

	report sandbox.Report
	wrong  []error
}

// verdict returns the report, or everything that is not as it should be (K2).
func (j *judge) verdict() (sandbox.Report, error) {
	j.report.Tier = Name
	j.report.Evidence = map[string]string{}
	j.enforced(sandbox.LayerContainer, j.e.evidence())
	j.namespaces()
	j.privileges()
	j.user()
	j.rlimits()
	j.cgroups()
	j.network()
	j.mounts()
	j.names()
	if len(j.wrong) > 0 {
		return sandbox.Report{}, fmt.Errorf("the container is not as it was asked for: %w", errors.Join(j.wrong...))
	}
	return j.report, nil
}

// enforced adds a layer, perhaps with a detail after "=".
func (j *judge) enforced(layer, evidence string) {
	j.report.Enforced = append(j.report.Enforced, layer)
	name, _, _ := strings.Cut(layer, "=")
	j.report.Evidence[name] = evidence
}

func (j *judge) inferred(layer, evidence string) {
	j.report.Inferred = append(j.report.Inferred, layer)
	name, _, _ := strings.Cut(layer, "=")
	j.report.Evidence[name] = evidence
}

// fail notes what is wrong with a layer.
func (j *judge) fail(layer, format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Errorf("%s: "+format, append([]any{layer}, args...)...))
}

func (j *judge) namespaces() {
	for _, n := range []struct {
		name, layer string
		needed      bool
	}{
		{"mnt", sandbox.LayerMountNamespace, true},
		{"pid", sandbox.LayerPIDNamespace, true},
		{"net", sandbox.LayerNetworkNamespace, true},
		{"ipc", sandbox.LayerIPCNamespace, true},
		{"uts", sandbox.LayerUTSNamespace, true},
		{"cgroup", sandbox.LayerCgroupNamespace, false},
		{"user", sandbox.LayerUserNamespace, false},
	} {
		its, ours := j.outside.NS[n.name], j.ours.NS[n.name]
		switch {
		case its != "" && ours != "" && its != ours:
			j.enforced(n.layer, fmt.Sprintf("%s, ours is %s", its, ours))
		case n.needed:
			j.fail(n.layer, "the kernel says %q, and ours is %q", its, ours)
		default:
			j.report.Evidence[n.layer] = fmt.Sprintf("none of its own: %s", its)
		}
	}
}

func (j *judge) privileges() {
	mode, count := statusOf(j.outside.Status, "Seccomp"), statusOf(j.outside.Status, "Seccomp_filters")
	switch {
	// One is the engine's, one ours. Kernels before 5.10 do not count them.
	case slices.Equal(mode, []string{"2"}) && (len(count) == 0 || count[0] != "0" && count[0] != "1"):
		j.enforced(sandbox.LayerSeccomp, fmt.Sprintf("Seccomp: 2, filters: %s, of the engine's default profile and ours", strings.Join(count, "")))
	default:
		j.fail(sandbox.LayerSeccomp, "Seccomp: %q, filters: %q", mode, count)
	}
	if nnp := statusOf(j.outside.Status, "NoNewPrivs"); slices.Equal(nnp, []string{"1"}) {
		j.enforced(sandbox.LayerNoNewPrivileges, "NoNewPrivs: 1")
	} else {
		j.fail(sandbox.LayerNoNewPrivileges, "NoNewPrivs: %q", nnp)
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		if c := statusOf(j.outside.Status, set); len(c) != 1 || strings.Trim(c[0], "0") != "" {
			j.fail(sandbox.LayerNoCapabilities, "%s: %q", set, c)
			return
		}
	}
	j.enforced(sandbox.LayerNoCapabilities, "all five sets are 0")
}

func (j *judge) user() {
	const layer = sandbox.LayerUnprivileged
	in, gin := statusOf(j.inside.Status, "Uid"), statusOf(j.inside.Status, "Gid")
	out := statusOf(j.outside.Status, "Uid")
	want := strconv.FormatUint(j.p.uid, 10)
	if !slices.Equal(in, slices.Repeat([]string{want}, 4)) {
		j.fail(layer, "inside it is user %q, not %s", in, want)
		return
	}
	group := strconv.FormatUint(j.p.gid, 10)
	if !slices.Equal(gin, slices.Repeat([]string{group}, 4)) {
		j.fail(layer, "inside it has the group %q, not %s", gin, group)
		return
	}
	for _, g := range statusOf(j.inside.Status, "Groups") {
		if g != group {
			j.fail(layer, "inside it is in the group %s too", g)
		}
	}
	if len(out) != 4 || slices.Contains(out, "0") || !slices.Equal(out, slices.Repeat(out[:1], 4)) {
		j.fail(layer, "on the machine it is user %q", out)
		return
	}
	for _, m := range j.p.mounts {
		if fi, err := m.opened.Stat(); err != nil {
			j.fail(layer, "asking whose %s is: %w", m.target, err)
		} else if uid, _, _ := ownership(fi); !m.readOnly && !m.mapped && fi.Mode().Perm()&0o002 == 0 && strconv.FormatUint(uid, 10) != out[0] {
			j.fail(layer, "on the machine it is user %s, and %s belongs to %d", out[0], m.target, uid)
		}
	}
	evidence := fmt.Sprintf("user %s inside, %s on the machine", want, out[0])
	if j.p.mapped {
		evidence += "; what belongs to others among the files that it is given looks like its own, and stays theirs"
	}
	j.enforced(layer, evidence)
}

func (j *judge) rlimits() {
	want := []struct {
		name  string
		value uint64
		set   bool
	}{
		{"Max core file size", 0, true},
		{"Max cpu time", j.p.limits.CPU, j.p.limits.CPU > 0},
		{"Max address space", j.p.limits.AddressSpace, j.p.limits.AddressSpace > 0},
		{"Max open files", j.p.limits.Descriptors, j.p.limits.Descriptors > 0},
	}
	var said []string
	for _, w := range want {
		if !w.set {
			continue
		}
		soft, hard := limitOf(j.outside.Limits, w.name)
		if v := strconv.FormatUint(w.value, 10); soft != v || hard != v {
			j.fail(sandbox.LayerRlimits, "%s is %q soft, %q hard, not %s", w.name, soft, hard, v)
		}
		said = append(said, strings.TrimPrefix(w.name, "Max ")+" "+soft)
	}
	j.enforced(sandbox.LayerRlimits, strings.Join(said, ", ")+", soft and hard")
}

// pageSize is what the kernel rounds a limit of memory down to.
func pageSize() int64 { return int64(os.Getpagesize()) }

func (j *judge) cgroups() {
	const layer = sandbox.LayerCgroup
	fix := ""
	if j.e.rootless {
		fix = "; a rootless engine can limit only with cgroup v2 and delegation of the controllers, see its manual"
	}
	var held, unknown, said []string
	check := func(name string, set bool, got, want string, evidence string) {
		switch {
		case !set:
		case got == want:
			held, said = append(held, name), append(said, evidence)
		case j.cg[name] == "":
			unknown = append(unknown, name)
		case j.limitless:
			j.report.Missing = append(j.report.Missing, layer+"="+name)
		default:
			j.fail(layer, "the limit of %s is %q, not %s%s", name, got, want, fix)
		}
	}
	memory := strconv.FormatInt(j.p.memory/pageSize()*pageSize(), 10)
	check("memory", j.p.memory > 0, j.cg.value("memory", "memory.limit_in_bytes", "memory.max"), memory,
		memory+" bytes, "+j.cg.swapIsOff(j.p.memory))
	pids := strconv.FormatInt(j.p.pidsLimit(j.e), 10)
	check("pids", j.p.pids > 0, j.cg.value("pids", "pids.max"), pids, fmt.Sprintf("%s threads, %d of them for the init", pids, initThreads))
	quota := j.cg.cpuQuota()
	if diff := quota - j.p.cpus; diff > -j.p.cpus/100 && diff < j.p.cpus/100 {
		quota = j.p.cpus // microseconds are rounded
	}
	cpus := strconv.FormatInt(j.p.cpus, 10)
	check("cpu", true, strconv.FormatInt(quota, 10), cpus, fmt.Sprintf("%g processors", float64(j.p.cpus)/1e9))
	if len(held) > 0 {
		j.enforced(layer+"="+strings.Join(held, ","), strings.Join(said, "; "))
	}
	if len(unknown) > 0 {
		evidence := "set by the engine; their files are not visible here"
		if len(held) > 0 {
			evidence = j.report.Evidence[layer] + "; " + strings.Join(unknown, ",") + ": " + evidence
		}
		j.inferred(layer+"="+strings.Join(unknown, ","), evidence)
	}
}

func (j *judge) network() {
	if names := interfacesOf(j.outside.Net); !slices.Equal(names, []string{"lo"}) {
		j.fail(sandbox.LayerNetworkNamespace, "it has the interfaces %q, not lo alone", names)
		return
	}
	j.report.Evidence[sandbox.LayerNetworkNamespace] += "; no interface but lo"
	if j.spec.Network != sandbox.NetworkPolicy {
		return
	}
	n, err := readback.ReadNetwork(j.pid)
	if err != nil {
		j.fail(sandbox.LayerNetwork, "%v", err)
		return
	}
	seen := sandbox.Seen{Interfaces: n.Interfaces, Routes: n.Routes, Local: n.Local}
	for _, l := range n.Listening {
		seen.Listening = append(seen.Listening, l.String())
	}
	evidence, err := j.spec.Judge(seen)
	if err != nil {
		j.fail(sandbox.LayerNetwork, "%v", err)
		return
	}
	j.enforced(sandbox.LayerNetwork+"="+string(sandbox.NetworkPolicy), evidence)
}

// theirs are the mounts that every engine makes: of the kernel's own file systems,
// and over files of the image.
func theirs(target string) bool {
	for _, dir := range []string{"/proc", "/sys", "/dev"} {
		if target == dir || isBeneath(target, dir) {
			return true
		}
	}
	return slices.Contains([]string{"/", initPath, controlPath}, target)
}

// ofImage are the files that an engine lays over the image's, read-only like it.
// Podman adds a user that the image does not know to the last two.
var ofImage = []string{"/etc/hosts", "/etc/hostname", "/etc/resolv.conf", "/run/.containerenv", "/etc/passwd", "/etc/group"}

func (j *judge) mounts() {
	points, err := parseMountinfo(strings.NewReader(j.outside.Mounts))
	if err != nil || len(points) == 0 {
		j.fail(LayerMounts, "its mounts cannot be read")
		return
	}
	at := map[string]mountPoint{}
	for _, m := range points { // of several at one place the last is on top
		at[m.target] = m
	}
	if at["/"].has("ro") {
		j.enforced(LayerReadOnlyRoot, "/ is mounted ro")
	} else {
		j.fail(LayerReadOnlyRoot, "/ is mounted %q", at["/"].options)
	}
	known := map[string]bool{}
	var without []string
	for i, m := range j.p.mounts {
		known[m.target] = true
		j.mount(m, at[m.target], j.paths[i])
		if point := at[m.target]; !m.denied && !(point.has("nosuid") && point.has("nodev")) {
			without = append(without, m.target)
		}
	}
	if len(without) > 0 {
		j.withoutOptions(without)
	}
	for target, options := range j.tmpfs {
		known[target] = true
		mode := options[:2] // "ro" or "rw"
		m := at[target]
		if m.fstype != "tmpfs" || !m.has(mode) || !m.has("noexec") || !m.has("nosuid") || !m.has("nodev") {
			j.fail(LayerMounts, "%s is mounted %s %q, not tmpfs %s", target, m.fstype, m.options, options)
		}
	}
	for _, m := range points {
		switch {
		case known[m.target] || theirs(m.target):
		case slices.Contains(ofImage, m.target) && m.has("ro"):
		default:
			j.fail(LayerMounts, "something is mounted at %s that nobody asked for; look for mounts in the settings of the engine", m.target)
		}
	}
	j.enforced(LayerMounts, fmt.Sprintf("%d of the Spec, each with the device and inode of what it names; /tmp noexec,nosuid,nodev; no others", len(j.p.mounts)))
	if j.p.copy != "" {
		j.enforced(sandbox.LayerWorkspace+"=copy", j.p.copyEvidence())
	}
	if j.p.homeFrom != "" {
		j.enforced(sandbox.LayerHome+"=own", j.p.homeEvidence())
	}
}

// withoutOptions judges mounts that lack nosuid or nodev.
func (j *judge) withoutOptions(targets []string) {
	if j.e.kind != RuntimeDocker || j.p.attached {
		j.fail(LayerMounts, "%q are not mounted nosuid and nodev", targets)
		return
	}
	j.report.Missing = append(j.report.Missing, LayerMountOptions)
	j.report.Evidence[LayerMountOptions] = fmt.Sprintf("Docker cannot be asked to mount %q nosuid and nodev, and only root can do it in its place; "+
		"no-new-privileges and the devices of the container keep what is there from working", targets)
}

// mount judges one of the plan's.
func (j *judge) mount(m mount, point mountPoint, a pathAccount) {
	mode := "rw"
	if m.readOnly {
		mode = "ro"
	}
	switch {
	case point.target == "" || !point.has(mode):
		j.fail(LayerMounts, "%s is mounted %q, not %s", m.target, point.options, mode)
	case a.Failed != "" && a.ID == fileID{} && !m.denied:
		j.fail(LayerMounts, "%s cannot be reached by user %d of the box: %s; a directory above it, in the image, lets nobody through: use the tier native, or keep it elsewhere", m.target, j.p.uid, a.Failed)
	case m.id == fileID{} || a.ID != m.id:
		j.fail(LayerMounts, "%s is not the file that was named: it was replaced meanwhile", m.target)
	case a.Failed != "" && !m.denied:
		j.fail(LayerMounts, "%s cannot be used by user %d of the box: %s; let others use it (chmod o+rX), or use the tier native", m.target, j.p.uid, a.Failed)
	}
}
