package session

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"time"

	"ringfence/internal/sys/atomicfile"
)

// A File is what outlives the engine: enough to resume the session after the
// engine was restarted. It holds the hash of the token, never the token.
type File struct {
	ID        string          `json:"id"`
	Principal string          `json:"principal"`
	Workspace string          `json:"workspace"`
	Home      string          `json:"home"`
	UID       uint32          `json:"uid"`           // only this user may resume it
	PID       int             `json:"pid,omitempty"` // of its client, which alone has the token; 0: not known
	TokenHash string          `json:"token_hash"`
	Started   time.Time       `json:"started"`
	Open      json.RawMessage `json:"open"` // the request that opened it, opaque here
	// Lost is since when it has no client, as far as its engine saw. It is zero
	// while there is one, and still so if the engine went first.
	Lost time.Time `json:"lost,omitzero"`
}

// base32 in lower case without padding: ids are read aloud and typed.
var idEncoding = base32.NewEncoding("abcdefghijkmnpqrstuvwxyz23456789").WithPadding(base32.NoPadding)

var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^s-[a-z2-9]{16}$`) })

// NewID returns a fresh public id: "s-" and 80 random bits.
func NewID() string {
	var b [10]byte
	rand.Read(b[:])
	return "s-" + idEncoding.EncodeToString(b[:])
}

// NewToken returns a fresh secret of 160 random bits, which resumes a session.
func NewToken() string {
	var b [20]byte
	rand.Read(b[:])
	return idEncoding.EncodeToString(b[:])
}

// HashToken returns what a [File] keeps of a token.
func HashToken(token string) string {
	h := sha256.Sum256([]byte("ringfence session token v1\x00" + token))
	return hex.EncodeToString(h[:])
}

// Resumes reports whether token, presented by user uid, resumes f.
func (f File) Resumes(token string, uid uint32) bool {
	same := subtle.ConstantTimeCompare([]byte(HashToken(token)), []byte(f.TokenHash)) == 1
	return same && f.UID == uid
}

// Save writes f into dir, replacing an older file of the same session. It survives the
// process, not the machine: after a loss of power the file may be empty or missing, and
// nobody resumes the session.
func (f File) Save(dir string) error {
	data, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return fmt.Errorf("encoding session %s: %w", f.ID, err)
	}
	if err := atomicfile.WriteSoon(filepath.Join(dir, f.ID+".json"), data, 0o600); err != nil {
		return fmt.Errorf("saving session %s: %w", f.ID, err)
	}
	return nil
}

// LoadFile reads the file of session id from dir. An id that is not of the form
// that [NewID] returns is refused, so that it cannot name another file.
func LoadFile(dir, id string) (File, error) {
	if !idForm().MatchString(id) {
		return File{}, fmt.Errorf("session %q: an id is s- and sixteen letters or digits", strings.ToValidUTF8(id, "?"))
	}
	data, err := os.ReadFile(filepath.Join(dir, id+".json"))
	if err != nil {
		return File{}, fmt.Errorf("loading session %s: %w", id, err)
	}
	var f File
	if err := json.Unmarshal(data, &f); err != nil {
		return File{}, fmt.Errorf("loading session %s: %w", id, err)
	}
	if f.ID != id {
		return File{}, fmt.Errorf("loading session %s: the file is of session %s", id, f.ID)
	}
	return f, nil
}

// RemoveFile removes the file of an ended session; a missing one is no error.
func RemoveFile(dir, id string) error {
	if !idForm().MatchString(id) {
		return fmt.Errorf("session %q: an id is s- and sixteen letters or digits", strings.ToValidUTF8(id, "?"))
	}
	if err := os.Remove(filepath.Join(dir, id+".json")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing session %s: %w", id, err)
	}
	return nil
}

// IDs returns the ids of all sessions that have a file in dir, whatever is in it,
// in no order.
func IDs(dir string) ([]string, error) {
	found, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("reading the folder of sessions: %w", err)
	}
	var ids []string
	for _, e := range found {
		id, ok := strings.CutSuffix(e.Name(), ".json")
		if ok && idForm().MatchString(id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
