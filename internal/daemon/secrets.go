package daemon

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/inspect"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/vault"
)

// secrets is the vault of an engine, what its sessions have besides, and who looks for
// all of it in what is recorded. The vault is opened when it is first needed: most
// installations have none.
type secrets struct {
	home string
	seed []byte // of the keys that sentinels are made with
	now  func() time.Time

	known atomic.Pointer[inspect.Inspector]

	mu    sync.Mutex
	vault *vault.Vault // nil: not opened yet
	kept  map[string]vault.Secret
	own   map[string]map[string]vault.Secret // by session
	given map[string]map[string]string       // what stands for secrets, by session and name
	uses  map[string]time.Time
	wrote time.Time // when uses were last written
}

const (
	keyringWait = 2 * time.Second
	maxOwn      = 64 // secrets of one session alone
	usesEvery   = time.Minute
	maxUses     = 256 << 10 // bytes of the file
)

func newSecrets(home string, seed []byte, now func() time.Time) *secrets {
	s := &secrets{home: home, seed: seed, now: now, kept: map[string]vault.Secret{}, own: map[string]map[string]vault.Secret{}, given: map[string]map[string]string{}, uses: map[string]time.Time{}}
	s.known.Store(&inspect.Inspector{})
	return s
}

var _ gate.Inspector = (*secrets)(nil)

// ScanFrom and Redact are those of an inspector that knows every secret.
func (s *secrets) ScanFrom(content []byte, o inspect.Origin) inspect.Findings {
	return s.known.Load().ScanFrom(content, o)
}

// Redact implements gate.Inspector.
func (s *secrets) Redact(content []byte, f inspect.Findings) []byte {
	return s.known.Load().Redact(content, f)
}

// ready opens the vault if there is one. Its values are looked for from then on.
func (s *secrets) ready() error {
	if _, err := os.Lstat(paths.Vault(s.home)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.open()
}

// open opens the vault, and makes it if there is none. s.mu is held.
func (s *secrets) open() error {
	if s.vault != nil {
		return nil
	}
	file := vault.File{Path: paths.VaultKey(s.home)}
	keepers := []vault.Keeper{file}
	if paths.HasSessionBus() {
		keepers = []vault.Keeper{vault.Keyring{Ring: vault.System{}, Home: s.home, Wait: keyringWait}, file}
	}
	v, err := vault.Open(vault.Options{Path: paths.Vault(s.home), Keepers: keepers, Now: s.now})
	if err != nil {
		return err
	}
	s.vault = v
	s.readUses()
	return s.learn()
}

// learn takes what the vault holds into memory, and into what is looked for. s.mu is held.
func (s *secrets) learn() error {
	if s.vault != nil {
		s.kept = map[string]vault.Secret{}
		for _, one := range s.vault.Secrets() {
			s.kept[one.Name] = one
		}
	}
	var all []inspect.Secret
	for _, one := range s.kept {
		all = append(all, inspect.Secret{Name: one.Name, Value: one.Value})
	}
	for _, session := range s.own {
		for _, one := range session {
			all = append(all, inspect.Secret{Name: one.Name, Value: one.Value})
		}
	}
	in, err := inspect.New(all)
	if err != nil {
		return fmt.Errorf("looking for secrets in what is recorded: %w", err)
	}
	s.known.Store(in)
	return nil
}

// close gives the vault back.
func (s *secrets) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vault == nil {
		return nil
	}
	s.writeUses()
	err := s.vault.Close()
	s.vault = nil
	return err
}

func (s *secrets) readUses() {
	data, err := os.ReadFile(paths.VaultUses(s.home))
	if err != nil || len(data) > maxUses || strictjson.Unmarshal(data, &s.uses) != nil {
		s.uses = map[string]time.Time{} // it is for people, and begins anew
	}
}

// writeUses writes when secrets were last lent. It is for people: what is not written is
// a date that is too old. s.mu is held.
func (s *secrets) writeUses() {
	maps.DeleteFunc(s.uses, func(name string, _ time.Time) bool { _, ok := s.kept[name]; return !ok })
	data, err := json.Marshal(s.uses)
	if err == nil {
		err = atomicfile.WriteSoon(paths.VaultUses(s.home), data, 0o600)
	}
	if err != nil {
		slog.Warn("writing when secrets were used", slog.Any("err", err))
	}
	s.wrote = s.now()
}

