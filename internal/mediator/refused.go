package mediator

import (
	"context"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/sandbox"
)

// The kernel refuses most things without telling anybody but the program. What follows
// reads it off what programs say about that, and marks it as not observed.

const (
	maxInferred = 16
	maxObject   = 200 // bytes
)

// A boxed is the box of a command, and who started it: a person with flags, or a server
// with settings.
type boxed struct {
	sandbox.Spec
	flags bool
}

// fix is what would allow something: a flag, or a setting.
func (b boxed) fix(flag, setting string) string {
	if b.flags {
		return flag
	}
	return setting + ` the "ringfence" settings of this server`
}

func (b boxed) fixChange(tree string) string {
	return b.fix("--rw "+tree, `"workspace": "rw" in`)
}

func (b boxed) fixProfile() string {
	return b.fix(flagProfile+", a box that may also change the workspace, if the policy lets it", `"profile": "agent" in`)
}
func (b boxed) fixTimeout() string { return b.fix("a longer --timeout", `a longer "timeout" in`) }
func (b boxed) fixPath(path string) string {
	return b.fix("--ro "+path, `the path in "paths" of`)
}

// flagProfile is what boxes say would allow a program that needs more than commands get.
const flagProfile = "--profile agent"

// told returns what a box refused as who started it can act on it.
func (b boxed) told(seen []sandbox.Denial) []sandbox.Denial {
	all := slices.Clone(seen)
	for i := range all {
		if all[i].Fix == flagProfile {
			all[i].Fix = b.fixProfile()
		}
	}
	return all
}

// Told returns what a box refused a command that a person started with flags, as that
// person can act on it.
func Told(s sandbox.Spec, seen []sandbox.Denial) []sandbox.Denial { return boxed{s, true}.told(seen) }

// Refused returns what a box refused a command that a person started with flags, as far
// as its standard error tells.
func Refused(s sandbox.Spec, stderr string) []sandbox.Denial {
	return inferDenials(boxed{s, true}, stderr)
}

// Ended says how a box ended a command that a person started with flags, "" if it did not.
func Ended(ctx context.Context, s sandbox.Spec, exit sandbox.Exit) string {
	return endNote(ctx, boxed{s, true}, exit)
}

// A symptom is what programs print when something is refused, in lower case.
type symptom struct {
	text string
	op   string
	// rule returns what refused an object, and the setting that would allow it; ""
	// if it was not the box.
	rule func(b boxed, object string) (rule, fix string)
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
	{"too many open files", "open", func(b boxed, _ string) (string, string) {
		return limitRule(b, "a process may have %d descriptors", int64(b.Bounds().Descriptors))
	}},
	{"resource temporarily unavailable", "fork", func(b boxed, _ string) (string, string) {
		return limitRule(b, "the box may have %d processes", int64(b.Bounds().Processes))
	}},
}

func limitRule(b boxed, rule string, limit int64) (string, string) {
	if limit == sandbox.Unlimited {
		return "", ""
	}
	if b.Profile == sandbox.ProfileAgent {
		return fmt.Sprintf(rule, limit), ""
	}
	return fmt.Sprintf(rule, limit), b.fixProfile()
}

func whyNoMemory(b boxed, _ string) (string, string) {
	limit := b.Bounds().AddressSpace
	if limit != sandbox.Unlimited {
		limit >>= 20
	}
	return limitRule(b, "a process may have %d MiB of address space", limit)
}

func whyNoNetwork(_ boxed, host string) (string, string) {
	if host == "localhost" || host == "::1" || strings.HasPrefix(host, "127.") {
		return "", "" // a box has its own
	}
	return "commands have no network", ""
}

// given returns what a box was given that a path lies in, and whether it may change it.
func given(b boxed, path string) (tree string, mode sandbox.Mode) {
	lies := func(dir string) bool { return path == dir || strings.HasPrefix(path, strings.TrimSuffix(dir, "/")+"/") }
	if lies(b.Workspace.Path) {
		return b.Workspace.Path, b.Workspace.Mode
	}
	if i := slices.IndexFunc(b.ReadWrite, lies); i >= 0 {
		return b.ReadWrite[i], sandbox.ReadWrite
	}
	if i := slices.IndexFunc(b.ReadOnly, lies); i >= 0 {
		return b.ReadOnly[i], sandbox.ReadOnly
	}
	return "", sandbox.NoAccess
}

