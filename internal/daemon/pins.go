package daemon

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/sys/atomicfile"
)

// maxDefinition bounds what is kept of one definition, in bytes; a larger one
// stays proposed and is shown cut.
const maxDefinition = 256 << 10

// Pins is what this home knows of tool definitions, kept in one file. A tool
// has any number of approved definitions, because one name can be two servers
// in two projects; a definition that is none of them has drifted.
type pins struct {
	path string
	mu   sync.Mutex
	file pinFile
}

type pinFile struct {
	Format string               `json:"format"`
	Tools  map[string]pinRecord `json:"tools"` // by "server.tool"
}

// A pinRecord is what is known of one tool.
type pinRecord struct {
	Approved []pinned `json:"approved,omitempty"`
	Rejected []string `json:"rejected,omitempty"` // hashes
	Seen     *pinned  `json:"seen,omitempty"`     // the newest that is not approved
}

type pinned struct {
	Hash       string `json:"hash"`
	Definition string `json:"definition"` // as the server sent it
}

const pinFormat = "ringfence-pins/v1"

var _ gate.Pins = (*pins)(nil)

// openPins reads the file at path; a missing one is empty.
func openPins(path string) (*pins, error) {
	p := &pins{path: path, file: pinFile{Format: pinFormat, Tools: map[string]pinRecord{}}}
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return p, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading pins: %w", err)
	}
	if err := strictjson.Unmarshal(data, &p.file); err != nil {
		return nil, fmt.Errorf("reading pins: %s:%w", path, err)
	}
	if p.file.Format != pinFormat || p.file.Tools == nil {
		return nil, fmt.Errorf("reading pins: %s: format is %q, want %q", path, p.file.Format, pinFormat)
	}
	return p, nil
}

// See returns the status of a definition and notes it for review if it is new.
func (p *pins) See(server, tool, hash string, definition []byte, trusted bool) (gate.PinStatus, error) {
	if trusted {
		return gate.PinApproved, nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	name := server + "." + tool
	r := p.file.Tools[name]
	if status := r.status(hash); status == gate.PinApproved || status == gate.PinRejected {
		return status, nil
	}
	if r.Seen == nil || r.Seen.Hash != hash {
		r.Seen = &pinned{Hash: hash, Definition: string(definition[:min(len(definition), maxDefinition)])}
		if err := p.put(name, r); err != nil {
			return gate.PinProposed, err
		}
	}
	return r.status(hash), nil
}

func (r pinRecord) status(hash string) gate.PinStatus {
	switch {
	case slices.ContainsFunc(r.Approved, func(a pinned) bool { return a.Hash == hash }):
		return gate.PinApproved
	case slices.Contains(r.Rejected, hash):
		return gate.PinRejected
	case len(r.Approved) > 0:
		return gate.PinDrifted
	}
	return gate.PinProposed
}

// review settles the definition with that hash, which must be the one that
// waits: what a person was shown is what is approved.
func (p *pins) review(name, hash string, approve bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.file.Tools[name]
	if r.Seen == nil || r.Seen.Hash != hash {
		return fmt.Errorf("no definition %.12s of %s waits for review", hash, name)
	}
	r.Rejected = slices.DeleteFunc(r.Rejected, func(h string) bool { return h == hash })
	if approve {
		r.Approved = append(r.Approved, *r.Seen)
	} else {
		r.Rejected = append(r.Rejected, hash)
	}
	r.Seen = nil
	return p.put(name, r)
}

// put changes one record, in memory only if it could be written.
func (p *pins) put(name string, r pinRecord) error {
	next := pinFile{Format: pinFormat, Tools: map[string]pinRecord{name: r}}
	for n, old := range p.file.Tools {
		if n != name {
			next.Tools[n] = old
		}
	}
	data, err := json.MarshalIndent(next, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding pins: %w", err)
	}
	if err := atomicfile.Write(p.path, data, 0o600); err != nil {
		return fmt.Errorf("saving pins: %w", err)
	}
	p.file = next
	return nil
}

// waiting returns an error unless the definition hash of tool name waits for
// review.
func (p *pins) waiting(name, hash string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r := p.file.Tools[name]; r.Seen == nil || r.Seen.Hash != hash {
		return fmt.Errorf("no definition %.12s of %s waits for review", hash, name)
	}
	return nil
}

// list returns what is known, by name; with definitions and differences if
// whole is set.
func (p *pins) list(q api.ToolQuery, whole bool) []api.ToolPin {
	p.mu.Lock()
	defer p.mu.Unlock()
	var out []api.ToolPin
	for _, name := range names(p.file.Tools) {
		server, tool, _ := strings.Cut(name, ".")
		if q.Server != "" && q.Server != server || q.Tool != "" && q.Tool != tool {
			continue
		}
		out = append(out, p.file.Tools[name].pin(server, tool, whole))
	}
	return out
}

func (r pinRecord) pin(server, tool string, whole bool) api.ToolPin {
	t := api.ToolPin{Server: server, Tool: tool, Status: string(gate.PinApproved)}
	var old, now pinned
	for _, a := range r.Approved {
		t.Approved = append(t.Approved, a.Hash)
		old, now = a, a
	}
	switch {
	case r.Seen != nil:
		now = *r.Seen
	case len(r.Approved) == 0:
		now = pinned{Hash: r.Rejected[len(r.Rejected)-1]}
	}
	t.Hash, t.Status = now.Hash, string(r.status(now.Hash))
	if whole {
		if json.Valid([]byte(now.Definition)) {
			t.Definition = json.RawMessage(now.Definition)
		}
		t.Diff = difference(old.Definition, now.Definition)
	}
	return t
}