// find returns the secret of that name that session has: its own before that of the
// vault. s.mu is held.
func (s *secrets) find(session, name string) (vault.Secret, bool) {
	if one, ok := s.own[session][name]; ok {
		return one, true
	}
	one, ok := s.kept[name]
	return one, ok
}

// sentinel returns what stands for a secret in the boxes of session: what was given to
// them before, whatever the value is now. s.mu is held.
func (s *secrets) sentinel(session string, one vault.Secret) (loan.Sentinel, error) {
	made := loan.Sentinel{Name: one.Name, Text: s.given[session][one.Name], Env: one.Env, Bindings: one.Bindings}
	if made.Text != "" {
		return made, nil
	}
	key, err := hkdf.Key(sha256.New, s.seed, nil, "ringfence sentinel v1\x00"+session+"\x00"+one.Name, 32)
	if err != nil {
		return loan.Sentinel{}, fmt.Errorf("making a sentinel: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return loan.Sentinel{}, fmt.Errorf("making a sentinel: %w", err)
	}
	random := cipher.StreamReader{S: cipher.NewCTR(block, make([]byte, aes.BlockSize)), R: zeros{}}
	made.Text, err = loan.NewSentinel(one.Value, random)
	return made, err
}

// zeros is what a key stream is added to.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

var _ io.Reader = zeros{}

// lender lends to one session.
type lender struct {
	*secrets
	session string
}

var _ gate.Lender = lender{}

// Bound implements gate.Lender.
func (l lender) Bound(name, method, url string) error {
	l.mu.Lock()
	one, ok := l.find(l.session, name)
	l.mu.Unlock()
	if !ok {
		return errors.New("there is none of that name")
	}
	u, err := weburl.Parse(url)
	if err != nil {
		return fmt.Errorf("the address %w", err)
	}
	for _, b := range one.Bindings {
		if b.Covers(method, u) {
			return nil
		}
	}
	if len(one.Bindings) == 0 {
		return errors.New("it is bound to no host")
	}
	return fmt.Errorf("it is bound to %s", one.Bindings[0])
}

// Lend implements gate.Lender.
func (l lender) Lend(name string) (act.Loan, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	one, ok := l.find(l.session, name)
	if !ok {
		return act.Loan{}, errors.New("there is none of that name")
	}
	s, err := l.sentinel(l.session, one)
	if err != nil {
		return act.Loan{}, err
	}
	now := l.now().UTC().Truncate(time.Second)
	if _, own := l.own[l.session][name]; !own && now.After(l.uses[name]) {
		l.uses[name] = now
		if now.Sub(l.wrote) >= usesEvery {
			l.writeUses()
		}
	}
	return act.Loan{Name: name, Sentinel: s.Text, Value: string(one.Value)}, nil
}

// drop forgets what session alone had.
func (s *secrets) drop(session string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.given, session)
	if s.own[session] == nil {
		return
	}
	for _, one := range s.own[session] {
		clear(one.Value)
	}
	delete(s.own, session)
	if err := s.learn(); err != nil {
		slog.Error("forgetting the secrets of a session", slog.Any("err", err))
	}
}

// vaultError is err for clients.
func vaultError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, vault.ErrNotFound):
		return api.Errorf(api.CodeNotFound, "%v", err)
	case errors.Is(err, vault.ErrInvalid), errors.Is(err, inspect.ErrSecret):
		return api.Errorf(api.CodeBadRequest, "%v", err)
	case errors.Is(err, ipc.ErrLocked):
		return api.Errorf(api.CodeInternal, "another process has the vault open: %v", err)
	}
	return err
}

// opened runs f with the vault open, and takes in what changed.
func (s *secrets) opened(f func(*vault.Vault) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.open(); err != nil {
		return vaultError(err)
	}
	if err := f(s.vault); err != nil {
		return vaultError(err)
	}
	return nil
}

// SetSecret implements api.Secrets.
func (e *Engine) SetSecret(_ context.Context, c api.Caller, in api.SecretInfo, value []byte) error {
	s := e.secrets
	one := vault.Secret{Name: in.Name, Env: in.Env, Bindings: in.Bindings, Value: value}
	return s.opened(func(v *vault.Vault) error {
		if _, err := inspect.New([]inspect.Secret{{Name: in.Name, Value: value}}); err != nil {
			return err // one that cannot be looked for is not kept
		}
		if err := v.Set(one); err != nil {
			return err
		}
		return s.learn()
	})
}