// outside reports whether a path is one that a box was not given.
func outside(b boxed, path string) bool {
	_, mode := given(b, path)
	return filepath.IsAbs(path) && mode == sandbox.NoAccess && !beneathAny(path, own)
}

func whyReadOnly(b boxed, object string) (string, string) {
	tree, mode := given(b, object)
	switch {
	case mode == sandbox.ReadOnly && tree == b.Workspace.Path:
		return "the workspace is read-only for commands", b.fixChange(tree)
	case mode == sandbox.ReadOnly:
		return "it was given to be read", b.fixChange(tree)
	}
	return "what belongs to the machine is read-only in a box", ""
}

// own are directories that a box has of its own, where what is refused is not refused
// by it.
var own = []string{"/tmp", "/var/tmp", "/dev", "/proc"}

func whyNotPermitted(b boxed, object string) (string, string) {
	if !outside(b, object) {
		return "", ""
	}
	return "a box does not open what belongs to the machine and is not for everybody", ""
}

// shims are directories of programs that look for the real ones elsewhere.
var shims = regexp.MustCompile(`/\.?(pyenv|rbenv|nodenv|goenv|jenv|asdf)/`)

func whyNotThere(b boxed, object string) (string, string) {
	if !outside(b, object) || ofSystem(object) {
		return "", ""
	}
	if m := shims.FindStringSubmatch(object); m != nil {
		return "this program is a shim of " + m[1] + ", and what it starts is not in the box",
			b.fix(`the program that "`+m[1]+` which" prints, and --ro of the directory of its version`, `the program that "`+m[1]+` which" prints as "command", and the directory of its version in "paths", in`)
	}
	return "whether it is there or not: a box has nothing outside the workspace that it was not given", b.fixPath(object)
}

func beneathAny(path string, dirs []string) bool {
	return slices.ContainsFunc(dirs, func(d string) bool { return path == d || strings.HasPrefix(path, d+"/") })
}

// quoted is the last thing in quotes.
var quoted = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`['"‘“]([^'"‘’“”]+)['"’”][^'"‘’“”]*$`)
})

// inferDenials returns what the box refused, as far as standard error tells.
func inferDenials(b boxed, stderr string) []sandbox.Denial {
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
func objectOf(b boxed, op, before, after string) string {
	var object string
	switch m, n := quoted().FindStringSubmatch(before), quoted().FindStringSubmatch(after); {
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
		object = strings.TrimPrefix(strings.TrimPrefix(object, "cannot create "), "cannot open ") // dash
	}
	switch {
	case op == "memory" || op == "fork":
		object = "the command"
	case op == "connect" && strings.ContainsAny(object, " []<>"): // words, and no host
		object = "a host"
	case errno.MatchString(object):
		object = ""
	}
	if len(object) > maxObject {
		object = strings.ToValidUTF8(object[:maxObject], "") + "…"
	}
	if (op == "write" || op == "open") && object != "" && !filepath.IsAbs(object) && !strings.Contains(object, " ") {
		object = filepath.Join(b.WorkingDir(), object)
	}
	return object
}

// errno is what stands before the text of an error in Python.
var errno = regexp.MustCompile(`^\[Errno -?[0-9]+\]$`)

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
func endNote(ctx context.Context, b boxed, exit sandbox.Exit) string {
	bounds, asked := b.Bounds(), ", and timeout_seconds not shorter"
	if b.flags {
		asked = ""
	}
	by := func(signal int) bool {
		return exit.Cause == sandbox.CauseSignal && exit.Signal == signal || exit.Cause == sandbox.CauseExit && exit.Code == 128+signal
	}
	switch {
	case exit.Cause == sandbox.CauseDeadline:
		return fmt.Sprintf("the box ended it: its time of %s was over; to allow more: %s", bounds.Wall, b.fixTimeout()+asked)
	case exit.Cause == sandbox.CauseKill:
		return fmt.Sprintf("the box ended it: %v", context.Cause(ctx))
	case by(sigXCPU) || by(sigKill) && bounds.CPU != sandbox.Unlimited:
		return fmt.Sprintf("it was ended by a limit of the box, probably that of %s of processor time; to allow more: %s, or %s", bounds.CPU, b.fixTimeout(), b.fixProfile())
	}
	return ""
}
