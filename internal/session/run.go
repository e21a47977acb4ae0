package session

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/proc"
)

// A Run is what is kept of something that "ringfence run" ran, so that people can list it,
// come back to it while it runs, and go on with it when it has ended. It holds no secret. It
// is no record of what was done: that is the ledger.
type Run struct {
	ID        string     `json:"id"`              // of the session
	Agent     string     `json:"agent,omitempty"` // its name; "" for any other command
	Argv      []string   `json:"argv"`            // the verb's arguments, to run it again
	Dir       string     `json:"dir"`             // in which they were given
	Title     string     `json:"title"`           // for people
	Workspace string     `json:"workspace"`
	Policy    string     `json:"policy,omitempty"`
	Tier      string     `json:"tier"`
	Socket    string     `json:"socket,omitempty"`
	Holder    proc.Lease `json:"holder"`
	Began     time.Time  `json:"began"`
	Ended     time.Time  `json:"ended,omitzero"`
	Status    int        `json:"status"`            // once it has ended
	Cause     string     `json:"cause,omitempty"`   // why it ended, if not by itself
	Resumed   string     `json:"resumed,omitempty"` // the run that went on with it
}

// The states of a Run.
const (
	Running     = "running"
	Ended       = "ended"
	Interrupted = "interrupted" // it did not end by itself
)

// State says what has become of r: one whose holder has gone without a word was interrupted.
func (r Run) State() string {
	switch {
	case !r.Ended.IsZero() && r.Cause == "":
		return Ended
	case r.Ended.IsZero() && r.Holder.Live():
		return Running
	}
	return Interrupted
}

const runFile = "run.json"

// SaveRun writes r into its directory beneath dir, and makes that.
func SaveRun(dir string, r Run) error {
	if !idForm().MatchString(r.ID) {
		return fmt.Errorf("saving run: %q is no id of a session", r.ID)
	}
	own := filepath.Join(dir, r.ID)
	if err := os.MkdirAll(own, 0o700); err != nil {
		return fmt.Errorf("saving run %s: %w", r.ID, err)
	}
	data, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = atomicfile.WriteSoon(filepath.Join(own, runFile), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving run %s: %w", r.ID, err)
	}
	return nil
}

// ErrNoRun says that there is no such run.
var ErrNoRun = errors.New("no such session")

// LoadRun reads the run of that id.
func LoadRun(dir, id string) (Run, error) {
	if !idForm().MatchString(id) {
		return Run{}, fmt.Errorf("%w: %q; an id is s- and sixteen letters or digits", ErrNoRun, id)
	}
	data, err := os.ReadFile(filepath.Join(dir, id, runFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Run{}, fmt.Errorf("%w: %s", ErrNoRun, id)
	}
	var r Run
	if err == nil {
		err = json.Unmarshal(data, &r)
	}
	if err != nil {
		return Run{}, fmt.Errorf("loading run %s: %w", id, err)
	}
	return r, nil
}

// Runs returns all runs that are kept, the latest first. What cannot be read is left out.
func Runs(dir string) ([]Run, error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading runs: %w", err)
	}
	var all []Run
	for _, e := range entries {
		if r, err := LoadRun(dir, e.Name()); err == nil {
			all = append(all, r)
		}
	}
	slices.SortFunc(all, func(a, b Run) int { return b.Began.Compare(a.Began) })
	return all, nil
}

// RemoveRun removes what is kept of a run.
func RemoveRun(dir, id string) error {
	if !idForm().MatchString(id) {
		return fmt.Errorf("%w: %q", ErrNoRun, id)
	}
	if err := os.RemoveAll(filepath.Join(dir, id)); err != nil {
		return fmt.Errorf("removing run %s: %w", id, err)
	}
	return nil
}