// RemoveSecret implements api.Secrets.
func (e *Engine) RemoveSecret(_ context.Context, _ api.Caller, name string) error {
	s := e.secrets
	return s.opened(func(v *vault.Vault) error {
		if err := v.Remove(name); err != nil {
			return err
		}
		return s.learn()
	})
}

// ListSecrets implements api.Secrets.
func (e *Engine) ListSecrets(context.Context, api.Caller) (api.SecretList, error) {
	s := e.secrets
	if err := s.ready(); err != nil {
		return api.SecretList{}, vaultError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := api.SecretList{Secrets: []api.SecretInfo{}, Protection: "nothing is kept yet"}
	if s.vault != nil {
		out.Protection = s.vault.Protection()
	}
	for _, name := range slices.Sorted(maps.Keys(s.kept)) {
		one := s.kept[name]
		out.Secrets = append(out.Secrets, api.SecretInfo{Name: name, Env: one.Env, Bindings: one.Bindings, Set: one.Set, Used: s.uses[name]})
	}
	return out, nil
}

// Sentinels implements api.Secrets.
func (e *Engine) Sentinels(_ context.Context, c api.Caller, session string, own []loan.Own, have map[string]string) ([]loan.Sentinel, error) {
	if e.owned(session, c) == nil {
		return nil, api.ErrNoSession
	}
	if len(own) > maxOwn || len(have) > maxOwn+vault.MaxSecrets {
		return nil, api.Errorf(api.CodeBadRequest, "a session has at most %d secrets of its own", maxOwn)
	}
	mine := map[string]vault.Secret{}
	for _, o := range own {
		one, err := vault.Check(vault.Secret{Name: o.Name, Value: o.Value, Env: o.Env, Bindings: o.Bindings})
		if err != nil {
			return nil, vaultError(err)
		}
		mine[o.Name] = one
	}
	s := e.secrets
	if err := s.ready(); err != nil {
		return nil, vaultError(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.own[session] = mine; len(mine) == 0 {
		delete(s.own, session)
	}
	if err := s.learn(); err != nil {
		delete(s.own, session)
		return nil, errors.Join(vaultError(err), s.learn())
	}
	return s.give(session, mine, have)
}

// give returns what stands for each secret of session, and keeps it. s.mu is held.
func (s *secrets) give(session string, mine map[string]vault.Secret, have map[string]string) ([]loan.Sentinel, error) {
	if s.given[session] == nil {
		s.given[session] = maps.Clone(have)
	}
	if s.given[session] == nil {
		s.given[session] = map[string]string{}
	}
	names := slices.Collect(maps.Keys(mine))
	for name := range s.kept {
		if _, ok := mine[name]; !ok {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int { return order(mine, a, b) })
	var out []loan.Sentinel
	for _, name := range names {
		one, _ := s.find(session, name)
		made, err := s.sentinel(session, one)
		if err != nil {
			return nil, err
		}
		s.given[session][name] = made.Text
		out = append(out, made)
	}
	return out, nil
}

// order puts what a session has itself first: it wins where two are shown in one variable.
func order(mine map[string]vault.Secret, a, b string) int {
	_, am := mine[a]
	_, bm := mine[b]
	switch {
	case am != bm && am, am == bm && a < b:
		return -1
	case a == b:
		return 0
	}
	return 1
}

// LoadToken implements api.Secrets.
func (e *Engine) LoadToken(_ context.Context, _ api.Caller, key string) (value []byte, err error) {
	if err := e.secrets.ready(); err != nil {
		return nil, vaultError(err)
	}
	s := e.secrets
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.vault == nil {
		return nil, api.ErrNotFound
	}
	value, err = s.vault.Record(key)
	return value, vaultError(err)
}

// SaveToken implements api.Secrets.
func (e *Engine) SaveToken(_ context.Context, _ api.Caller, key string, value []byte) error {
	return e.secrets.opened(func(v *vault.Vault) error { return v.PutRecord(key, value) })
}

// DeleteToken implements api.Secrets.
func (e *Engine) DeleteToken(_ context.Context, _ api.Caller, key string) error {
	if _, err := e.LoadToken(context.Background(), api.Caller{}, key); errors.Is(err, api.ErrNotFound) {
		return nil
	}
	return e.secrets.opened(func(v *vault.Vault) error { return v.DeleteRecord(key) })
}
