package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A Profile says what a box is for, and so how much it may use where the Spec does
// not say.
type Profile string

// The profiles. The zero Profile is ProfileCommand.
const (
	ProfileCommand Profile = "command" // one command that an agent asked for
	ProfileAgent   Profile = "agent"   // an agent and all it starts
	ProfileServer  Profile = "server"  // a tool server
	ProfileCode    Profile = "code"    // the interpreter of model-written code
)

// A Mode says what a box may do with a path.
type Mode string

// The modes. The zero Mode keeps the path out of the box.
const (
	NoAccess  Mode = ""
	ReadOnly  Mode = "ro"
	ReadWrite Mode = "rw"
)

// A Network says what a box can connect to.
type Network string

// The networks. The zero Network has no way out and no way in.
const (
	NetworkNone   Network = ""       // no socket that leads out of the box
	NetworkPolicy Network = "policy" // the socket Spec.Egress, by Spec.Ways, and nothing else
	// NetworkOpen is the network of the machine, not held at all: for programs that
	// a person said need it. The Report lists the network as missing.
	NetworkOpen Network = "open"
)

// A Workspace is the directory a box works in. The zero Workspace is none.
type Workspace struct {
	Path string // absolute; the same inside and outside
	Mode Mode
	// Upper and Work are directories of an overlay, "" for the live tree: what the box
	// changes goes to Upper, and the tree at Path stays as it is. Both lie in one
	// directory in which nothing else is, on a file system with extended attributes,
	// and belong to the owner of the tree; Work is empty. Only with Mode ReadWrite.
	//
	// LaterWritable is then about other trees: what runs later is held back when the
	// changes are applied. Held holds as ever.
	Upper, Work string
	// Copied is a directory with a copy of the tree at Path, "" for the live tree: the
	// box has that copy in place of the tree. Where a tier has no file tree of its own,
	// the box works in the copy where it lies, and what the Spec names in the tree is
	// that in the copy. Only with Mode ReadWrite, and without Upper and Work.
	// LaterWritable is as with these.
	Copied string
}

// InCopy returns where path lies, if it is in a workspace that is a copy, else path.
func (w Workspace) InCopy(path string) string {
	if rest, ok := strings.CutPrefix(path, w.Path); ok && w.Copied != "" && (rest == "" || rest[0] == '/') {
		return w.Copied + rest
	}
	return path
}

// An Ability is something that not every tier can do, and that a Spec may ask for.
type Ability uint8

// The abilities.
const (
	Overlays  Ability = iota + 1 // a box whose workspace is an overlay
	Copies                       // one whose workspace is a copy
	Entrances                    // one with ways to a network by policy
	Homes                        // one with a home of its own
)

// ErrNoOverlay is wrapped, beside ErrNotBuilt, by an error of Start when the workspace
// cannot be an overlay there, and the tier can do with a copy of it.
var ErrNoOverlay = errors.New("the workspace cannot be an overlay here")

