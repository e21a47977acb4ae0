package native

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
	"ringfence/internal/sandbox/native/readback"
)

// spaces are the namespaces of a box, by the name of the link under /proc/<pid>/ns.
var spaces = map[string]string{
	"user": sandbox.LayerUserNamespace, "mnt": sandbox.LayerMountNamespace, "pid": sandbox.LayerPIDNamespace,
	"net": sandbox.LayerNetworkNamespace, "ipc": sandbox.LayerIPCNamespace, "uts": sandbox.LayerUTSNamespace,
	"cgroup": sandbox.LayerCgroupNamespace,
}

// layerSockets is what keeps the program from services of the host whose sockets lie in
// a tree that it sees.
const layerSockets = "held-sockets"

// limitNames are the limits as /proc/<pid>/limits calls them.
var limitNames = map[int]string{
	unix.RLIMIT_CORE: "Max core file size", unix.RLIMIT_CPU: "Max cpu time", unix.RLIMIT_AS: "Max address space",
	unix.RLIMIT_NOFILE: "Max open files", unix.RLIMIT_NPROC: "Max processes",
	unix.RLIMIT_SIGPENDING: "Max pending signals",
}

// readBack judges what the kernel says of the program's process, which is confined and
// waits, and of pid 1. What was asked for and is not there is an error: the kernel did
// something else than it said.
func (b *builder) readBack() error {
	r := &reporter{r: sandbox.Report{Tier: TierName, Evidence: map[string]string{}}}
	if !b.plain {
		r.namespaces(b.facts, b.ours, b.plan.open)
	}
	r.landlock(b.setup)
	r.process(b.facts, !b.plain)
	if b.plain {
		r.plain(b.because, b.setup.traced, b.box.temp)
	}
	if err := r.network(b.facts.PID, b.spec); err != nil {
		return err
	}
	r.limits(b.facts, b.plan.limits)
	r.group(b.box.leaf, b.facts)
	r.shared(b.shared)
	r.sockets(b.plan.hold, b.setup)
	r.workspace(b.spec.Workspace, b.facts, b.plain)
	r.home(b.spec.Home, b.facts)
	if b.plan.hold.names {
		r.r.Inferred = append(r.r.Inferred, sandbox.LayerHeld)
		r.r.Evidence[sandbox.LayerHeld] = "the filter hands calls that make and change names to pid 1; writable trees are not writable to the program itself; nor is a file with names that may lie outside"
		r.r.Evidence[sandbox.LayerHeld] += b.plan.hold.followed()
		if b.setup.abi < landlockTSync {
			r.r.Evidence[sandbox.LayerHeld] += "; pid 1, which stands in for them, is under its filter but not under Landlock"
		}
	}
	own, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", b.box.stage.Pid))
	if err != nil {
		return err
	}
	for _, line := range []string{"\nSeccomp:\t2\n", "\nNoNewPrivs:\t1\n"} {
		if !strings.Contains(string(own), line) {
			r.lacks(sandbox.LayerSeccomp, "pid 1 of the box does not say "+strings.TrimSpace(line))
		}
	}
	b.box.report = r.r
	return errors.Join(r.wrong...)
}

// plain says what a box without namespaces does not hold: what Landlock and the filter
// cannot keep from the program, which reads the contents of nothing by it.
func (r *reporter) plain(because error, traced bool, temp string) {
	how := fmt.Sprintf("%v; to have them: %s", because, howToNamespaces())
	r.r.Missing = append(r.r.Missing, sandbox.LayerMountNamespace, sandbox.LayerPIDNamespace)
	r.r.Evidence[sandbox.LayerUserNamespace] = how
	r.r.Evidence[sandbox.LayerMountNamespace] = "names, sizes and times of files outside stay visible: " + how
	if temp != "" {
		r.r.Evidence[sandbox.LayerMountNamespace] += "; /tmp is that of the machine, and cannot be changed: TMPDIR is " + temp + ", which is the box's own and goes with it"
	}
	r.r.Evidence[sandbox.LayerPIDNamespace] = "numbers and owners of processes outside stay visible: " + how
	if traced {
		r.r.Inferred = append(r.r.Inferred, layerTree)
		r.r.Evidence[layerTree] = "what runs in the box is traced by the process that stands above it, and killed by the kernel when that one is gone (PTRACE_O_EXITKILL); so nothing in the box can trace another"
		return
	}
	r.r.Missing = append(r.r.Missing, layerTree)
	r.r.Evidence[layerTree] = "processes may not be traced here (kernel.yama.ptrace_scope, or the filter of a container): if ringfence and the process above the box are killed in the same moment, what has left its session lives on, confined; " + how
}

