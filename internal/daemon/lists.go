package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/atomicfile"
)

// Bounds of the lists of servers that are known.
const (
	maxLists    = 256 // the newest
	maxNewLists = 16  // of one session
	maxListPath = 4096
)

// Lists are the files that say which programs are started as servers, of all sessions
// that this home has had: whoever changes one says what runs the next time, outside of
// a box if it likes. So no box may. They are kept in one file.
type lists struct {
	path string
	mu   sync.Mutex
	file listFile
}

type listFile struct {
	Format string   `json:"format"`
	Files  []string `json:"files"` // absolute, the newest last
	// Admitted are those of repositories that a person agreed to, the newest last.
	Admitted []admittedList `json:"admitted,omitempty"`
}

const listFormat = "ringfence-lists/v1"

// openLists reads the file at path; a missing one is empty.
func openLists(path string) (*lists, error) {
	l := &lists{path: path, file: listFile{Format: listFormat}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return l, nil
	}
	if err == nil {
		err = strictjson.CheckLimits(data, strictjson.Limits{Size: len(data)})
	}
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(data))
		d.DisallowUnknownFields()
		err = d.Decode(&l.file)
	}
	if err == nil && l.file.Format != listFormat {
		err = fmt.Errorf("format is %q, want %q", l.file.Format, listFormat)
	}
	if err != nil {
		return nil, fmt.Errorf("reading the known lists of servers: %s: %w", path, err)
	}
	return l, nil
}

// add notes files, and what they lead to.
func (l *lists) add(files []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := slices.Clone(l.file.Files)
	for _, name := range files {
		name = filepath.Clean(name)
		all := []string{name}
		if real, err := filepath.EvalSymlinks(name); err == nil && real != name {
			all = append(all, real)
		}
		for _, f := range all {
			if !slices.Contains(next, f) {
				next = append(next, f)
			}
		}
	}
	if len(next) == len(l.file.Files) {
		return nil
	}
	if len(next) > maxLists { // first those that are not there any more
		next = there(next)
	}
	file := l.file
	file.Files = next[max(0, len(next)-maxLists):]
	return l.put(file)
}

// put replaces what is known, in memory only if it could be written. l.mu is held.
func (l *lists) put(file listFile) error {
	data, err := json.Marshal(file)
	if err != nil {
		return fmt.Errorf("encoding the known lists of servers: %w", err)
	}
	if err := atomicfile.Write(l.path, data, 0o600); err != nil {
		return fmt.Errorf("saving the known lists of servers: %w", err)
	}
	l.file = file
	return nil
}

// known returns those that are there, oldest first.
func (l *lists) known() []string {
	l.mu.Lock()
	files := l.file.Files // replaced when it changes, never changed
	l.mu.Unlock()
	return there(files)
}

// there returns those of files that exist.
func there(files []string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(f string) bool {
		_, err := os.Lstat(f)
		return err != nil
	})
}
