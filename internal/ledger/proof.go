package ledger

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"ringfence/internal/sys/keychain"
)

const (
	proofHeader = "c2sp.org/tlog-proof@v1\n"
	maxProof    = 64 // hashes in an inclusion proof
)

// Prove returns a proof that the entry with an index is in the ledger, in the
// form of c2sp.org/tlog-proof@v1, up to a checkpoint that covers it. The leaf
// that it is about is the Raw of the entry's Record.
func (l *Ledger) Prove(ctx context.Context, index int64) ([]byte, error) {
	c, err := l.covering(ctx, index)
	if err != nil {
		return nil, fmt.Errorf("proving entry %d: %w", index, err)
	}
	var path tlog.RecordProof
	err = l.read(ctx, func(tx *sql.Tx) (err error) {
		path, err = newNodes(ctx, tx).path(c, index)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("proving entry %d: %w", index, err)
	}
	b := fmt.Appendf(nil, "%sindex %d\n", proofHeader, index)
	for _, h := range path {
		b = append(base64.StdEncoding.AppendEncode(b, h[:]), '\n')
	}
	return append(append(b, '\n'), c.Note...), nil
}

// covering returns a checkpoint that covers an index.
func (l *Ledger) covering(ctx context.Context, index int64) (Checkpoint, error) {
	l.mu.Lock()
	c, size := l.signed, l.head.size
	l.mu.Unlock()
	if index < 0 || index >= size {
		return Checkpoint{}, ErrNotFound
	}
	if index < c.Size {
		return c, nil
	}
	return l.Checkpoint(ctx)
}

// path returns the inclusion proof of an entry, after checking it.
func (r *nodes) path(c Checkpoint, index int64) (tlog.RecordProof, error) {
	path, err := tlog.ProveRecord(c.Size, index, r)
	if err != nil {
		return nil, err
	}
	hash, err := r.node(0, index)
	if err != nil {
		return nil, err
	}
	if tlog.CheckRecord(path, c.Size, tlog.Hash(c.Root), index, hash) != nil {
		return nil, fmt.Errorf("%w: entry %d is not in the tree of the checkpoint at size %d", ErrTampered, index, c.Size)
	}
	return path, nil
}

// VerifyProof verifies that leaf is in the ledger that signed proof, which is
// what [Ledger.Prove] returns. The result is Valid only if one of the trusted
// keys signed it; with none of them it is Incomplete, since the proof does not
// say who did.
func VerifyProof(proof, leaf []byte, trusted []ed25519.PublicKey) Verification {
	v := Verification{Index: -1}
	index, path, signed, err := parseProof(proof)
	if err != nil {
		v.reject(err)
		return v
	}
	c, err := parseCheckpoint(signed)
	if err != nil {
		v.reject(err)
		return v
	}
	v.Origin, v.Size = c.Origin, c.Size
	if tlog.CheckRecord(path, c.Size, tlog.Hash(c.Root), index, leafHash(leaf)) != nil {
		v.reject(divergence(index, "it is not what was signed: its number, its proof or what was recorded has been changed"))
		return v
	}
	f, err := parseLeaf(leaf)
	switch {
	case errors.Is(err, errVersion):
		v.Status, v.Reason = Incomplete, err.Error()
		return v
	case err != nil:
		v.reject(divergence(index, "%v", err))
		return v
	}
	v.Entries, v.Session = 1, string(f.session)
	for _, key := range trusted {
		_, err := openCheckpoint(signed, key)
		switch {
		case err == nil:
			v.Status, v.Key = Valid, keychain.KeyID(key)
			return v
		case claims(signed, key):
			v.reject(fmt.Errorf("the checkpoint: %w", err))
			return v
		}
	}
	v.Status, v.Reason = Incomplete, "the checkpoint is not signed by any of the trusted keys"
	return v
}

// claims reports whether a checkpoint names key as its signer.
func claims(signed []byte, key ed25519.PublicKey) bool {
	c, err := parseCheckpoint(signed)
	if err != nil {
		return false
	}
	v, err := verifier(key, c.Origin)
	if err != nil {
		return false
	}
	line := signed[len(c.text())+1:]
	i := bytes.LastIndexByte(line, ' ')
	sig, err := base64.StdEncoding.DecodeString(string(bytes.TrimSuffix(line[i+1:], []byte("\n"))))
	return err == nil && len(sig) > 4 && binary.BigEndian.Uint32(sig) == v.KeyHash()
}

// parseProof decodes a tlog-proof without extra data. It accepts exactly what
// Prove writes.
func parseProof(proof []byte) (index int64, path tlog.RecordProof, signed []byte, err error) {
	malformed := errors.New("not a proof of the form c2sp.org/tlog-proof@v1")
	head, signed, found := bytes.Cut(proof, []byte("\n\n"))
	head, ok := bytes.CutPrefix(head, []byte(proofHeader))
	if !found || !ok {
		return 0, nil, nil, malformed
	}
	lines := bytes.Split(head, []byte("\n"))
	digits, ok := bytes.CutPrefix(lines[0], []byte("index "))
	if !ok || len(lines) > 1+maxProof {
		return 0, nil, nil, malformed
	}
	if index, ok = parseInt(digits); !ok {
		return 0, nil, nil, malformed
	}
	for _, line := range lines[1:] {
		h, err := base64.StdEncoding.Strict().DecodeString(string(line))
		if err != nil || len(h) != 32 || base64.StdEncoding.EncodeToString(h) != string(line) {
			return 0, nil, nil, malformed
		}
		path = append(path, tlog.Hash(h))
	}
	return index, path, signed, nil
}

// Consistent checks that the ledger still contains everything that an earlier
// checkpoint of it covered, one that was kept elsewhere. It is how a ledger
// that was rolled back, forked or rewritten by a holder of its key is found.
// The error is ErrTampered or ErrRolledBack if it does not, ErrKey if the
// checkpoint is not one of this ledger.
func (l *Ledger) Consistent(ctx context.Context, signed []byte) error {
	c, err := parseCheckpoint(signed)
	if err == nil && c.Origin != l.origin {
		err = fmt.Errorf("%w: %s", ErrKey, c.Origin)
	}
	if err != nil {
		return fmt.Errorf("comparing checkpoint: %w", err)
	}
	err = l.read(ctx, func(tx *sql.Tx) error {
		size, err := countEntries(ctx, tx)
		if err != nil {
			return err
		}
		if err := signedByAny(ctx, tx, signed); err != nil {
			return err
		}
		if c.Size > size {
			return fmt.Errorf("%w: it covers %d entries, the ledger has %d", ErrRolledBack, c.Size, size)
		}
		root, err := newNodes(ctx, tx).rootAt(c.Size)
		if err == nil && root != c.Root {
			err = fmt.Errorf("%w: the first %d entries are not those it covers", ErrTampered, c.Size)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("comparing checkpoint: %w", err)
	}
	return nil
}

// signedByAny checks that some key that the ledger has had signed a checkpoint.
func signedByAny(ctx context.Context, tx *sql.Tx, signed []byte) error {
	rows, err := tx.QueryContext(ctx, "SELECT public FROM keys")
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			return err
		}
		key, err := keychain.ParsePublic(text)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTampered, err)
		}
		if _, err := openCheckpoint(signed, key); err == nil {
			return nil
		}
	}
	return errors.Join(rows.Err(), fmt.Errorf("%w: no key of it signed the checkpoint", ErrKey))
}
