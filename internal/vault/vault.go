// Package vault keeps secrets: those that people set, with where each may go, tokens of
// OAuth, and keys that this installation made for itself.
//
// It lends nothing and decides nothing: the engine, the one process that opens it, does.
// Everything is one age file (https://age-encryption.org/v1); what differs between
// machines is who keeps its key: the keyring of the system, or a file that only its owner
// may read. The latter keeps secrets out of backups of the file and of what a box can
// see, not from programs of the same user: [Vault.Protection] says so.
//
// Invariants:
//
//	V1  A value is in no error, no text and no log of this package, and in no file but
//	    inside the encryption.
//	V2  The file is replaced whole: after a crash it is the old or the new one.
//	V3  A vault that cannot be read, or whose key is not there, is an error. It is never
//	    taken for an empty one, and never overwritten.
//	V4  One process has it open at a time.
package vault

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"filippo.io/age"

	"ringfence/internal/act/loan"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
)

// A Secret is what a person set.
type Secret struct {
	Name     string         `json:"name"`
	Value    []byte         `json:"value"`
	Env      []string       `json:"env,omitempty"` // variables in which its sentinel is shown
	Bindings []loan.Binding `json:"bindings,omitempty"`
	Set      time.Time      `json:"set"`
}

// Bounds. Those of a value are what package inspect can look for.
const (
	MinValue   = 8
	MaxValue   = 16 << 10
	MaxSecrets = 512
	maxEnv     = 8
	maxRecords = 512
	maxRecord  = 64 << 10 // bytes of one record
	maxKey     = 256      // bytes of the key of a record
	maxFile    = 32 << 20 // of the vault
)

// Errors for errors.Is.
var (
	// ErrNotFound: nothing of that name is kept.
	ErrNotFound = errors.New("there is no such secret")
	// ErrInvalid: it cannot be kept; the text says why.
	ErrInvalid = errors.New("this secret cannot be kept")
	// ErrLocked: the key of the vault cannot be had. Unlock the keyring and try again.
	ErrLocked = errors.New("the vault is locked")
	// ErrDamaged: the file is not what this vault wrote, or has another key.
	ErrDamaged = errors.New("the vault cannot be read")
)

const format = "ringfence-vault/v1"

// content is what is inside the encryption.
type content struct {
	Format  string            `json:"format"`
	Secrets []Secret          `json:"secrets,omitempty"` // by name
	Records map[string][]byte `json:"records,omitempty"`
	Keys    map[string][]byte `json:"keys,omitempty"`
}

// A Vault is an open vault. It is safe for concurrent use.
type Vault struct {
	path   string
	lock   *ipc.Lock
	id     *age.X25519Identity
	keeper Keeper
	now    func() time.Time

	mu sync.Mutex
	c  content
}

// Options say where a vault is.
type Options struct {
	Path    string // of the file; a lock is beside it
	Keepers []Keeper
	Now     func() time.Time
}

// Open opens the vault at o.Path, and takes its lock. Without a file it is empty; the
// first keeper that answers then makes its key. The error may be ErrLocked, ErrDamaged or
// ipc.ErrLocked.
func Open(o Options) (v *Vault, err error) {
	lock, err := ipc.NewLock(o.Path + ".lock")
	if err != nil {
		return nil, fmt.Errorf("opening the vault: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lock.Unlock())
		}
	}()
	v = &Vault{path: o.Path, lock: lock, now: o.Now, c: content{Format: format}}
	sealed, err := readBounded(o.Path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("opening the vault: %w", err)
	}
	if v.keeper, v.id, err = keyOf(o.Keepers, sealed); err != nil {
		return nil, fmt.Errorf("opening the vault: %w", err)
	}
	if sealed == nil {
		return v, nil
	}
	if v.c, err = unseal(sealed, v.id); err != nil {
		return nil, fmt.Errorf("opening the vault %s: %w", o.Path, err)
	}
	return v, nil
}

// Close gives the lock back and forgets the values.
func (v *Vault) Close() error {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, s := range v.c.Secrets {
		clear(s.Value)
	}
	for _, m := range []map[string][]byte{v.c.Records, v.c.Keys} {
		for _, b := range m {
			clear(b)
		}
	}
	v.c = content{Format: format}
	return v.lock.Unlock()
}

