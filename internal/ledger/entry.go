package ledger

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"time"

	"ringfence/internal/act/strictjson"
)

// An Entry is what a caller wants on record.
type Entry struct {
	Session string // its chain: 1 to 64 of A-Z a-z 0-9 . _ -
	Type    string // 1 to 64 of a-z 0-9 . _ -, beginning with a letter
	Body    []byte // a JSON object of at most MaxBody bytes; stored in canonical form
}

// A Ref says where an entry is.
type Ref struct {
	Index   int64    // in the ledger, from 0
	Session string   // its chain
	Seq     int64    // in the chain, from 0
	Hash    [32]byte // its leaf hash
}

// A Record is an entry as it is stored.
type Record struct {
	Ref
	Time time.Time // UTC, whole microseconds; never before that of the entry before
	Type string
	Boot int64    // how many times the ledger had been opened
	Prev [32]byte // hash of the entry before in the same chain; zero for the first
	Body []byte   // canonical JSON object
	Raw  []byte   // the leaf: exactly the bytes that are hashed
}

// Bounds on what is recorded.
const (
	MaxBody  = 1 << 20 // bytes of a body
	MaxBatch = 1024    // entries of one Append
	maxName  = 64      // bytes of a session or type
	maxLeaf  = MaxBody + 1024
	// A leaf without its body: nine fixed pieces, two names, two numbers, a hash, a time.
	maxEnvelope = 96 + 2*maxName + 2*16 + 64 + len(timeLayout)
	maxInt      = 1<<53 - 1 // largest seq, boot, index: a whole double
)

// SystemSession is the chain of the ledger itself. The engine may append to it
// too.
const SystemSession = "ledger"

// The types that mean something to the ledger. All but TypeEnd are written by
// the ledger only.
const (
	TypeOpen    = "ledger-open"    // the first entry of all: origin and key
	TypeRestart = "ledger-restart" // the ledger was opened again
	TypeClose   = "ledger-close"   // it was closed in order
	TypeClock   = "clock-set-back" // the clock of the machine went back
	TypeKey     = "ledger-key"     // another key signs from here on
	TypeEnd     = "session-end"    // the last entry of its chain: nothing may follow
)

// formatVersion is the version of the leaf format this program writes.
const formatVersion = 1

const timeLayout = "2006-01-02T15:04:05.000000Z"

// errVersion marks a leaf or file of a version that this program does not know,
// so that nothing can be said about it.
var errVersion = errors.New("unknown version")

// A leaf is the decoded envelope of an entry. Its slices are parts of the bytes
// it was decoded from.
type leaf struct {
	body, session, typ []byte
	time               []byte // in timeLayout, so that byte order is order in time
	prev               [32]byte
	boot, seq          int64
}

// leafHash is the RFC 6962 hash of a leaf: SHA-256 of a zero byte and raw.
func leafHash(raw []byte) [32]byte {
	var room [1024]byte
	return sha256.Sum256(append(append(room[:0], 0), raw...))
}

// appendLeaf appends the envelope of f: canonical JSON (RFC 8785) with exactly
// these members. The members are in their canonical order, and all of them but
// the body are of a form that has one spelling.
func appendLeaf(dst []byte, f leaf) []byte {
	dst = append(append(dst, `{"body":`...), f.body...)
	dst = strconv.AppendInt(append(dst, `,"boot":`...), f.boot, 10)
	dst = hex.AppendEncode(append(dst, `,"prev":"`...), f.prev[:])
	dst = strconv.AppendInt(append(dst, `","seq":`...), f.seq, 10)
	dst = append(append(dst, `,"session":"`...), f.session...)
	dst = append(append(dst, `","time":"`...), f.time...)
	dst = append(append(dst, `","type":"`...), f.typ...)
	dst = strconv.AppendInt(append(dst, `","v":`...), formatVersion, 10)
	return append(dst, '}')
}

// parseLeaf decodes what appendLeaf writes and refuses everything else; the
// error is errVersion if the version is another. It reads from the end, where
// no member can hold a quotation mark, so that the body needs no parser: what
// is left must be one canonical object.
func parseLeaf(raw []byte) (leaf, error) {
	var f leaf
	r := backward{rest: raw, ok: len(raw) <= maxLeaf}
	r.drop(`}`)
	version := r.number()
	r.drop(`,"v":`)
	if r.ok && version != formatVersion {
		return leaf{}, fmt.Errorf("%w %d", errVersion, version)
	}
	f.typ = r.quoted(`,"type":`)
	f.time = r.quoted(`,"time":`)
	f.session = r.quoted(`,"session":`)
	f.seq = r.number()
	r.drop(`,"seq":`)
	prev := r.quoted(`,"prev":`)
	f.boot = r.number()
	r.drop(`,"boot":`)
	body, found := bytes.CutPrefix(r.rest, []byte(`{"body":`))
	if !r.ok || !found {
		return leaf{}, errors.New("not an entry: one has body, boot, prev, seq, session, time, type and v, in that order and spelling")
	}
	f.body = body
	return f, f.check(prev)
}

