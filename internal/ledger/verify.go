package ledger

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"ringfence/internal/sys/database"
)

// A Status is the result of a verification. Its zero value is Invalid.
type Status uint8

// The three results.
const (
	// Invalid: something is not as it was signed, or cannot be read.
	Invalid Status = iota
	// Incomplete: nothing is wrong, and something is not proved: the signer is
	// not trusted, the version is not known, entries are not signed yet, or an
	// exported session has not ended, so that its latest entries may be missing.
	Incomplete
	// Valid: every byte is what a trusted key signed, and nothing is missing.
	Valid
)

// String returns "invalid", "incomplete" or "valid".
func (s Status) String() string {
	switch s {
	case Invalid:
	case Incomplete:
		return "incomplete"
	case Valid:
		return "valid"
	}
	return "invalid"
}

// MarshalText writes the name that String returns.
func (s Status) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// A Verification says what was verified, and how it ended.
type Verification struct {
	Status      Status `json:"status"`
	Reason      string `json:"reason,omitempty"` // why it is not Valid
	Index       int64  `json:"index"`            // the first entry that is wrong, -1 if none or not an entry
	Line        int    `json:"line,omitempty"`   // of an export, from 1: the first that is wrong
	Origin      string `json:"origin,omitempty"`
	Key         string `json:"key,omitempty"` // id of the key that signed
	Size        int64  `json:"size"`          // entries that the newest checkpoint covers
	Entries     int64  `json:"entries"`       // entries that were verified
	Sessions    int64  `json:"sessions,omitempty"`
	Checkpoints int64  `json:"checkpoints,omitempty"`
	Session     string `json:"session,omitempty"` // of an export
	Ended       bool   `json:"ended,omitempty"`   // it has its last entry
}

// reject makes a verification Invalid because of err.
func (v *Verification) reject(err error) {
	v.Status, v.Reason, v.Index = Invalid, err.Error(), -1
	if d, ok := errors.AsType[*DivergenceError](err); ok {
		v.Index = d.Index
	}
}

// Verify verifies everything in the ledger up to a checkpoint that it makes
// first: the form and hash of every entry, the chains, the order, the root and
// signature at every stored checkpoint, the copy beside the database, and every
// table that is derived from the entries. The result is Valid or Invalid; an
// error means that the database could not be read. Appends go on meanwhile.
func (l *Ledger) Verify(ctx context.Context) (Verification, error) {
	c, err := l.Checkpoint(ctx)
	if err != nil {
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	head, err := readHead(l.dir)
	if err != nil {
		v := Verification{}
		v.reject(err)
		return v, nil
	}
	if err := l.settle(nil); err != nil { // the head may be of entries that were written meanwhile
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	l.mu.Lock()
	a := audit{head: head, trusted: []ed25519.PublicKey{l.public}, upTo: c.Size}
	l.mu.Unlock()
	if head != nil && head.Size > c.Size { // made meanwhile
		a.upTo = head.Size
	}
	if err := a.runOn(ctx, l.db); err != nil {
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	return a.v, nil
}

// VerifyDir verifies the ledger in dir without opening it for appending, and
// so also one that Open refuses, or that another process has open. The result
// is Valid only if the newest checkpoint is signed by one of the trusted keys
// and covers every entry.
func VerifyDir(ctx context.Context, dir string, trusted []ed25519.PublicKey) (Verification, error) {
	a := audit{trusted: trusted, upTo: -1}
	var err error
	// In this order: what leaves one of them is in the next before.
	if a.head, err = readHead(dir); err != nil {
		a.v.reject(err)
		return a.v, nil
	}
	a.journal, err = readDir(dir)
	if errors.Is(err, ErrTampered) {
		a.v.reject(err)
		return a.v, nil
	}
	if err != nil {
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	o := schema
	o.ReadOnly = true
	db, err := database.OpenSQLite(ctx, filepath.Join(dir, databaseFile), o)
	switch {
	case errors.Is(err, fs.ErrNotExist) && a.head != nil:
		a.v.reject(fmt.Errorf("%w: %s is gone, and covered %d entries", ErrRolledBack, databaseFile, a.head.Size))
		return a.v, nil
	case errors.Is(err, database.ErrDamaged):
		a.v.reject(err)
		return a.v, nil
	case err != nil:
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	if err = errors.Join(a.runOn(ctx, db), db.Close()); err != nil {
		return Verification{}, fmt.Errorf("verifying ledger: %w", err)
	}
	return a.v, nil
}
