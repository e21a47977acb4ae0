package daemon

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/sys/atomicfile"
)

// Bounds of what is kept of definitions that nobody has reviewed, in bytes. They
// come from servers, as often as these like.
const (
	maxDefinition = 256 << 10 // of one; of a larger one only the hash and the size are kept, and it cannot be approved
	maxUnreviewed = 4 << 20   // of all together; what the newest list shows comes first
	unreviewed    = 256       // what one costs beside its text
)

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
	Definition string `json:"definition"`     // as the server sent it
	Size       int    `json:"size,omitempty"` // of a definition that is too large to be kept, in bytes
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
	if err := readPins(data, &p.file); err != nil {
		return nil, fmt.Errorf("reading pins: %s:%w", path, err)
	}
	if p.file.Format != pinFormat || p.file.Tools == nil {
		return nil, fmt.Errorf("reading pins: %s: format is %q, want %q", path, p.file.Format, pinFormat)
	}
	maps.DeleteFunc(p.file.Tools, func(_ string, r pinRecord) bool { return r.empty() })
	return p, nil
}

// readPins reads strictly, and without a bound of its own: a file that this
// package wrote must not keep the engine from starting.
func readPins(data []byte, file *pinFile) error {
	if err := strictjson.CheckLimits(data, strictjson.Limits{Size: len(data)}); err != nil {
		return err
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(file)
}

// See returns the status of each definition of a list, and notes those that are
// new for review, all in one write.
func (p *pins) See(server string, shown []gate.Definition) ([]gate.PinStatus, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	next := maps.Clone(p.file.Tools)
	listed := map[string]bool{}
	out := make([]gate.PinStatus, len(shown))
	news, size := false, 0
	for i, d := range shown {
		name := server + "." + d.Tool
		listed[name] = true
		r := next[name]
		out[i] = r.status(d.Hash)
		if d.Trusted {
			out[i] = gate.PinApproved
		}
		if out[i] == gate.PinApproved || out[i] == gate.PinRejected {
			continue
		}
		if r.Seen == nil || r.Seen.Hash != d.Hash {
			r.Seen, news = newPinned(d), true
			next[name] = r
		}
		size += r.waits()
	}
	if size > maxUnreviewed {
		return nil, fmt.Errorf("definitions of server %s that nobody has reviewed take %d bytes; at most %d are kept", server, size, maxUnreviewed)
	}
	if !news {
		return out, nil
	}
	evict(next, server, listed)
	return out, p.put(next)
}

func newPinned(d gate.Definition) *pinned {
	if len(d.Raw) > maxDefinition {
		return &pinned{Hash: d.Hash, Size: len(d.Raw)}
	}
	return &pinned{Hash: d.Hash, Definition: string(d.Raw)}
}

// waits is what the unreviewed definition of r counts as; 0 if there is none.
func (r pinRecord) waits() int {
	if r.Seen == nil {
		return 0
	}
	return unreviewed + len(r.Seen.Definition)
}

func (r pinRecord) empty() bool { return len(r.Approved) == 0 && len(r.Rejected) == 0 && r.Seen == nil }

// evict drops unreviewed definitions until the rest is within bounds: those of
// server first, then those of others, never what was just listed. A definition
// that was dropped is noted again when its server lists it again.
func evict(tools map[string]pinRecord, server string, listed map[string]bool) {
	size := 0
	for _, r := range tools {
		size += r.waits()
	}
	for _, own := range []bool{true, false} {
		for _, name := range names(tools) {
			r := tools[name]
			if size <= maxUnreviewed {
				return
			}
			if r.Seen == nil || listed[name] || strings.HasPrefix(name, server+".") != own {
				continue
			}
			size -= r.waits()
			r.Seen = nil
			if tools[name] = r; r.empty() {
				delete(tools, name)
			}
		}
	}
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
	if approve && r.Seen.Size > 0 {
		return r.tooLarge(name)
	}
	next := maps.Clone(p.file.Tools)
	r.Rejected = slices.DeleteFunc(slices.Clone(r.Rejected), func(h string) bool { return h == hash })
	if approve {
		r.Approved = append(slices.Clip(r.Approved), *r.Seen)
	} else {
		r.Rejected = append(r.Rejected, hash)
	}
	r.Seen = nil
	next[name] = r
	return p.put(next)
}

func (r pinRecord) tooLarge(name string) error {
	return fmt.Errorf("the definition of %s has %d bytes; more than %d cannot be reviewed, so not approved either", name, r.Seen.Size, maxDefinition)
}

// put replaces the records, in memory only if they could be written.
func (p *pins) put(tools map[string]pinRecord) error {
	next := pinFile{Format: pinFormat, Tools: tools}
	data, err := json.Marshal(next)
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
// review, and can be approved if that is meant.
func (p *pins) waiting(name, hash string, approve bool) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.file.Tools[name]
	switch {
	case r.Seen == nil || r.Seen.Hash != hash:
		return fmt.Errorf("no definition %.12s of %s waits for review", hash, name)
	case approve && r.Seen.Size > 0:
		return r.tooLarge(name)
	}
	return nil
}

// list returns what is known, by name, with remarks on what waits for review; with
// definitions and differences of that, and of one that is asked for by name, if whole
// is set.
func (p *pins) list(q api.ToolQuery, whole bool) []api.ToolPin {
	p.mu.Lock()
	tools := p.file.Tools // replaced when it changes, never changed
	p.mu.Unlock()
	var out []api.ToolPin
	for _, name := range names(tools) {
		server, tool, _ := strings.Cut(name, ".")
		if q.Server != "" && q.Server != server || q.Tool != "" && q.Tool != tool {
			continue
		}
		r := tools[name]
		pin := r.pin(server, tool, whole && (r.Seen != nil || q.Tool != ""))
		if r.Seen != nil {
			pin.Remarks = remarksOn(tools, server, tool, r.Seen.Definition)
		}
		out = append(out, pin)
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
		if now.Size > 0 {
			t.Diff = fmt.Sprintf("! its definition has %d bytes; more than %d cannot be reviewed, so not approved either\n", now.Size, maxDefinition)
		}
	}
	return t
}
