package vault

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"filippo.io/age"
	"github.com/zalando/go-keyring"

	"ringfence/internal/sys/keychain"
)

// A Keeper keeps the key of one vault: the text of an age identity.
type Keeper interface {
	// Load returns the key; errNoKey if this keeper has none, any other error if it
	// cannot say.
	Load() (text string, err error)
	// Make keeps the key that fresh returns, and returns what it keeps then.
	Make(fresh func() (string, error)) (text string, err error)
	// Protection says, for people, what keeps the key from others.
	Protection() string
}

// errNoKey says that a keeper has no key.
var errNoKey = errors.New("no key of this vault")

// keyOf returns the key that opens the vault, and who keeps it. Those that answer at once
// come last in keepers, and are asked first. If the key is to be made, the first of
// keepers that can keeps it.
func keyOf(keepers []Keeper, sealed []byte) (Keeper, *age.X25519Identity, error) {
	var errs []error
	for _, k := range slices.Backward(keepers) {
		text, err := k.Load()
		if errors.Is(err, errNoKey) {
			continue
		}
		var id *age.X25519Identity
		if err == nil {
			id, err = identity(text)
		}
		if err == nil && (sealed == nil || opens(sealed, id)) {
			return k, id, nil
		}
		errs = append(errs, err)
	}
	if sealed != nil {
		return nil, nil, errors.Join(append([]error{fmt.Errorf("%w: nobody has its key; if that is lost, so are the secrets: move the file away and set them again", ErrLocked)}, errs...)...)
	}
	for _, k := range keepers {
		text, err := k.Make(freshKey)
		var id *age.X25519Identity
		if err == nil {
			id, err = identity(text)
		}
		if err == nil {
			return k, id, nil
		}
		errs = append(errs, err)
	}
	return nil, nil, errors.Join(append([]error{fmt.Errorf("%w: its key cannot be kept", ErrLocked)}, errs...)...)
}

// opens reports whether id is whom the head of sealed is for.
func opens(sealed []byte, id *age.X25519Identity) bool {
	_, err := age.Decrypt(bytes.NewReader(sealed), id)
	_, other := errors.AsType[*age.NoIdentityMatchError](err)
	return !other // what is damaged is told by who reads it
}

func freshKey() (string, error) {
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return "", err
	}
	return id.String() + "\n", nil
}

// identity reads the text of a key. Its error does not quote it.
func identity(text string) (*age.X25519Identity, error) {
	id, err := age.ParseX25519Identity(strings.TrimSuffix(text, "\n"))
	if err != nil {
		return nil, fmt.Errorf("%w: its key is not the text of an age identity", ErrDamaged)
	}
	return id, nil
}

// File is the keeper that is a file, which only its owner may read.
type File struct{ Path string }

// Load implements [Keeper].
func (f File) Load() (string, error) {
	if _, err := os.Lstat(f.Path); errors.Is(err, fs.ErrNotExist) {
		return "", errNoKey
	}
	return keychain.LoadOrCreateText(f.Path, func() (string, error) { return "", errNoKey })
}

// Make implements [Keeper].
func (f File) Make(fresh func() (string, error)) (string, error) {
	return keychain.LoadOrCreateText(f.Path, fresh)
}

// Protection implements [Keeper].
func (f File) Protection() string {
	return fmt.Sprintf("a file with the key beside them (%s), which every program that runs as you outside of a box can read", filepath.Base(f.Path))
}

// A Ring is a keyring of the system, as go-keyring reaches it.
type Ring interface {
	Get(service, user string) (string, error)
	Set(service, user, password string) error
}

// System is the keyring of the person who is logged in.
type System struct{}

// Get implements [Ring].
func (System) Get(service, user string) (string, error) { return keyring.Get(service, user) }

// Set implements [Ring].
func (System) Set(service, user, password string) error { return keyring.Set(service, user, password) }

// Keyring is the keeper that is a keyring.
type Keyring struct {
	Ring Ring
	Home string        // of the installation: its key in the ring
	Wait time.Duration // how long an answer is waited for; a ring may ask its person
}

// service names our entries in a keyring.
const service = "ringfence"

var errSilent = fmt.Errorf("%w: the keyring does not answer", ErrLocked)

// within runs f, but does not wait longer than k.Wait for it.
func (k Keyring) within(f func() (string, error)) (string, error) {
	type answer struct {
		text string
		err  error
	}
	done := make(chan answer, 1)
	go func() {
		text, err := f()
		done <- answer{text, err}
	}()
	timer := time.NewTimer(k.Wait)
	defer timer.Stop()
	select {
	case a := <-done:
		return a.text, a.err
	case <-timer.C:
		return "", errSilent
	}
}

// Load implements [Keeper].
func (k Keyring) Load() (string, error) {
	text, err := k.within(func() (string, error) { return k.Ring.Get(service, k.Home) })
	switch {
	case errors.Is(err, keyring.ErrNotFound):
		return "", errNoKey
	case err != nil && !errors.Is(err, ErrLocked):
		return "", fmt.Errorf("%w: the keyring: %w", ErrLocked, err)
	}
	return text, err
}

// Make implements [Keeper]. What was kept is read back: a ring that forgets at once would
// lose the vault.
func (k Keyring) Make(fresh func() (string, error)) (string, error) {
	text, err := fresh()
	if err != nil {
		return "", err
	}
	got, err := k.within(func() (string, error) {
		if err := k.Ring.Set(service, k.Home, text); err != nil {
			return "", err
		}
		return k.Ring.Get(service, k.Home)
	})
	if err == nil && got != text {
		err = errors.New("it does not keep what it is given")
	}
	if err != nil {
		return "", fmt.Errorf("%w: the keyring: %w", ErrLocked, err)
	}
	return got, nil
}

// Protection implements [Keeper].
func (k Keyring) Protection() string {
	return "a file whose key the keyring of the system keeps, as long as that is locked"
}
