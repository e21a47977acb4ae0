package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/mod/sumdb/note"
)

// A Checkpoint is a signed statement of the whole ledger: a C2SP tlog-
// checkpoint in a signed note, with one Ed25519 signature and no extension
// lines.
type Checkpoint struct {
	Origin string   // name of the ledger
	Size   int64    // how many entries it covers
	Root   [32]byte // RFC 6962 root over them
	Note   []byte   // the signed text
}

const (
	maxNote   = 1024 // bytes of a signed checkpoint
	maxOrigin = 128  // bytes of an origin
)

var errSignature = errors.New("its signature is not by the key in force over what it says: one of them was changed")

// text returns what is signed.
func (c *Checkpoint) text() string {
	return c.Origin + "\n" + strconv.FormatInt(c.Size, 10) + "\n" + base64.StdEncoding.EncodeToString(c.Root[:]) + "\n"
}

// signer returns the note signer for key under the name origin.
func signer(key ed25519.PrivateKey, origin string) (note.Signer, error) {
	v, err := verifier(key.Public().(ed25519.PublicKey), origin)
	if err != nil {
		return nil, err
	}
	secret := append([]byte{1}, key.Seed()...) // 1: Ed25519
	return note.NewSigner(fmt.Sprintf("PRIVATE+KEY+%s+%08x+%s", origin, v.KeyHash(), base64.StdEncoding.EncodeToString(secret)))
}

// verifier returns the note verifier for key under the name origin.
func verifier(key ed25519.PublicKey, origin string) (note.Verifier, error) {
	text, err := note.NewEd25519VerifierKey(origin, key)
	if err != nil {
		return nil, err
	}
	return note.NewVerifier(text)
}

// sign makes a checkpoint.
func sign(s note.Signer, size int64, root [32]byte) (Checkpoint, error) {
	c := Checkpoint{Origin: s.Name(), Size: size, Root: root}
	signed, err := note.Sign(&note.Note{Text: c.text()}, s)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("signing checkpoint: %w", err)
	}
	c.Note = signed
	return c, nil
}

// parseCheckpoint decodes a signed checkpoint without verifying its signature.
func parseCheckpoint(signed []byte) (Checkpoint, error) {
	malformed := errors.New("not a checkpoint: want the lines origin, size, root, none, signature")
	if len(signed) > maxNote {
		return Checkpoint{}, malformed
	}
	lines := strings.Split(string(signed), "\n")
	if len(lines) != 6 || lines[3] != "" || lines[5] != "" {
		return Checkpoint{}, malformed
	}
	size, ok := parseInt([]byte(lines[1]))
	root, err := base64.StdEncoding.Strict().DecodeString(lines[2])
	if !ok || err != nil || len(root) != 32 || !validOrigin(lines[0]) {
		return Checkpoint{}, malformed
	}
	return Checkpoint{Origin: lines[0], Size: size, Root: [32]byte(root), Note: bytes.Clone(signed)}, nil
}

// validOrigin reports whether s can be the name of a ledger: a note name, and
// narrower, so that every program agrees on what a space is.
func validOrigin(s string) bool {
	for _, c := range []byte(s) {
		if c <= ' ' || c > '~' || c == '+' {
			return false
		}
	}
	return s != "" && len(s) <= maxOrigin
}

// openCheckpoint decodes a signed checkpoint and verifies that key signed it.
// Every byte of signed is accounted for: what was read is written again and
// must be the same.
func openCheckpoint(signed []byte, key ed25519.PublicKey) (Checkpoint, error) {
	c, err := parseCheckpoint(signed)
	if err != nil {
		return Checkpoint{}, err
	}
	v, err := verifier(key, c.Origin)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("not a checkpoint: its origin is no name: %w", err)
	}
	n, err := note.Open(signed, note.VerifierList(v))
	if err != nil || len(n.Sigs) != 1 || len(n.UnverifiedSigs) != 0 {
		return Checkpoint{}, errSignature
	}
	// note.Open lets the last bits of base64 be anything.
	sig, err := base64.StdEncoding.Strict().DecodeString(n.Sigs[0].Base64)
	if err != nil || c.text()+"\n— "+c.Origin+" "+base64.StdEncoding.EncodeToString(sig)+"\n" != string(signed) {
		return Checkpoint{}, errors.New("not a checkpoint: it has another spelling")
	}
	return c, nil
}