// A Spec says what a box may see and do. Paths are absolute, clean, and the same
// inside the box as outside; those that do not exist when the box is built are an
// error. Symbolic links in them are resolved by the tier, once, when it builds.
type Spec struct {
	// Argv is the program and its arguments. Argv[0] is the absolute path of the
	// program: no search path applies. The tier makes the program and the
	// libraries that it needs visible.
	Argv []string
	// Env is the whole environment, "KEY=value". A box that has no /tmp of its own gets a
	// directory in place of it, which TMPDIR then names.
	Env []string
	// Dir is the working directory; "" is that of the workspace, or "/".
	Dir       string
	Workspace Workspace
	Home      Home     // one of the box's own; not every tier can give it one
	ReadOnly  []string // files and trees that may be read and executed
	ReadWrite []string // files and trees that may be read and changed
	// Denied are files and trees that are not there in the box, also within what
	// the lists above name: a path that lies in one of several is as the longest
	// says, and of equal ones a denial wins over reading, and reading over writing.
	// Where a tier cannot make a path vanish, an empty thing that cannot be opened
	// or written stands in its place. A path that does not exist is no error.
	Denied []string
	// Decided are those of the workspace and the lists above that were decided on as
	// the real paths they are: a symbolic link in one, which somebody has made since, is
	// an error.
	Decided []string
	// LaterWritable lets the box make, change and remove, in what is writable,
	// files that the host will execute later (the class "runs-later" of package
	// places: git hooks and configuration, shell start-up files, settings of
	// editors and agents, …). Otherwise they are held like Held, at any depth and
	// also where they do not exist yet; git itself keeps working.
	LaterWritable bool
	// Held are paths within what is writable that can be neither changed nor
	// replaced nor moved, nor can their parents be; a held path that does not
	// exist cannot be made.
	Held    []string
	Network Network
	// Egress is the path of the Unix socket of our way out. Required with
	// NetworkPolicy, refused without. Where Ways.Take is given what listens in the box
	// the box does not get to see the socket itself.
	Egress  string
	Ways    Ways      // how what is in the box comes to it; only with NetworkPolicy
	Placed  []Placing // only with NetworkPolicy
	Profile Profile
	Limits  Limits
	// Files are handed to the program as descriptors 3, 4, …: the channels of
	// our own that no other layer need allow. They stay open in the caller.
	Files []*os.File
	// Stdin, Stdout and Stderr, where set, are the program's streams, and the Box
	// then has an empty stream in their place. They stay open in the caller. A
	// terminal as Stdin becomes the controlling terminal of the box's session: it
	// must be one made for the box, never that of the person.
	Stdin, Stdout, Stderr *os.File
	// Confirm, if set, is called once, when the box is complete and its Report
	// was read back, before the program starts in it: the place to put the Report
	// on record. If it returns an error the program never runs, nothing is left
	// behind, and Start returns that error, wrapping ErrNotBuilt too.
	Confirm func(Report) error
}

// Unlimited lifts, in a Limits, what the profile would set. It must be said.
const Unlimited = -1

// Limits bound what a box may use. A zero member takes what the profile sets (see
// [Spec.Bounds]); Unlimited lifts it.
type Limits struct {
	Wall         time.Duration // from start; then the whole tree is killed
	CPU          time.Duration // of processor time, each process
	AddressSpace int64         // bytes, each process
	Memory       int64         // bytes, the whole box
	Output       int64         // bytes of standard output, and again of standard error; applied by who reads: [Run], [Cap]
	Descriptors  int           // each process
	Processes    int           // the whole box
}

// defaults are the limits of each profile. Those of ProfileCommand are tight: Node,
// Java and Go programs need more address space. What stands at zero has no default.
var defaults = map[Profile]Limits{
	ProfileCommand: {
		Wall: 30 * time.Second, CPU: 30 * time.Second, AddressSpace: 512 << 20, Memory: 2 << 30,
		Output: 1 << 20, Descriptors: 64, Processes: 64,
	},
	// As many descriptors of an agent can be on their way between processes, and more are
	// not sent by anybody with his user id whose own limit is lower: it is 1,024 mostly.
	ProfileAgent:  {Processes: 4096, Descriptors: 768},
	ProfileServer: {Memory: 1 << 30, Descriptors: 256},
	ProfileCode:   {Wall: 30 * time.Second, Memory: 512 << 20, Output: 1 << 20, Descriptors: 64},
}

// Bounds returns the limits of a box made from s: those of s where they are set,
// else those of its profile, else Unlimited. No member is zero.
func (s Spec) Bounds() Limits {
	d := defaults[s.profile()]
	l := s.Limits
	return Limits{
		Wall:         pick(l.Wall, d.Wall),
		CPU:          pick(l.CPU, d.CPU),
		AddressSpace: pick(l.AddressSpace, d.AddressSpace),
		Memory:       pick(l.Memory, d.Memory),
		Output:       pick(l.Output, d.Output),
		Descriptors:  pick(l.Descriptors, d.Descriptors),
		Processes:    pick(l.Processes, d.Processes),
	}
}

func pick[T ~int | ~int64](set, byProfile T) T {
	switch {
	case set != 0:
		return set
	case byProfile != 0:
		return byProfile
	}
	return Unlimited
}

func (s Spec) profile() Profile {
	if s.Profile == "" {
		return ProfileCommand
	}
	return s.Profile
}

