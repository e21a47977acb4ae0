// Package keychain keeps signing keys: today in files that only their owner may
// read.
//
// It signs nothing, and does not protect a key from the user whose key it is.
// The agent is kept away from these files by its box, not by this package.
//
// Invariants:
//
//	K1  A private key is never read from a file that others could have read,
//	    written or put there: wrong owner, group or world bits, a link, several
//	    names.
//	K2  A key file is complete or absent; of several processes that create it at
//	    once, one of them killed half way, all others end up with the same key.
//	K3  Each key has exactly one text. Any other spelling is refused.
package keychain

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

const (
	privatePrefix = "ringfence-key/v1 ed25519 "
	publicPrefix  = "ringfence-pub/v1 ed25519 "
	maxFile       = 256 // bytes; the text of a private key has 70
	tempPattern   = ".key-*.tmp"
)

// ErrUnsafeFile marks a key file that others can reach (K1). Tell the person:
// the key may be known to others and should be replaced.
var ErrUnsafeFile = errors.New("unsafe key file")

// LoadOrCreate returns the Ed25519 key in the file at path. If there is none it
// makes a key and the file, mode 0600, and the directory, mode 0700. The file
// is one line: "ringfence-key/v1 ed25519 " and the RFC 8032 seed in base64.
func LoadOrCreate(path string) (ed25519.PrivateKey, error) {
	text, err := LoadOrCreateText(path, func() (string, error) {
		seed := make([]byte, ed25519.SeedSize)
		_, err := rand.Read(seed)
		return privateText(seed), err
	})
	if err != nil {
		return nil, err
	}
	encoded, found := strings.CutPrefix(text, privatePrefix)
	seed, err := base64.StdEncoding.Strict().DecodeString(strings.TrimSuffix(encoded, "\n"))
	if !found || err != nil || len(seed) != ed25519.SeedSize || privateText(seed) != text {
		return nil, fmt.Errorf("reading key %s: not a line of the form %q", path, privatePrefix+"<base64>")
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// LoadOrCreateText returns the whole text of the key file at path, at most 256 bytes. If
// there is none it makes the file, mode 0600, and the directory, mode 0700, with the
// text that fresh returns. What the text means, and whether it is well formed, is the
// caller's to check.
func LoadOrCreateText(path string, fresh func() (string, error)) (string, error) {
	text, err := load(path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := create(path, fresh); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("creating key %s: %w", path, err)
		}
		text, err = load(path)
	}
	if errors.Is(err, errSeveralNames) {
		if err := dropCreatorsName(path); err != nil {
			return "", fmt.Errorf("finishing the creation of key %s: %w", path, err)
		}
		text, err = load(path)
	}
	return text, err
}

// errSeveralNames is the one unsafe state that [create] itself passes through.
var errSeveralNames = fmt.Errorf("%w: it has several names", ErrUnsafeFile)

// dropCreatorsName removes the temporary name that the creator of the key at
// path still has to remove, or will not any more because it was killed. Any
// other second name stays, and the key refused.
func dropCreatorsName(path string) error {
	dir := filepath.Dir(path)
	key, err := os.Lstat(path)
	if err != nil {
		return err
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		if ours, err := filepath.Match(tempPattern, f.Name()); err != nil || !ours {
			continue
		}
		temp := filepath.Join(dir, f.Name())
		fi, err := os.Lstat(temp)
		if err == nil && os.SameFile(fi, key) {
			err = os.Remove(temp)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // its creator was quicker
			return err
		}
	}
	return syncDir(dir)
}

// load reads and checks the file at path.
func load(path string) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if err != nil {
		if isLink(path) {
			err = fmt.Errorf("%w: it is a symbolic link", ErrUnsafeFile)
		}
		return "", fmt.Errorf("reading key %s: %w", path, err)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFile))
	fi, statErr := f.Stat()
	if err := errors.Join(err, statErr, f.Close()); err != nil {
		return "", fmt.Errorf("reading key %s: %w", path, err)
	}
	if err := checkFile(fi); err != nil {
		return "", fmt.Errorf("reading key %s: %w", path, err)
	}
	return string(text), nil
}

func isLink(path string) bool {
	fi, err := os.Lstat(path)
	return err == nil && fi.Mode()&fs.ModeSymlink != 0
}

func privateText(seed []byte) string {
	return privatePrefix + base64.StdEncoding.EncodeToString(seed) + "\n"
}

// create writes the text of a fresh key under a temporary name and links it to path, so
// that path is never seen half written. The error is fs.ErrExist if another
// process was first.
func create(path string, fresh func() (string, error)) error {
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	text, err := fresh()
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, tempPattern) // O_EXCL, mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = os.Link(f.Name(), path)
	}
	if removeErr := os.Remove(f.Name()); !errors.Is(removeErr, fs.ErrNotExist) { // a reader was quicker
		err = errors.Join(err, removeErr)
	}
	if err != nil {
		return err
	}
	return syncDir(dir)
}

// KeyID is a short name for a public key: the first 8 bytes, in hex, of the
// SHA-256 of "ringfence-pub/v1 ed25519 " and the 32 bytes of the key.
func KeyID(pub ed25519.PublicKey) string {
	sum := sha256.Sum256(append([]byte(publicPrefix), pub...))
	return hex.EncodeToString(sum[:8])
}

// PublicText is the one-line text of a public key, without a line end:
// "ringfence-pub/v1 ed25519 <KeyID> <base64>".
func PublicText(pub ed25519.PublicKey) string {
	return publicPrefix + KeyID(pub) + " " + base64.StdEncoding.EncodeToString(pub)
}

// ParsePublic reads what [PublicText] writes; one line end may follow. The key
// id must be that of the key.
func ParsePublic(text string) (ed25519.PublicKey, error) {
	line := strings.TrimSuffix(text, "\n")
	_, encoded, _ := strings.Cut(strings.TrimPrefix(line, publicPrefix), " ")
	pub, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || len(pub) != ed25519.PublicKeySize || PublicText(pub) != line {
		return nil, fmt.Errorf("reading public key: not a line of the form %q", publicPrefix+"<key id> <base64>")
	}
	return pub, nil
}

// Known returns the public keys that a home knows: that of the private key in
// own, and those in the files of the directory trusted. What is not there adds
// none; what cannot be read is an error.
func Known(own, trusted string) ([]ed25519.PublicKey, error) {
	var keys []ed25519.PublicKey
	if _, err := os.Lstat(own); err == nil {
		key, err := LoadOrCreate(own)
		if err != nil {
			return nil, err
		}
		keys = append(keys, key.Public().(ed25519.PublicKey))
	}
	files, err := os.ReadDir(trusted)
	if errors.Is(err, fs.ErrNotExist) {
		return keys, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading trusted keys: %w", err)
	}
	for _, f := range files {
		data, err := os.ReadFile(filepath.Join(trusted, f.Name()))
		if err != nil {
			return nil, fmt.Errorf("reading trusted keys: %w", err)
		}
		key, err := ParsePublic(string(data))
		if err != nil {
			return nil, fmt.Errorf("reading trusted key %s: %w", f.Name(), err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
