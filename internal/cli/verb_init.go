package cli

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/agent/external"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
)

// newInit is "ringfence init".
func newInit(s *streams) *cobra.Command {
	var f initFlags
	c := &cobra.Command{
		Use:   "init [PROGRAM…]",
		Short: "Have the agents and editors of this machine work through ringfence",
		Long: "Write into the settings of agents and editors that they use the tools of \"ringfence\n" +
			"mcp\" and, where they have hooks, ask \"ringfence hook\" before each use of a tool of\n" +
			"their own. It shows what would change and asks. All else in the files stays as it\n" +
			"is. Without a PROGRAM it is for those that are here. --undo takes it out again.",
		Example:     "  ringfence init\n  ringfence init claude --yes\n  ringfence init --undo",
		Args:        cobra.ArbitraryArgs,
		Annotations: exits(status{codeFailed, "nothing is here that could be set up, or a file could not be changed"}, status{codeDenied, "nothing was changed"}),
		RunE: func(c *cobra.Command, args []string) error {
			f.hooks = slices.ContainsFunc(c.Root().Commands(), func(v *cobra.Command) bool { return v.Name() == "hook" })
			return runInit(s, f, args)
		},
	}
	c.Flags().BoolVar(&f.yes, "yes", false, "do it without asking")
	c.Flags().BoolVar(&f.undo, "undo", false, "take out what was written: a file that nobody has changed since is again what it was")
	return c
}

type initFlags struct {
	yes, undo bool
	hooks     bool // there is a verb that answers hooks
}

// An initChange is what becomes of one file.
type initChange struct {
	Program string `json:"program"`
	File    string `json:"file"`
	Diff    string `json:"diff"`

	setups []external.Setup
	fresh  []byte // what the file holds where there was none; for files that are ours
	undo   bool
	back   *initRecord // what it was, where it can be put back as it was
}

// An initRecord is what a file was before it was changed.
type initRecord struct {
	Program string `json:"program"`
	File    string `json:"file"`
	Existed bool   `json:"existed"`
	Before  []byte `json:"before"`
	After   string `json:"after"` // SHA-256 of what was written, in hex
}

// maxSetup bounds a file of settings, in bytes.
const maxSetup = 16 << 20

func runInit(s *streams, f initFlags, names []string) error {
	editors, err := editorsHere(names)
	if err != nil {
		return err
	}
	own, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	var records []initRecord
	kept, _, err := readSetup(paths.SetupFile(own))
	if err == nil && len(kept) > 0 {
		err = strictjson.Unmarshal(kept, &records)
	}
	if err != nil {
		return fmt.Errorf("reading what was set up before: %w", err)
	}
	var changes []initChange
	var failed error
	if !f.undo || len(names) == 0 { // others may need it still
		changes, failed = changesOf(external.Editor{Name: "ringfence"}, f, records, ownServers(own))
	}
	for _, e := range editors {
		next, err := changesOf(e, f, records, nil)
		failed = errors.Join(failed, err)
		changes = append(changes, next...)
	}
	if changes == nil {
		changes = []initChange{}
	}
	if s.json {
		err = s.line(changes)
	} else {
		for _, c := range changes {
			fmt.Fprint(s.out, printable(c.Diff), "\n")
		}
	}
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	if len(changes) == 0 {
		return s.tell("There is nothing to change.\n")
	}
	question := fmt.Sprintf("Change %s?", count(len(changes), "file"))
	if err := (&examiner{s: s}).agree(question, "nothing was changed", f.yes); err != nil {
		return err
	}
	for _, c := range changes {
		if records, err = c.make(records, paths.SetupFile(own)); err != nil {
			return err
		}
	}
	return s.tell(fmt.Sprintf("Changed %s.\n", count(len(changes), "file")))
}

// tell prints text where the result is for people.
func (s *streams) tell(text string) error {
	if !s.json {
		fmt.Fprint(s.out, text)
	}
	return s.out.err
}

// editorsHere are the programs that are named, else those that are here.
func editorsHere(names []string) ([]external.Editor, error) {
	person, err := paths.UserHome()
	if err != nil {
		return nil, err
	}
	config, ok := paths.Variable("XDG_CONFIG_HOME")
	if !ok || !filepath.IsAbs(config) {
		config = filepath.Join(person, ".config")
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("finding our own program: %w", err)
	}
	all, err := external.Editors(external.SetupOptions{Home: person, Config: config, Command: program})
	if err != nil {
		return nil, err
	}
	var known []string
	for _, e := range all {
		known = append(known, e.Name)
	}
	for _, n := range names {
		if !slices.Contains(known, n) {
			e := &exitError{code: codeUsage, err: fmt.Errorf("no program %q is known", n), hint: "one of: " + strings.Join(known, ", ")}
			if near := nearest(n, known); near != "" {
				e.hint = fmt.Sprintf("did you mean %q?", near)
			}
			return nil, e
		}
	}
	look := lookAround(person)
	here := slices.DeleteFunc(all, func(e external.Editor) bool {
		if len(names) > 0 {
			return !slices.Contains(names, e.Name)
		}
		return !slices.ContainsFunc(e.Marks, fileExists) && !slices.ContainsFunc(e.Programs, func(p string) bool { return look.Path(p) != "" })
	})
	if len(here) == 0 {
		return nil, &exitError{code: codeFailed, err: errors.New("no agent or editor is here that can be set up"), hint: "known are " + strings.Join(known, ", ")}
	}
	return here, nil
}

// firstServers are the servers that programs have before any was added.
const firstServers = `{
  "mcpServers": {
    "filesystem": {"ringfence": {"builtin": "filesystem"}},
    "git": {"ringfence": {"builtin": "git"}}
  }
}
`

