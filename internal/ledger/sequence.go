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
		return divergence(index, "session %s had ended before it, with entry %d: it was added, or moved", f.session, c.last)
	case f.seq > c.seq:
		return divergence(index, "it is number %d of session %s, and number %d, which belongs before it, is missing or was moved", f.seq, f.session, c.seq)
	case f.seq < c.seq:
		return divergence(index, "it is number %d of session %s, which comes after number %d here: it was repeated, or moved", f.seq, f.session, c.seq-1)
	case f.prev != c.prev && c.seq == 0:
		return divergence(index, "it is the first of session %s, and says that one came before it", f.session)
	case f.prev != c.prev:
		return misfit(index, c.last, f.session)
	case bytes.Compare(f.time, s.time) < 0:
		return divergence(index, "its time %s is before %s of the entry before: one of them was changed, or moved", f.time, s.time)
	case f.boot < s.boot:
		return divergence(index, "it says that the ledger had been opened %d times, and the entry before it %d times: one of them was changed, or moved", f.boot, s.boot)
	case c.sid != 0 && c.sid != sid:
		return divergence(index, "it is of session %s, and the database has it under another", f.session)
	}
	s.time, s.boot = append(s.time[:0], f.time...), f.boot
	c.sid, c.seq, c.prev, c.ended, c.last = sid, c.seq+1, hash, string(f.typ) == TypeEnd, index
	return nil
}

// misfit is the error for an entry that was recorded after another than the one that is
// before it now.
func misfit(index, before int64, session []byte) error {
	return &DivergenceError{
		Index: index, other: &before,
		Reason: fmt.Sprintf("it and entry %d, the one before it in session %s, do not fit together: one of them was changed", before, session),
	}
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