// Protection says, for people, what keeps the values from others.
func (v *Vault) Protection() string { return v.keeper.Protection() }

func readBounded(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, err
	}
	if len(data) > maxFile {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrDamaged, maxFile)
	}
	return data, nil
}

// unseal decrypts and reads a vault. What it returns has been checked like what is set.
func unseal(sealed []byte, id age.Identity) (content, error) {
	r, err := age.Decrypt(bytes.NewReader(sealed), id)
	if err != nil {
		return content{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	plain, err := io.ReadAll(io.LimitReader(r, maxFile))
	defer clear(plain)
	if err != nil {
		return content{}, fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return parse(plain)
}

// parse reads the inside of a vault. Errors do not quote it.
func parse(plain []byte) (content, error) {
	var c content
	if strictjson.CheckLimits(plain, strictjson.Limits{Size: maxFile}) != nil {
		return c, fmt.Errorf("%w: its inside is no JSON", ErrDamaged)
	}
	d := json.NewDecoder(bytes.NewReader(plain))
	d.DisallowUnknownFields()
	if d.Decode(&c) != nil || c.Format != format {
		return content{}, fmt.Errorf("%w: its format is not %s: another version wrote it", ErrDamaged, format)
	}
	if len(c.Secrets) > MaxSecrets || len(c.Records) > maxRecords || len(c.Keys) > maxRecords {
		return content{}, fmt.Errorf("%w: it holds too much", ErrDamaged)
	}
	for i, s := range c.Secrets {
		checked, err := s.canonical()
		if err != nil {
			return content{}, fmt.Errorf("%w: %w", ErrDamaged, err)
		}
		if c.Secrets[i] = checked; i > 0 && c.Secrets[i-1].Name >= s.Name {
			return content{}, fmt.Errorf("%w: its names are not in order", ErrDamaged)
		}
	}
	return c, nil
}

// write makes next the content of the vault, on disk first. v.mu is held.
func (v *Vault) write(next content) error {
	plain, err := json.Marshal(next)
	if err != nil {
		return fmt.Errorf("writing the vault: its content cannot be encoded")
	}
	defer clear(plain)
	if len(plain) > maxFile/2 {
		return fmt.Errorf("%w: the vault would be larger than %d bytes", ErrInvalid, maxFile/2)
	}
	var sealed bytes.Buffer
	w, err := age.Encrypt(&sealed, v.id.Recipient())
	if err == nil {
		_, err = w.Write(plain)
	}
	if err == nil {
		err = w.Close()
	}
	if err == nil {
		err = atomicfile.Write(v.path, sealed.Bytes(), 0o600)
	}
	if err != nil {
		return fmt.Errorf("writing the vault: %w", err)
	}
	v.c = next
	return nil
}

// canonical returns s as it is kept. The error is ErrInvalid and does not quote the value.
func (s Secret) canonical() (Secret, error) {
	if err := loan.CheckName(s.Name); err != nil {
		return s, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if len(s.Value) < MinValue || len(s.Value) > MaxValue {
		return s, fmt.Errorf("%w: %s has %d bytes, and %d to %d can be kept out of what is recorded", ErrInvalid, s.Name, len(s.Value), MinValue, MaxValue)
	}
	if bytes.ContainsAny(s.Value, "\r\n\x00") {
		return s, fmt.Errorf("%w: %s has several lines, which no header can hold", ErrInvalid, s.Name)
	}
	if len(s.Env) > maxEnv || len(s.Bindings) > loan.MaxBindings {
		return s, fmt.Errorf("%w: %s is bound to more than %d places or %d variables", ErrInvalid, s.Name, loan.MaxBindings, maxEnv)
	}
	for _, name := range s.Env {
		if err := loan.CheckEnv(name); err != nil {
			return s, fmt.Errorf("%w: %s: %w", ErrInvalid, s.Name, err)
		}
	}
	s.Bindings = slices.Clone(s.Bindings)
	for i, b := range s.Bindings {
		c, err := b.Canonical()
		if err != nil {
			return s, fmt.Errorf("%w: %s: %w", ErrInvalid, s.Name, err)
		}
		s.Bindings[i] = c
	}
	return s, nil
}

// Check returns s as the vault would keep it; the error is ErrInvalid.
func Check(s Secret) (Secret, error) { return s.canonical() }

func byName(s Secret, name string) int {
	switch {
	case s.Name < name:
		return -1
	case s.Name > name:
		return 1
	}
	return 0
}

// Set keeps s, in the place of one of that name. The value is copied.
func (v *Vault) Set(s Secret) error {
	s, err := s.canonical()
	if err != nil {
		return err
	}
	s.Value, s.Set = bytes.Clone(s.Value), v.now().UTC().Truncate(time.Second)
	v.mu.Lock()
	defer v.mu.Unlock()
	next := v.c
	next.Secrets = slices.Clone(v.c.Secrets)
	at, found := slices.BinarySearchFunc(next.Secrets, s.Name, byName)
	switch {
	case found:
		next.Secrets[at] = s
	case len(next.Secrets) >= MaxSecrets:
		return fmt.Errorf("%w: %d are kept, and no more can be", ErrInvalid, MaxSecrets)
	default:
		next.Secrets = slices.Insert(next.Secrets, at, s)
	}
	return v.write(next)
}

// Remove forgets the secret of that name.
func (v *Vault) Remove(name string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	at, found := slices.BinarySearchFunc(v.c.Secrets, name, byName)
	if !found {
		return ErrNotFound
	}
	next := v.c
	next.Secrets = slices.Delete(slices.Clone(v.c.Secrets), at, at+1)
	return v.write(next)
}

// Secrets returns all that people set, by name. The values are copies.
func (v *Vault) Secrets() []Secret {
	v.mu.Lock()
	defer v.mu.Unlock()
	out := slices.Clone(v.c.Secrets)
	for i := range out {
		out[i].Value = bytes.Clone(out[i].Value)
	}
	return out
}

// Record returns what was kept under key; ErrNotFound if nothing was.
func (v *Vault) Record(key string) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	b, ok := v.c.Records[key]
	if !ok {
		return nil, ErrNotFound
	}
	return bytes.Clone(b), nil
}

// PutRecord keeps value under key, 1 to 256 bytes. What it means is the caller's.
func (v *Vault) PutRecord(key string, value []byte) error {
	if key == "" || len(key) > maxKey || len(value) > maxRecord {
		return fmt.Errorf("%w: a record has a key of 1 to %d bytes, and at most %d bytes", ErrInvalid, maxKey, maxRecord)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.change(func(next *content) error {
		if _, ok := next.Records[key]; !ok && len(next.Records) >= maxRecords {
			return fmt.Errorf("%w: %d records are kept, and no more can be", ErrInvalid, maxRecords)
		}
		next.Records[key] = bytes.Clone(value)
		return nil
	})
}

// DeleteRecord forgets what was kept under key, if anything.
func (v *Vault) DeleteRecord(key string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if _, ok := v.c.Records[key]; !ok {
		return nil
	}
	return v.change(func(next *content) error { delete(next.Records, key); return nil })
}

// Key returns the key of that name, which fresh makes if there is none.
func (v *Vault) Key(name string, fresh func() ([]byte, error)) ([]byte, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if k, ok := v.c.Keys[name]; ok {
		return bytes.Clone(k), nil
	}
	made, err := fresh()
	if err != nil {
		return nil, fmt.Errorf("making the key %s: %w", name, err)
	}
	if name == "" || len(name) > maxKey || len(made) == 0 || len(made) > maxRecord {
		return nil, fmt.Errorf("%w: the key %q has %d bytes", ErrInvalid, name, len(made))
	}
	err = v.change(func(next *content) error { next.Keys[name] = bytes.Clone(made); return nil })
	return made, err
}

// change writes a changed copy of the records and keys. v.mu is held.
func (v *Vault) change(f func(*content) error) error {
	next := v.c
	if next.Records = maps.Clone(v.c.Records); next.Records == nil {
		next.Records = map[string][]byte{}
	}
	if next.Keys = maps.Clone(v.c.Keys); next.Keys == nil {
		next.Keys = map[string][]byte{}
	}
	if err := f(&next); err != nil {
		return err
	}
	return v.write(next)
}
