package ledger

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"ringfence/internal/act/strictjson"
)

// A sequence checks, entry by entry, what L2 and L3 promise. The zero of a
// session's chain means that it has no entry yet.
type sequence struct {
	chains map[string]*chain
	time   []byte // of the entry before
	boot   int64
}

func newSequence() *sequence { return &sequence{chains: map[string]*chain{}} }

// next checks one entry against those before it. sid is the number of its
// session in the database, or 0 where there is no database.
func (s *sequence) next(index, sid int64, f *leaf, hash [32]byte) error {
	c := s.chains[string(f.session)]
	if c == nil {
		c = new(chain)
		s.chains[string(f.session)] = c
	}
	switch {
	case c.ended:
		return divergence(index, "it follows the end of session %s", f.session)
	case f.seq != c.seq:
		return divergence(index, "its seq is %d, and the session goes on with %d", f.seq, c.seq)
	case f.prev != c.prev:
		return divergence(index, "its prev is not the hash of entry %d of session %s", c.seq-1, f.session)
	case bytes.Compare(f.time, s.time) < 0:
		return divergence(index, "its time %s is before %s of the entry before", f.time, s.time)
	case f.boot < s.boot:
		return divergence(index, "its boot %d is before %d of the entry before", f.boot, s.boot)
	case c.sid != 0 && c.sid != sid:
		return divergence(index, "the database has it under another session than %s", f.session)
	}
	s.time, s.boot = append(s.time[:0], f.time...), f.boot
	c.sid, c.seq, c.prev, c.ended = sid, c.seq+1, hash, string(f.typ) == TypeEnd
	return nil
}

// openBody is the body of the first entry of a ledger.
type openBody struct {
	Key     string `json:"key"` // as keychain.PublicText
	Origin  string `json:"origin"`
	Program string `json:"program"`
}

// restartBody is the body of the first entry of every later opening.
type restartBody struct {
	Clean     bool   `json:"clean"` // it had been closed in order
	Program   string `json:"program"`
	Uncovered int64  `json:"uncovered"` // entries before this one that no checkpoint covered
}

// parseOpen decodes the first entry of a ledger.
func parseOpen(raw []byte) (openBody, error) {
	f, err := parseLeaf(raw)
	if err != nil {
		return openBody{}, err
	}
	if string(f.session) != SystemSession || string(f.typ) != TypeOpen || f.seq != 0 {
		return openBody{}, errors.New("a ledger does not begin with it")
	}
	var body openBody
	return body, decodeBody(f.body, &body)
}

// decodeBody reads a body that the ledger itself wrote: no other members, and
// nothing left out.
func decodeBody(body []byte, v any) error {
	if err := strictjson.Unmarshal(body, v); err != nil {
		return fmt.Errorf("reading body: %w", err)
	}
	again, err := json.Marshal(v)
	if err == nil {
		again, err = strictjson.Canonical(again)
	}
	if err == nil && !bytes.Equal(again, body) {
		err = errors.New("reading body: it has other members than it should")
	}
	return err
}