// WorkingDir returns the directory that the program starts in.
func (s Spec) WorkingDir() string {
	switch {
	case s.Dir != "":
		return s.Dir
	case s.Workspace.Path != "" && s.Workspace.Mode != NoAccess:
		return s.Workspace.Path
	}
	return string(filepath.Separator)
}

// Trees returns the paths that the box sees of this machine by what s says, as s names
// them: the workspace, and what it may read or change.
func (s Spec) Trees() []string {
	trees := slices.Concat(s.ReadOnly, s.ReadWrite)
	if s.Workspace.Mode != NoAccess {
		trees = append(trees, s.Workspace.Path)
	}
	return trees
}

// Real returns where the path leads when the box is built. It is an error if a path
// that was decided on leads somewhere else.
func (s Spec) Real(path string) (string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err == nil && real != path && slices.Contains(s.Decided, path) {
		return "", fmt.Errorf("%s leads to %s now, which is not what was decided on", path, real)
	}
	return real, err
}

// What a Spec may hold at most: more than any kernel or any use of ours takes.
const (
	maxWords = 4096    // arguments, and again variables
	maxBytes = 1 << 20 // of arguments and environment together
	maxPaths = 1024    // in each list
	maxPath  = 4096    // bytes of one path
	maxFiles = 64
)

