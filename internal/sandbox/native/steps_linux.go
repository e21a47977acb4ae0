package native

// childNames are the steps of the program's process by number (see spawn).
var childNames = map[int32]string{
	childSession:      "session",
	childDeath:        "death signal",
	childGroup:        "control group of the program",
	childGroupSpace:   "cgroup namespace",
	childDescriptors:  "descriptors",
	childTerminal:     "terminal",
	childDirectory:    "working directory",
	childBounding:     "bounding set",
	childSecurebits:   "secure bits",
	childCapabilities: "capabilities",
	childNoNewPrivs:   "no new privileges",
	childCanaryBefore: "canary before landlock",
	childLandlock:     "landlock",
	childCanaryAfter:  "canary under landlock",
	childSeccomp:      "seccomp",
	childExec:         stepExec,
}

// stepExec is the last step of all: what fails there is the program, not the box.
const stepExec = "exec"

// stepFirstMount is the first step that needs a capability.
const stepFirstMount = "propagation"

// stepProc is the step that fails where a container hides parts of its own /proc.
const stepProc = "mount /proc"

// childName returns the name of step n of the program's process.
func childName(p *plan, n int32) string {
	if i := int(n) - childLimits; i >= 0 && i < len(p.limits) {
		return "rlimit " + p.limits[i].name
	}
	if name, ok := childNames[n]; ok {
		return name
	}
	return "program's process"
}

// childSteps returns the names of the steps before exec.
func childSteps(p *plan) []string {
	var names []string
	for n := int32(childSession); n < childExec; n++ {
		if n >= childLimits && n < childLast && int(n)-childLimits >= len(p.limits) {
			continue
		}
		names = append(names, childName(p, n))
	}
	return names
}

// childStep returns the number of the step that p says must fail, or 0 if it is not
// one of the program's process.
func childStep(p *plan) int32 {
	for n := int32(childSession); n <= childExec; n++ {
		if p.failAt != "" && childName(p, n) == p.failAt {
			return n
		}
	}
	return 0
}
