package mediator

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"ringfence/internal/sandbox"
)

// The kernel refuses most things without telling anybody but the program. What follows
// reads it off what programs say about that, and marks it as not observed.

const (
	maxInferred = 16
	maxObject   = 200 // bytes
)

// The settings that a denial can point to.
const (
	fixWorkspace = `"workspace": "rw" in the "ringfence" settings of this server`
	fixProfile   = `"profile": "agent" in the "ringfence" settings of this server`
	fixPaths     = `the path in "paths" of the "ringfence" settings of this server`
	fixTimeout   = `a longer "timeout" in the "ringfence" settings of this server`
)

// A symptom is what programs print when something is refused, in lower case.
type symptom struct {
	text string
	op   string
	// rule returns what refused an object, and the setting that would allow it; ""
	// if it was not the box.
	rule func(b sandbox.Spec, object string) (rule, fix string)
}

var symptoms = []symptom{
	{"read-only file system", "write", whyReadOnly},
	{"permission denied", "open", whyNotPermitted},
	{"operation not permitted", "use", whyNotPermitted},
	{"no such file or directory", "open", whyNotThere},
	{"could not resolve host", "connect", whyNoNetwork},
	{"couldn't resolve host", "connect", whyNoNetwork},
	{"failed to connect to", "connect", whyNoNetwork},
	{"temporary failure in name resolution", "connect", whyNoNetwork},
	{"network is unreachable", "connect", whyNoNetwork},
	{"unable to resolve host", "connect", whyNoNetwork},
	{"eai_again", "connect", whyNoNetwork},
	{"cannot allocate memory", "memory", whyNoMemory},
	{"failed to reserve page summary memory", "memory", whyNoMemory}, // Go
	{"failed to reserve virtual memory", "memory", whyNoMemory},      // V8
	{"out of memory", "memory", whyNoMemory},
	{"memoryerror", "memory", whyNoMemory},
	{"too many open files", "open", func(b sandbox.Spec, _ string) (string, string) {
		return limitRule(b, "a process may have %d descriptors", int64(b.Bounds().Descriptors))
	}},
	{"resource temporarily unavailable", "fork", func(b sandbox.Spec, _ string) (string, string) {
		return limitRule(b, "the box may have %d processes", int64(b.Bounds().Processes))
	}},
}

func limitRule(b sandbox.Spec, rule string, limit int64) (string, string) {
	if limit == sandbox.Unlimited {
		return "", ""
	}
	return fmt.Sprintf(rule, limit), fixOf(b)
}

// fixOf is the setting that lifts the limits of a box, "" if they are lifted.
func fixOf(b sandbox.Spec) string {
	if b.Profile == sandbox.ProfileAgent {
		return ""
	}
	return fixProfile
}

func whyNoMemory(b sandbox.Spec, _ string) (string, string) {
	return limitRule(b, "a process may have %d bytes of address space", b.Bounds().AddressSpace)
}

func whyNoNetwork(_ sandbox.Spec, host string) (string, string) {
	if host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.") {
		return "", "" // a box has its own
	}
	return "commands have no network", ""
}

// given reports whether a box was given a path, and whether it may change it.
func given(b sandbox.Spec, path string) sandbox.Mode {
	lies := func(dir string) bool { return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }
	switch {
	case lies(b.Workspace.Path):
		return b.Workspace.Mode
	case slices.ContainsFunc(b.ReadWrite, lies):
		return sandbox.ReadWrite
	case slices.ContainsFunc(b.ReadOnly, lies):
		return sandbox.ReadOnly
	}
	return sandbox.NoAccess
}

func whyReadOnly(b sandbox.Spec, object string) (string, string) {
	if given(b, object) == sandbox.ReadOnly {
		return "the workspace is read-only for commands", fixWorkspace
	}
	return "what belongs to the machine is read-only in a box", ""
}

// own are directories that a box has of its own, where what is refused is not refused
// by it.
var own = []string{"/tmp", "/var/tmp", "/dev", "/proc"}

func whyNotPermitted(b sandbox.Spec, object string) (string, string) {
	if !filepath.IsAbs(object) || given(b, object) != sandbox.NoAccess || beneathAny(object, own) {
		return "", ""
	}
	return "a box does not open what belongs to the machine and is not for everybody", ""
}