// followed says what is held because something leads there.
func (h holding) followed() string {
	const most = 16
	var b strings.Builder
	for i, p := range h.led {
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(h.led)-most)
			break
		}
		fmt.Fprintf(&b, ", %q (%s)", p, h.by[i])
	}
	text := ""
	if b.Len() > 0 {
		text = "; held because configuration or a link leads there: " + b.String()[2:]
	}
	for _, l := range h.unseen {
		text += "; " + l.Object + ": " + l.By
	}
	return text
}

// shared says that the limit of processes is one of all that the user has.
func (r *reporter) shared(had int64) {
	if had == 0 {
		return
	}
	r.r.Evidence[sandbox.LayerRlimits] += fmt.Sprintf("; the limit of processes is one of all that this user has, who had %d: where others of his start many more, the box can start none", had)
}

// sockets says how the sockets of the host are held back.
func (r *reporter) sockets(h holding, s setup) {
	if !h.sockets {
		r.r.Evidence[layerSockets] = "the filter lets the program make no Unix sockets but connected pairs"
		return
	}
	how := "the filter hands connect and bind to pid 1, which connects to sockets that the box bound, to those on its own file systems in memory"
	if len(h.reachable) > 0 {
		how += ", to " + strings.Join(h.reachable, " ")
	}
	how += ", and to nothing else by path; Unix datagram sockets cannot be made"
	if s.abi >= landlockConnect {
		how += "; Landlock refuses the program itself"
	}
	r.r.Inferred = append(r.r.Inferred, layerSockets)
	r.r.Evidence[layerSockets] = how
}

// landlockConnect is the version of Landlock that holds back connections by path.
const landlockConnect = 9

// A reporter collects what was confirmed.
type reporter struct {
	r     sandbox.Report
	wrong []error
}

func (r *reporter) has(layer, detail, evidence string) {
	r.r.Evidence[layer] = evidence
	if detail != "" {
		layer += "=" + detail
	}
	r.r.Enforced = append(r.r.Enforced, layer)
}

func (r *reporter) lacks(layer, evidence string) {
	r.wrong = append(r.wrong, fmt.Errorf("%s is not in force: %s", layer, evidence))
}

func (r *reporter) namespaces(f, ours readback.Facts, open bool) {
	differ := f.Against(ours)
	for _, name := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		evidence := fmt.Sprintf("inode %d, ours is %d", f.Namespaces[name], ours.Namespaces[name])
		switch {
		case slices.Contains(differ, name):
			r.has(spaces[name], "", evidence)
		case name == "net" && open:
			r.r.Missing = append(r.r.Missing, spaces[name])
			r.r.Evidence[spaces[name]] = evidence + ": the network of this machine, as was asked for; nothing of it is held"
		default:
			r.lacks(spaces[name], evidence)
		}
	}
	if len(f.UID) > 0 && f.UID[0] != 0 && f.UID[1] != 0 && f.UID[2] != 0 && f.UID[3] != 0 {
		r.has(sandbox.LayerUnprivileged, "", fmt.Sprintf("Uid: %d, seen from outside", f.UID[1]))
	}
	r.mounts(f)
}

