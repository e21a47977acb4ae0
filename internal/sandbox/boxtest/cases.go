package boxtest

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/sandbox"
)

//go:embed testdata/cases/*.txt
var texts embed.FS

// A Case is one thing that must hold, or must work, in each of its places.
type Case struct {
	ID, Name string
	Class    Class
	In       []Place
	Steps    []Step   // for the probe
	Script   string   // for the shell, instead of Steps
	Programs []string // that the script needs, by name
	Network  bool     // the box has a way out by policy
	// Home says that the box has a home of its own in place of $HOME; Kept are the paths
	// that must be in its directory afterwards, beside those that were, and no others.
	Home bool
	Kept []string
	// Tools says that it has ways to the network by policy, and tools at $TOOLS.
	Tools  bool
	Limits sandbox.Limits
	// Exit is how the box must end, as [sandbox.Exit.String] has it; "any" is any.
	Exit string
	// Needs is the layer without which a tier need not hold this, if its Report
	// calls it missing or its Start refuses; "holds" stands for held names. Honest
	// work that needs a layer need not work in a box whose Report does not claim it.
	Needs string
	// Claimed is the layer without which, in its Report, a box is not judged.
	Claimed string
	// Proves are the layers that this confirms, with a detail after "="; "a!b" is a
	// only where the Report does not claim b.
	Proves []string
	// Leaves are patterns of what may differ in the workspace afterwards.
	Leaves []string
	// World are things that are in the world of this case only.
	World []string
	Each  []int // N takes each of these values
	Knock bool  // somebody outside tries to connect to port FREE meanwhile
	// Stdout is what the output must be, exactly; "" is anything.
	Stdout string
	// Uncaught says why a box that holds nothing passes this too, "" if it does not. Of
	// honest work it says why that needs a box.
	Uncaught string
	line     int
}

// A Place is a profile, and what the workspace is in it.
type Place struct {
	Profile sandbox.Profile
	Mode    sandbox.Mode
}

// String returns "agent:rw".
func (p Place) String() string {
	if p.Mode == sandbox.NoAccess {
		return string(p.Profile) + ":none"
	}
	return string(p.Profile) + ":" + string(p.Mode)
}

// A Step is one action of the probe.
type Step struct {
	Words    []string // the action and its arguments, with "$NAME"
	Prepares bool     // its answer does not matter
	Pass     []string // the answers that pass
}