func whyNotThere(b sandbox.Spec, object string) (string, string) {
	if !filepath.IsAbs(object) || given(b, object) != sandbox.NoAccess || beneathAny(object, own) || ofSystem(object) {
		return "", ""
	}
	return "whether it is there or not: a box has nothing outside the workspace that it was not given", fixPaths
}

func beneathAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

// quoted is the last thing in quotes.
var quoted = regexp.MustCompile(`['"‘“]([^'"‘’“”]+)['"’”][^'"‘’“”]*$`)

// inferDenials returns what the box refused, as far as standard error tells.
func inferDenials(b sandbox.Spec, stderr string) []sandbox.Denial {
	var all []sandbox.Denial
	for line := range strings.Lines(stderr) {
		line = strings.TrimSpace(line)
		folded := strings.ToLower(line)
		for _, s := range symptoms {
			at := strings.Index(folded, s.text)
			if at < 0 || len(folded) != len(line) {
				continue
			}
			object := objectOf(b, s.op, line[:at], line[at+len(s.text):])
			rule, fix := s.rule(b, object)
			if rule == "" {
				break
			}
			all = add(all, sandbox.Denial{Op: s.op, Object: object, Rule: rule, Fix: fix, Count: 1})
			break
		}
	}
	return all
}

func add(all []sandbox.Denial, d sandbox.Denial) []sandbox.Denial {
	for i := range all {
		if all[i].Op == d.Op && all[i].Object == d.Object && all[i].Rule == d.Rule {
			all[i].Count++
			return all
		}
	}
	if len(all) == maxInferred {
		return all
	}
	return append(all, d)
}

// objectOf is what a message is about: what stands in quotes, else what stands between
// the last colons before the symptom, or behind it.
func objectOf(b sandbox.Spec, op, before, after string) string {
	var object string
	switch m, n := quoted.FindStringSubmatch(before), quoted.FindStringSubmatch(after); {
	case m != nil:
		object = m[1]
	case n != nil:
		object = n[1]
	case op == "connect" && behind(after) != "":
		object = behind(after)
	default:
		before = strings.TrimRight(before, ": ([")
		object = strings.TrimSpace(before[strings.LastIndex(before, ": ")+1:])
		object = strings.TrimSpace(strings.TrimPrefix(object, ":"))
	}
	if op == "memory" || op == "fork" {
		object = "the command"
	}
	if len(object) > maxObject {
		object = strings.ToValidUTF8(object[:maxObject], "") + "…"
	}
	if (op == "write" || op == "open") && object != "" && !filepath.IsAbs(object) && !strings.Contains(object, " ") {
		object = filepath.Join(b.WorkingDir(), object)
	}
	return object
}

// behind is the host in ": HOST" and "name HOST: …".
func behind(after string) string {
	words := strings.Fields(strings.TrimPrefix(strings.TrimPrefix(after, "name"), ":"))
	if len(words) == 0 {
		return ""
	}
	return strings.Trim(words[0], ":.()")
}

// The signals of limits (signal(7)), by themselves or as the status of a shell whose
// command they ended.
const (
	sigKill = 9
	sigXCPU = 24
)

// endNote says how the box ended a command, "" if it did not.
func endNote(ctx context.Context, b sandbox.Spec, exit sandbox.Exit) string {
	bounds := b.Bounds()
	by := func(signal int) bool {
		return exit.Cause == sandbox.CauseSignal && exit.Signal == signal || exit.Cause == sandbox.CauseExit && exit.Code == 128+signal
	}
	switch {
	case exit.Cause == sandbox.CauseDeadline:
		return fmt.Sprintf("the box ended it: its time of %s was over; to allow more: %s, and timeout_seconds not shorter", bounds.Wall, fixTimeout)
	case exit.Cause == sandbox.CauseKill:
		return fmt.Sprintf("the box ended it: %v", context.Cause(ctx))
	case by(sigXCPU) || by(sigKill) && bounds.CPU != sandbox.Unlimited:
		return fmt.Sprintf("it was ended by a limit of the box, probably that of %s of processor time; to allow more: %s, or %s", bounds.CPU, fixTimeout, fixProfile)
	}
	return ""
}