// ownServers is the list of servers that "ringfence mcp" has in front of it: without one it
// does not start.
func ownServers(own string) []initChange {
	return []initChange{{Program: "ringfence", File: paths.ServersFile(own), fresh: []byte(firstServers)}}
}

// changesOf is what becomes of all, and of the files of e, those alone that change.
func changesOf(e external.Editor, f initFlags, records []initRecord, all []initChange) ([]initChange, error) {
	for _, setup := range e.Changes {
		if setup.Hooks && !f.hooks && !f.undo {
			continue // an agent goes on where a hook cannot be started
		}
		i := slices.IndexFunc(all, func(c initChange) bool { return c.File == setup.File })
		if i < 0 {
			i = len(all)
			all = append(all, initChange{Program: e.Name, File: setup.File})
		}
		all[i].setups = append(all[i].setups, setup)
	}
	var failed error
	changed := all[:0]
	for _, c := range all {
		c.undo = f.undo
		at := slices.IndexFunc(records, func(r initRecord) bool { return r.File == c.File })
		if at >= 0 {
			c.back = &records[at]
		}
		before, existed, err := readSetup(c.File)
		if err == nil && !existed && f.undo {
			continue
		}
		var after []byte
		remains := true
		if err == nil {
			after, remains, err = c.result(before)
		}
		if err != nil {
			failed = errors.Join(failed, &exitError{code: codeFailed, err: fmt.Errorf("%s:%w", c.File, err)})
			continue
		}
		if bytes.Equal(before, after) && remains {
			continue
		}
		c.Diff = lineDiff(c.File, before, after)
		changed = append(changed, c)
	}
	return changed, failed
}

// result is what the file holds after the change, and whether there is one.
func (c initChange) result(before []byte) (after []byte, remains bool, err error) {
	if c.undo && c.back != nil && sumOf(before) == c.back.After {
		return c.back.Before, c.back.Existed, nil
	}
	if after = before; c.fresh != nil && !c.undo && len(before) == 0 {
		after = c.fresh
	}
	for _, s := range c.setups {
		if c.undo {
			after, err = s.Remove(after)
		} else {
			after, err = s.Apply(after)
		}
		if err != nil {
			return nil, false, err
		}
	}
	return after, true, nil
}

// make changes the file as it is now, and keeps in list what it was.
func (c initChange) make(records []initRecord, list string) ([]initRecord, error) {
	before, existed, err := readSetup(c.File)
	if err != nil {
		return records, fmt.Errorf("reading %s: %w", c.File, err)
	}
	after, remains, err := c.result(before)
	if err != nil {
		return records, &exitError{code: codeFailed, err: fmt.Errorf("%s:%w", c.File, err)}
	}
	record := initRecord{Program: c.Program, File: c.File, Existed: existed, Before: before, After: sumOf(after)}
	if c.back != nil && sumOf(before) == c.back.After {
		record.Existed, record.Before = c.back.Existed, c.back.Before
	}
	rest := slices.DeleteFunc(slices.Clone(records), func(r initRecord) bool { return r.File == c.File })
	if !c.undo {
		rest = append(rest, record)
		if err := keepRecords(list, rest); err != nil { // first: what is changed can be put back
			return records, err
		}
	}
	if err := writeSetup(c.File, after, remains); err != nil {
		return records, err
	}
	if c.undo {
		err = keepRecords(list, rest)
	}
	return rest, err
}

func keepRecords(list string, records []initRecord) error {
	text, err := json.Marshal(records)
	if err == nil {
		err = atomicfile.Write(list, text, 0o600)
	}
	if err != nil {
		return fmt.Errorf("keeping what the files were: %w", err)
	}
	return nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// readSetup reads a file; there need be none.
func readSetup(file string) (data []byte, there bool, err error) {
	f, err := os.Open(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	data, err = io.ReadAll(io.LimitReader(f, maxSetup+1))
	if err = errors.Join(err, f.Close()); err == nil && len(data) > maxSetup {
		err = fmt.Errorf("1:1: the file has more than %d bytes", maxSetup)
	}
	return data, true, err
}

// writeSetup writes a file where a link leads to, if it is one, or takes it away.
func writeSetup(file string, data []byte, remains bool) error {
	if real, err := filepath.EvalSymlinks(file); err == nil {
		file = real
	}
	if !remains {
		if err := os.Remove(file); err != nil {
			return fmt.Errorf("removing the settings: %w", err)
		}
		return nil
	}
	mode := fs.FileMode(0o600)
	if fi, err := os.Stat(file); err == nil {
		mode = fi.Mode().Perm()
	}
	err := os.MkdirAll(filepath.Dir(file), 0o700)
	if err == nil {
		err = atomicfile.Write(file, data, mode)
	}
	if err != nil {
		return fmt.Errorf("writing the settings: %w", err)
	}
	return nil
}

// lineDiff shows the lines between the first and the last that differ, and two around them.
func lineDiff(file string, before, after []byte) string {
	a, b := slices.Collect(strings.Lines(string(before))), slices.Collect(strings.Lines(string(after)))
	head := 0
	for head < min(len(a), len(b)) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < min(len(a), len(b))-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	const around = 2
	var out strings.Builder
	fmt.Fprintf(&out, "--- %s\n+++ %s\n@@ line %d @@\n", file, file, max(1, head-around+1))
	for _, part := range []struct {
		mark  string
		lines []string
	}{
		{" ", a[max(0, head-around):head]},
		{"-", a[head : len(a)-tail]},
		{"+", b[head : len(b)-tail]},
		{" ", a[len(a)-tail : min(len(a), len(a)-tail+around)]},
	} {
		for _, line := range part.lines {
			out.WriteString(part.mark + strings.TrimSuffix(line, "\n") + "\n")
		}
	}
	return out.String()
}