// Cases returns all cases, in the order of the files in testdata/cases.
func Cases() ([]Case, error) {
	names, err := fs.Glob(texts, "testdata/cases/*.txt")
	if err != nil {
		return nil, err
	}
	r := &reader{sets: map[string][]string{}, seen: map[string]bool{}}
	for _, name := range names {
		text, err := texts.ReadFile(name)
		if err != nil {
			return nil, err
		}
		if err := r.file(string(text)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return r.cases, nil
}

// A reader reads the text of cases: lines "key value", blocks that begin with
// "== ID name". A line that begins with "|" is one of a script.
type reader struct {
	sets  map[string][]string
	cases []Case
	pass  []string // of the case that is being read
	seen  map[string]bool
}

func (r *reader) file(text string) error {
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := r.line(line, i+1); err != nil {
			return fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return r.end()
}

func (r *reader) line(line string, number int) error {
	if script, ok := strings.CutPrefix(line, "|"); ok {
		if len(r.cases) == 0 {
			return fmt.Errorf("a script before any case")
		}
		r.cases[len(r.cases)-1].Script += strings.TrimPrefix(script, " ") + "\n"
		return nil
	}
	key, value, _ := strings.Cut(line, " ")
	value = strings.TrimSpace(value)
	switch key {
	case "set":
		name, rest, _ := strings.Cut(value, " ")
		r.sets[name] = r.answers(rest)
		return nil
	case "==":
		if err := r.end(); err != nil {
			return err
		}
		id, name, _ := strings.Cut(value, " ")
		if r.seen[value] {
			return fmt.Errorf("two cases %q", value)
		}
		r.seen[value], r.pass = true, nil
		r.cases = append(r.cases, Case{ID: id, Name: name, Exit: "status 0", line: number})
		return nil
	}
	if len(r.cases) == 0 {
		return fmt.Errorf("%q before any case", key)
	}
	return r.member(&r.cases[len(r.cases)-1], key, value)
}

// answers expands the names of sets.
func (r *reader) answers(text string) []string {
	var all []string
	for w := range strings.FieldsSeq(text) {
		if set, ok := r.sets[w]; ok {
			all = append(all, set...)
		} else {
			all = append(all, w)
		}
	}
	return all
}

func (r *reader) member(c *Case, key, value string) (err error) {
	switch key {
	case "class":
		c.Class = Class(value)
		if !slices.Contains(Classes[:], c.Class) {
			err = fmt.Errorf("no class %q", value)
		}
	case "in":
		for w := range strings.FieldsSeq(value) {
			p, e := parsePlace(w)
			c.In, err = append(c.In, p), errors.Join(err, e)
		}
	case "pass":
		r.pass = r.answers(value)
	case "do", "~do":
		words, answers, own := strings.Cut(value, " => ")
		s := Step{Words: strings.Fields(words), Prepares: key == "~do", Pass: r.pass}
		if own {
			s.Pass = r.answers(answers)
		}
		c.Steps = append(c.Steps, s)
	case "programs":
		c.Programs = strings.Fields(value)
	case "limits":
		c.Limits, err = parseLimits(value)
	case "exit":
		c.Exit = value
	case "needs":
		c.Needs = value
	case "claimed":
		c.Claimed = value
	case "proves":
		c.Proves = strings.Fields(value)
	case "leaves":
		for w := range strings.FieldsSeq(value) {
			p, e := url.PathUnescape(w)
			c.Leaves, err = append(c.Leaves, p), errors.Join(err, e)
		}
	case "world":
		c.World = strings.Fields(value)
	case "stdout":
		c.Stdout, err = strconv.Unquote(value)
	case "uncaught":
		c.Uncaught = value
	case "network":
		c.Network = true
	case "knock":
		c.Knock = true
	case "home":
		c.Home, c.Kept = true, strings.Fields(value)
	case "tools":
		c.Tools = true
	case "each":
		c.Each, err = parseEach(value)
	default:
		err = fmt.Errorf("no key %q", key)
	}
	return err
}

// asks returns what the box of c is asked for that not every tier can give.
func (c Case) asks() (all []sandbox.Ability) {
	if c.Home {
		all = append(all, sandbox.Homes)
	}
	if c.Tools {
		all = append(all, sandbox.Entrances)
	}
	return all
}

// end checks the case that was read last.
func (r *reader) end() error {
	if len(r.cases) == 0 {
		return nil
	}
	c := r.cases[len(r.cases)-1]
	switch {
	case c.Class == "" || len(c.In) == 0:
		return fmt.Errorf("%s %s (line %d) has no class or no place", c.ID, c.Name, c.line)
	case (len(c.Steps) == 0) == (c.Script == ""):
		return fmt.Errorf("%s %s (line %d) needs steps or a script", c.ID, c.Name, c.line)
	case c.Script != "" && len(c.asks()) > 0:
		return fmt.Errorf("%s %s (line %d) has a script, and steps alone know of its own home and tools", c.ID, c.Name, c.line)
	}
	for _, s := range c.Steps {
		if !s.Prepares && len(s.Pass) == 0 {
			return fmt.Errorf("%s %s (line %d): nothing says which answers pass", c.ID, c.Name, c.line)
		}
	}
	return nil
}

func parsePlace(text string) (Place, error) {
	profile, mode, _ := strings.Cut(text, ":")
	p := Place{Profile: sandbox.Profile(profile), Mode: sandbox.Mode(mode)}
	if mode == "none" {
		p.Mode = sandbox.NoAccess
	}
	known := []sandbox.Profile{sandbox.ProfileCommand, sandbox.ProfileAgent, sandbox.ProfileServer, sandbox.ProfileCode}
	if !slices.Contains(known, p.Profile) || !slices.Contains([]string{"ro", "rw", "none"}, mode) {
		return p, fmt.Errorf("no place %q", text)
	}
	return p, nil
}

func parseLimits(text string) (l sandbox.Limits, err error) {
	for w := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(w, "=")
		var n int
		var d time.Duration
		switch name {
		case "wall", "cpu":
			d, err = time.ParseDuration(value)
		default:
			n, err = strconv.Atoi(value)
		}
		switch name {
		case "wall":
			l.Wall = d
		case "cpu":
			l.CPU = d
		case "memory": // MiB, like the next two
			l.Memory = int64(n) << 20
		case "space":
			l.AddressSpace = int64(n) << 20
		case "output":
			l.Output = int64(n) << 20
		case "descriptors":
			l.Descriptors = n
		case "processes":
			l.Processes = n
		default:
			err = fmt.Errorf("no limit %q", name)
		}
		if err != nil {
			return l, err
		}
	}
	return l, nil
}

// parseEach reads numbers and ranges: "0..255 300".
func parseEach(text string) (all []int, err error) {
	for w := range strings.FieldsSeq(text) {
		from, to, isRange := strings.Cut(w, "..")
		if !isRange {
			to = from
		}
		a, e1 := strconv.Atoi(from)
		b, e2 := strconv.Atoi(to)
		if e1 != nil || e2 != nil || b < a {
			return nil, fmt.Errorf("%q is no number or range", w)
		}
		for n := a; n <= b; n++ {
			all = append(all, n)
		}
	}
	return all, nil
}

// A run is a case in one place, with one value of N.
type run struct {
	*Case
	place Place
	n     int
}

// runs returns the runs of c in p: one, or one for each of its numbers.
func (c Case) runs(p Place, sparse bool) (all []run) {
	if len(c.Each) == 0 {
		return []run{{Case: &c, place: p, n: -1}}
	}
	for i, n := range c.Each {
		if !sparse || i%16 == 0 || i == len(c.Each)-1 {
			all = append(all, run{Case: &c, place: p, n: n})
		}
	}
	return all
}