// mounts adds to what is known of the mount namespace what can be written in it.
func (r *reporter) mounts(f readback.Facts) {
	if f.Hidden["mounts"] != nil || len(f.Mounts) == 0 {
		return
	}
	var writable []string
	for _, m := range f.Mounts {
		if m.Propagates() {
			r.lacks(sandbox.LayerMountNamespace, "mounts propagate at "+m.Point)
		}
		if !m.Has("nosuid") {
			r.lacks(sandbox.LayerMountNamespace, "set-user-ID programs work at "+m.Point)
		}
		if !m.ReadOnly() && !beneath(m.Point, "/dev") {
			writable = append(writable, m.Point)
		}
	}
	r.r.Evidence[sandbox.LayerMountNamespace] += fmt.Sprintf("; %d mounts, none propagates, all nosuid; writable: %s",
		len(f.Mounts), strings.Join(writable, " "))
}

func (r *reporter) landlock(s setup) {
	r.has(sandbox.LayerLandlock, fmt.Sprintf("abi%d", s.abi),
		"a file that opened before did not open under it (EACCES); held back: "+strings.Join(s.handled, " "))
}

// process judges what is in the status of the process. An ordinary user without a user
// namespace cannot empty the bounding set: then not all sets have to be empty.
func (r *reporter) process(f readback.Facts, all bool) {
	evidence := fmt.Sprintf("Seccomp: %d, filters: %d", f.Seccomp, f.SeccompFilters)
	if f.Seccomp == readback.SeccompFilter {
		r.has(sandbox.LayerSeccomp, "", evidence)
	} else {
		r.lacks(sandbox.LayerSeccomp, evidence)
	}
	if f.NoNewPrivs {
		r.has(sandbox.LayerNoNewPrivileges, "", "NoNewPrivs: 1")
	} else {
		r.lacks(sandbox.LayerNoNewPrivileges, "NoNewPrivs: 0")
	}
	evidence = fmt.Sprintf("CapInh: %x, CapPrm: %x, CapEff: %x, CapBnd: %x, CapAmb: %x",
		f.Caps.Inheritable, f.Caps.Permitted, f.Caps.Effective, f.Caps.Bounding, f.Caps.Ambient)
	caps := f.Caps
	if !all && f.NoNewPrivs {
		caps.Bounding = 0 // bounds what set-user-ID programs get, of which there are none
	}
	if caps.None() {
		r.has(sandbox.LayerNoCapabilities, "", evidence)
	} else {
		r.lacks(sandbox.LayerNoCapabilities, evidence)
	}
}

func (r *reporter) limits(f readback.Facts, want []limit) {
	if f.Hidden["limits"] != nil {
		r.lacks(sandbox.LayerRlimits, fmt.Sprint(f.Hidden["limits"]))
		return
	}
	var names, values []string
	for _, l := range want {
		got := f.Limits[limitNames[l.resource]]
		if got.Soft != uint64(l.value) || got.Hard != uint64(l.value) {
			r.lacks(sandbox.LayerRlimits, fmt.Sprintf("%s is %d, hard %d, not %d", l.name, got.Soft, got.Hard, l.value))
		}
		names = append(names, strings.ReplaceAll(l.name, " ", "-"))
		values = append(values, fmt.Sprintf("%s: %d", limitNames[l.resource], got.Hard))
	}
	r.has(sandbox.LayerRlimits, strings.Join(names, ","), strings.Join(values, ", "))
}

// group says what the control group limits, and what it could not.
func (r *reporter) group(leaf *cgroup.Leaf, f readback.Facts) {
	for _, dir := range leaf.Dirs() {
		in := func(c readback.Cgroup) bool { return filepath.Base(c.Path) == filepath.Base(dir) }
		if f.Hidden["cgroups"] == nil && !slices.ContainsFunc(f.Cgroups, in) {
			r.lacks(sandbox.LayerCgroup, "the program is not in "+dir)
		}
	}
	if held := leaf.Enforced(); len(held) > 0 {
		r.has(sandbox.LayerCgroup, strings.Join(held, ","), strings.Join(leaf.Dirs(), " "))
	}
	missing := leaf.Missing()
	for _, what := range []string{cgroup.Memory, cgroup.PIDs, cgroup.CPU} {
		why, ok := missing[what]
		if !ok {
			continue
		}
		layer := sandbox.LayerCgroup + "=" + what
		r.r.Evidence[layer] = why
		if what == cgroup.PIDs {
			continue // the resource limit holds it
		}
		r.r.Missing = append(r.r.Missing, layer)
	}
}