// Validate reports the first thing in s that a tier which can do no more than can may
// accept. Every Start calls it.
func (s Spec) Validate(can ...Ability) error {
	if s.Workspace.Upper+s.Workspace.Work != "" && !slices.Contains(can, Overlays) {
		if slices.Contains(can, Copies) {
			return fmt.Errorf("spec: %w: this kind of box has none", ErrNoOverlay)
		}
		return errors.New("spec: the workspace is an overlay, which this kind of box cannot have")
	}
	if s.Workspace.Copied != "" && !slices.Contains(can, Copies) {
		return errors.New("spec: the workspace is a copy, which this kind of box cannot have")
	}
	if s.Ways.Any() && !slices.Contains(can, Entrances) {
		return errors.New("spec: a network by policy is asked for, which this kind of box cannot have: use a native box on Linux with user namespaces, or a container")
	}
	if s.Home != (Home{}) && !slices.Contains(can, Homes) {
		return errors.New("spec: the box is to have a home of its own, which this kind of box cannot have: use a native box on Linux with user namespaces, or a container")
	}
	for _, check := range []func() error{s.checkProgram, s.checkEnv, s.checkPaths, s.checkHome, s.checkNetwork, s.checkWays, s.checkLimits} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (s Spec) checkProgram() error {
	if len(s.Argv) == 0 {
		return errors.New("spec: no program")
	}
	if err := checkPath("program", s.Argv[0]); err != nil {
		return err
	}
	if len(s.Argv) > maxWords || size(s.Argv)+size(s.Env) > maxBytes {
		return fmt.Errorf("spec: arguments and environment exceed %d words or %d bytes", maxWords, maxBytes)
	}
	for i, a := range s.Argv {
		if strings.IndexByte(a, 0) >= 0 {
			return fmt.Errorf("spec: argument %d holds a NUL", i)
		}
	}
	if len(s.Files) > maxFiles {
		return fmt.Errorf("spec: %d files, at most %d", len(s.Files), maxFiles)
	}
	for i, f := range s.Files {
		if f == nil {
			return fmt.Errorf("spec: file %d is nil", i)
		}
	}
	return nil
}

func size(words []string) int {
	n := 0
	for _, w := range words {
		n += len(w) + 1
	}
	return n
}

func (s Spec) checkEnv() error {
	if len(s.Env) > maxWords {
		return fmt.Errorf("spec: %d variables, at most %d", len(s.Env), maxWords)
	}
	seen := map[string]bool{}
	for _, e := range s.Env {
		k, _, ok := strings.Cut(e, "=")
		switch {
		case !ok || k == "":
			return fmt.Errorf("spec: variable %q is not KEY=value", e)
		case strings.IndexByte(e, 0) >= 0:
			return fmt.Errorf("spec: variable %q holds a NUL", k)
		case seen[k]:
			return fmt.Errorf("spec: variable %q is set twice", k)
		}
		seen[k] = true
	}
	return nil
}

func (s Spec) checkPaths() error {
	if s.Dir != "" {
		if err := checkPath("working directory", s.Dir); err != nil {
			return err
		}
	}
	switch s.Workspace.Mode {
	case NoAccess:
	case ReadOnly, ReadWrite:
		if err := checkPath("workspace", s.Workspace.Path); err != nil {
			return err
		}
	default:
		return fmt.Errorf("spec: workspace mode %q is none of \"\", \"ro\", \"rw\"", s.Workspace.Mode)
	}
	if err := s.Workspace.checkOverlay(); err != nil {
		return err
	}
	for what, list := range map[string][]string{"readable path": s.ReadOnly, "writable path": s.ReadWrite, "denied path": s.Denied, "held path": s.Held} {
		if len(list) > maxPaths {
			return fmt.Errorf("spec: %d times %s, at most %d", len(list), what, maxPaths)
		}
		for _, p := range list {
			if err := checkPath(what, p); err != nil {
				return err
			}
		}
	}
	return nil
}

func (w Workspace) checkOverlay() error {
	within := func(p, dir string) bool { return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/") }
	if w.Copied != "" {
		if err := checkPath("copy of the workspace", w.Copied); err != nil {
			return err
		}
		if w.Mode != ReadWrite || w.Upper+w.Work != "" || w.Copied != w.Path && (within(w.Copied, w.Path) || within(w.Path, w.Copied)) {
			return fmt.Errorf("spec: a copy is for a workspace that may be changed, is no overlay, and does not lie in it: %q", w.Copied)
		}
	}
	if w.Upper+w.Work == "" {
		return nil
	}
	for what, p := range map[string]string{"upper directory": w.Upper, "work directory": w.Work} {
		if err := checkPath(what, p); err != nil {
			return err
		}
	}
	layers := filepath.Dir(w.Upper)
	switch {
	case w.Mode != ReadWrite:
		return errors.New("spec: an overlay is for a workspace that may be changed")
	case w.Upper == w.Work || layers != filepath.Dir(w.Work):
		return fmt.Errorf("spec: %q and %q are not two directories in one", w.Upper, w.Work)
	case within(layers, w.Path) || within(w.Path, layers):
		return fmt.Errorf("spec: the overlay's directory %q and the workspace %q lie in each other", layers, w.Path)
	}
	return nil
}

func checkPath(what, p string) error {
	switch {
	case strings.IndexByte(p, 0) >= 0:
		return fmt.Errorf("spec: %s %q holds a NUL", what, p)
	case len(p) > maxPath:
		return fmt.Errorf("spec: %s has %d bytes, at most %d", what, len(p), maxPath)
	case !filepath.IsAbs(p):
		return fmt.Errorf("spec: %s %q is not absolute", what, p)
	case filepath.Clean(p) != p:
		return fmt.Errorf("spec: %s %q is not clean; it would be %s", what, p, filepath.Clean(p))
	}
	return nil
}

func (s Spec) checkNetwork() error {
	switch s.Network {
	case NetworkNone, NetworkOpen:
		if s.Egress != "" {
			return errors.New("spec: a way out is given, but no network is asked for")
		}
		return nil
	case NetworkPolicy:
		return checkPath("way out", s.Egress)
	}
	return fmt.Errorf("spec: network %q is none of \"\", \"policy\", \"open\"", s.Network)
}

func (s Spec) checkLimits() error {
	if _, ok := defaults[s.profile()]; !ok {
		return fmt.Errorf("spec: profile %q is none of command, agent, server, code", s.Profile)
	}
	l := s.Limits
	for what, v := range map[string]int64{
		"wall": int64(l.Wall), "cpu": int64(l.CPU), "address space": l.AddressSpace, "memory": l.Memory,
		"output": l.Output, "descriptors": int64(l.Descriptors), "processes": int64(l.Processes),
	} {
		if v < Unlimited {
			return fmt.Errorf("spec: limit of %s is %d", what, v)
		}
	}
	return nil
}
