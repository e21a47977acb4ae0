package mediator

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"time"
)

// What a sealed state holds.
const (
	stateTicket = 't' // the ticket of a suspension of ours
	stateServer = 's' // the request state of a server
)

// seals make what clients carry for us unreadable and unchangeable: AES-256-GCM
// (NIST SP 800-38D) with random nonces, under a key that only this process has. A
// state opens only for the client and the request it was made for, and until its time.
type seals struct{ aead cipher.AEAD }

func newSeals() (seals, error) {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	block, err := aes.NewCipher(key)
	if err != nil {
		return seals{}, err
	}
	aead, err := cipher.NewGCMWithRandomNonce(block)
	return seals{aead}, err
}

// bound is what a state is bound to. A digest has a fixed length, so that no two
// clients and requests are bound alike.
func bound(who string, digest [sha256.Size]byte) []byte { return append(digest[:], who...) }

// seal returns a state as text.
func (s seals) seal(kind byte, who string, digest [sha256.Size]byte, payload []byte, until time.Time) (string, error) {
	if len(payload) > maxState {
		return "", fmt.Errorf("the request state takes more than %d bytes", maxState)
	}
	plain := binary.BigEndian.AppendUint64(make([]byte, 0, 9+len(payload)), uint64(until.Unix()))
	plain = append(append(plain, kind), payload...)
	return encodeState.EncodeToString(s.aead.Seal(nil, nil, plain, bound(who, digest))), nil
}

// open returns what seal was given; the error is errState for anything else.
func (s seals) open(text, who string, digest [sha256.Size]byte, now time.Time) (kind byte, payload []byte, err error) {
	if len(text) > 2*maxState {
		return 0, nil, errState
	}
	raw, err := encodeState.DecodeString(text)
	if err != nil {
		return 0, nil, errState
	}
	plain, err := s.aead.Open(nil, nil, raw, bound(who, digest))
	if err != nil || len(plain) < 9 {
		return 0, nil, errState
	}
	if until := int64(binary.BigEndian.Uint64(plain)); until < now.Unix() {
		return 0, nil, errState
	}
	return plain[8], plain[9:], nil
}