// check validates the members of a decoded envelope.
func (f *leaf) check(prev []byte) error {
	if n, err := hex.Decode(f.prev[:], prev[:min(len(prev), 64)]); err != nil || n != 32 || len(prev) != 64 || bytes.ContainsAny(prev, "ABCDEF") {
		return errors.New("prev is not 64 hexadecimal digits in lower case")
	}
	if err := checkNames(f.session, f.typ); err != nil {
		return err
	}
	if !validTime(f.time) {
		return fmt.Errorf("time %q is not of the form %q", f.time, timeLayout)
	}
	if err := checkBody(f.body); err != nil {
		return err
	}
	if !strictjson.IsCanonical(f.body) {
		return errors.New("body is not canonical JSON")
	}
	return nil
}

// checkBody reports whether body, which is JSON, is an object within bounds.
func checkBody(body []byte) error {
	switch {
	case len(body) > MaxBody:
		return fmt.Errorf("body of %d bytes, more than %d", len(body), MaxBody)
	case len(body) == 0 || body[0] != '{':
		return errors.New("body is not a JSON object")
	}
	return nil
}

func checkNames(session, typ []byte) error {
	if !validName(session, true) {
		return fmt.Errorf("session %.80q is not 1 to %d of A-Z a-z 0-9 . _ -", session, maxName)
	}
	if !validName(typ, false) || typ[0] < 'a' {
		return fmt.Errorf("type %.80q is not a letter and up to %d of a-z 0-9 . _ -", typ, maxName-1)
	}
	return nil
}

func validName(s []byte, upper bool) bool {
	for _, c := range s {
		switch {
		case c >= 'a' && c <= 'z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		case upper && c >= 'A' && c <= 'Z':
		default:
			return false
		}
	}
	return len(s) > 0 && len(s) <= maxName
}

// validTime reports whether b is a time in timeLayout.
func validTime(b []byte) bool {
	if len(b) != len(timeLayout) {
		return false
	}
	for i, c := range []byte(timeLayout) {
		if digit := c >= '0' && c <= '9'; digit && (b[i] < '0' || b[i] > '9') || !digit && b[i] != c {
			return false
		}
	}
	two := func(i int) int { return int(b[i]-'0')*10 + int(b[i+1]-'0') }
	year, month, day := two(0)*100+two(2), two(5), two(8)
	if month < 1 || month > 12 || day < 1 || two(11) > 23 || two(14) > 59 || two(17) > 59 {
		return false
	}
	return day <= 28 || day <= daysIn(year, time.Month(month))
}

func daysIn(year int, month time.Month) int {
	return time.Date(year, month+1, 0, 0, 0, 0, 0, time.UTC).Day()
}

// A backward reader takes things off the end of a text. Once something is not
// there, ok is false and stays so.
type backward struct {
	rest []byte
	ok   bool
}

func (r *backward) drop(s string) {
	rest, found := bytes.CutSuffix(r.rest, []byte(s))
	r.rest, r.ok = rest, r.ok && found
}

// quoted takes a string without escapes and the name before it.
func (r *backward) quoted(name string) []byte {
	r.drop(`"`)
	i := bytes.LastIndexByte(r.rest, '"')
	if !r.ok || i < 0 {
		r.ok = false
		return nil
	}
	value := r.rest[i+1:]
	r.rest = r.rest[:i]
	r.drop(name)
	return value
}

// number takes a whole number from 0 to maxInt without leading zeros.
func (r *backward) number() int64 {
	i := len(r.rest)
	for i > 0 && r.rest[i-1] >= '0' && r.rest[i-1] <= '9' && len(r.rest)-i < 17 {
		i--
	}
	n, ok := parseInt(r.rest[i:])
	r.rest, r.ok = r.rest[:i], r.ok && ok
	return n
}

// parseInt reads a whole number from 0 to maxInt in its only spelling.
func parseInt(digits []byte) (int64, bool) {
	if len(digits) == 0 || len(digits) > 16 || digits[0] == '0' && len(digits) > 1 {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int64(c-'0')
	}
	return n, n <= maxInt
}

// record turns a decoded leaf into a Record with memory of its own.
func (f *leaf) record(index int64, raw []byte) (Record, error) {
	when, err := time.Parse(timeLayout, string(f.time))
	if err != nil {
		return Record{}, fmt.Errorf("reading entry %d: %w", index, err)
	}
	raw = bytes.Clone(raw)
	start := len(`{"body":`)
	return Record{
		Ref:  Ref{Index: index, Session: string(f.session), Seq: f.seq, Hash: leafHash(raw)},
		Time: when, Type: string(f.typ), Boot: f.boot, Prev: f.prev,
		Body: raw[start : start+len(f.body) : start+len(f.body)], Raw: raw,
	}, nil
}
