// Package dns reads questions to a resolver and writes answers to them: messages of
// RFC 1035, one question each, as programs in a box send them.
//
// It is no resolver: it asks nobody and knows no names. It reads no answers.
//
// Invariants:
//
//	D1  No message makes it panic or allocate more than the message and one answer.
//	D2  A name that it returns has the labels that were sent, each of letters, digits,
//	    hyphens and underscores, in lower case; a message with any other is refused.
//	D3  An answer repeats the question as it was sent, and no more than was asked for.
package dns

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
)

// The types of records that are told apart (RFC 1035 §3.2.2, RFC 3596, RFC 9460).
const (
	TypeA     uint16 = 1
	TypeAAAA  uint16 = 28
	TypeSVCB  uint16 = 64
	TypeHTTPS uint16 = 65
)

// The codes of an answer (RFC 1035 §4.1.1).
const (
	NoError  uint8 = 0
	Format   uint8 = 1
	Failure  uint8 = 2
	NoName   uint8 = 3
	NotKnown uint8 = 4
	Refused  uint8 = 5
)

// MaxMessage bounds a question, in bytes: a name, and what EDNS adds.
const MaxMessage = 4 << 10

// A Question is the one question of a message.
type Question struct {
	ID   uint16
	Name string // without the final dot; "" is the root
	Type uint16
	EDNS bool // the message has an OPT record (RFC 6891)

	flags uint16
	raw   []byte // as it was sent
}

// ErrMessage says that a message is no question that can be answered.
var ErrMessage = errors.New("reading a question to the resolver: it is malformed")

const (
	headLen  = 12
	maxName  = 255
	maxLabel = 63
	classIN  = 1
	typeOPT  = 41

	flagReply     = 1 << 15
	flagRecursion = 1 << 8 // wanted
	flagAvailable = 1 << 7
	opcodes       = 0xf << 11
)

// Parse reads a message. With an error, q can be answered all the same if answerable.
func Parse(b []byte) (q Question, answerable bool, err error) {
	if len(b) < headLen || len(b) > MaxMessage {
		return q, false, ErrMessage
	}
	q.ID, q.flags = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if q.flags&flagReply != 0 {
		return q, false, ErrMessage
	}
	counts := [4]uint16{}
	for i := range counts {
		counts[i] = binary.BigEndian.Uint16(b[4+2*i:])
	}
	if q.flags&opcodes != 0 || counts[0] != 1 || counts[1] != 0 || counts[2] != 0 || counts[3] > 1 {
		return q, true, ErrMessage
	}
	rest, ok := q.readName(b[headLen:])
	if !ok || len(rest) < 4 || binary.BigEndian.Uint16(rest[2:]) != classIN {
		return q, true, ErrMessage
	}
	q.Type = binary.BigEndian.Uint16(rest)
	q.raw = b[headLen : len(b)-len(rest)+4]
	rest = rest[4:]
	if counts[3] == 1 {
		q.EDNS = true
		if len(rest) < 11 || rest[0] != 0 || binary.BigEndian.Uint16(rest[1:]) != typeOPT || len(rest) != 11+int(binary.BigEndian.Uint16(rest[9:])) {
			q.raw = nil
			return q, true, ErrMessage
		}
		rest = nil
	}
	if len(rest) > 0 {
		q.raw = nil
		return q, true, ErrMessage
	}
	return q, true, nil
}

// readName reads a name without compression, which a question needs none of.
func (q *Question) readName(b []byte) (rest []byte, ok bool) {
	var name strings.Builder
	for total := 1; len(b) > 0; {
		n := int(b[0])
		if n == 0 {
			q.Name = name.String()
			return b[1:], true
		}
		if total += n + 1; n > maxLabel || len(b) < n+1 || total > maxName {
			return nil, false
		}
		if name.Len() > 0 {
			name.WriteByte('.')
		}
		for _, c := range b[1 : n+1] {
			switch {
			case 'A' <= c && c <= 'Z':
				c += 'a' - 'A'
			case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '-', c == '_':
			default:
				return nil, false
			}
			name.WriteByte(c)
		}
		b = b[n+1:]
	}
	return nil, false
}

// Answer returns the answer to q: code, and the addresses that are of its type, each
// valid for ttl seconds.
func (q *Question) Answer(code uint8, ttl uint32, addrs ...netip.Addr) []byte {
	b := make([]byte, headLen, headLen+len(q.raw)+len(addrs)*28+11)
	binary.BigEndian.PutUint16(b, q.ID)
	binary.BigEndian.PutUint16(b[2:], flagReply|q.flags&(opcodes|flagRecursion)|flagAvailable|uint16(code&0xf))
	if len(q.raw) > 0 {
		b[5] = 1
		b = append(b, q.raw...)
	}
	count := uint16(0)
	for _, a := range addrs {
		if len(q.raw) == 0 || q.Type == TypeA != a.Is4() || q.Type == TypeAAAA != a.Is6() {
			continue
		}
		b = binary.BigEndian.AppendUint16(b, 0xc000|headLen) // the name of the question
		b = binary.BigEndian.AppendUint16(b, q.Type)
		b = binary.BigEndian.AppendUint16(b, classIN)
		b = binary.BigEndian.AppendUint32(b, ttl)
		b = binary.BigEndian.AppendUint16(b, uint16(a.BitLen()/8))
		b = append(b, a.AsSlice()...)
		count++
	}
	binary.BigEndian.PutUint16(b[6:], count)
	if q.EDNS && len(q.raw) > 0 {
		b[11] = 1
		b = append(b, 0, 0, typeOPT, MaxMessage>>8, MaxMessage&0xff, 0, 0, 0, 0, 0, 0)
	}
	return b
}
