package daemon

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"sync"
)

// maxCompiled bounds the policies that are kept compiled. Sessions of one agent in
// one workspace share one.
const maxCompiled = 16

// compiled keeps policies under the hash of everything that they were compiled
// from, so that a session with the same text, lists, layers, annotations and
// places does not compile it again.
//
// It does not decide what is trusted: whatever is not found is loaded, and so
// checked, by [policySource.load]. What that read decides under which hash it is
// kept, not what was there before.
type compiled struct {
	mu   sync.Mutex
	kept []*compiling // newest last
}

// A compiling is a policy, once done is closed.
type compiling struct {
	key  [32]byte
	done chan struct{}
	in   inForce
	ok   bool
}

// load is p.load, or what an earlier one made of the same.
func (c *compiled) load(p policySource, dir, workspace string) (inForce, error) {
	key, err := p.key(dir, workspace)
	if err != nil {
		return p.load(dir, workspace) // it says what is wrong
	}
	found, mine := c.find(key)
	if !mine {
		<-found.done
		switch {
		case found.ok && found.in.still(p.view(workspace)):
			return found.in, nil
		case found.ok: // a link leads elsewhere since
			c.drop(found)
			return c.load(p, dir, workspace)
		}
		return p.load(dir, workspace)
	}
	defer func() {
		if !found.ok {
			c.drop(found)
		}
		close(found.done)
	}()
	p.read = readings{}
	in, err := p.load(dir, workspace)
	if err != nil {
		return inForce{}, err
	}
	read, err := p.hash(dir, workspace)
	found.in, found.ok = in, err == nil && read == key
	return in, err
}

// find returns what is kept under key; a new one, which the caller must complete,
// if there is none.
func (c *compiled) find(key [32]byte) (found *compiling, mine bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, k := range c.kept {
		if k.key == key {
			c.kept = append(append(c.kept[:i:i], c.kept[i+1:]...), k)
			return k, false
		}
	}
	if len(c.kept) == maxCompiled {
		c.kept = c.kept[1:]
	}
	k := &compiling{key: key, done: make(chan struct{})}
	c.kept = append(slices.Clip(c.kept), k)
	return k, true
}

func (c *compiled) drop(k *compiling) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, other := range c.kept {
		if other == k {
			c.kept = append(c.kept[:i:i], c.kept[i+1:]...)
			return
		}
	}
}

// readings are the hashes of the files that were read, by directory and name.
type readings map[string]map[string][32]byte

// A reading is a directory whose files are noted as they are read.
type reading struct {
	fs.FS
	files map[string][32]byte
}

// ReadFile implements [fs.ReadFileFS].
func (r reading) ReadFile(name string) ([]byte, error) {
	data, err := fs.ReadFile(r.FS, name)
	if err == nil {
		r.files[name] = sha256.Sum256(data)
	}
	return data, err
}

// open is a directory that p reads.
func (p policySource) open(dir string) fs.FS {
	if p.read == nil {
		return os.DirFS(dir)
	}
	if p.read[dir] == nil {
		p.read[dir] = map[string][32]byte{}
	}
	return reading{os.DirFS(dir), p.read[dir]}
}

// Bounds on what is read to find a policy that is kept; what has more is loaded
// each time, and has bounds of its own there.
const (
	maxKeyFiles = 1000
	maxKeyBytes = 64 << 20
)

var errKeyBounds = errors.New("too much to hash")

// key is the hash of all that p.load would read now.
func (p policySource) key(dir, workspace string) ([32]byte, error) {
	p.read = readings{}
	left, files := int64(maxKeyBytes), maxKeyFiles
	for _, d := range []string{p.layers.Organisation, p.layers.User, dir} {
		if d == "" {
			continue
		}
		in := p.open(d)
		err := fs.WalkDir(in, ".", func(name string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			info, err := e.Info()
			if err != nil {
				return err
			}
			if left, files = left-info.Size(), files-1; left < 0 || files < 0 || !info.Mode().IsRegular() {
				return errKeyBounds
			}
			_, err = fs.ReadFile(in, name)
			return err
		})
		if err != nil {
			return [32]byte{}, fmt.Errorf("hashing the policy: %w", err)
		}
	}
	if _, err := p.ownFiles(); err != nil {
		return [32]byte{}, err
	}
	return p.hash(dir, workspace)
}

// hash is the hash of what p has read, and of all else that p.load depends on.
func (p policySource) hash(dir, workspace string) ([32]byte, error) {
	trusted, err := p.trusted()
	if err != nil {
		return [32]byte{}, err
	}
	raw, err := json.Marshal([]any{p.home, p.user, p.layers, p.unsigned, trusted, dir, workspace, p.read})
	if err != nil {
		return [32]byte{}, fmt.Errorf("hashing the policy: %w", err)
	}
	return sha256.Sum256(raw), nil
}
