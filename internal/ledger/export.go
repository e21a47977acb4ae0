package ledger

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"

	"golang.org/x/mod/sumdb/tlog"

	"ringfence/internal/sys/keychain"
)

const (
	exportPrefix  = "ringfence-export/v"
	exportVersion = 1
	maxLine       = maxLeaf + maxProof*44 + 64 // bytes of a line of an export
	maxHeaderLine = 512
)

// Export writes one session as a text that [VerifyExport], or a stranger's
// program, verifies without the ledger: every leaf with a proof that it is in
// the tree of one signed checkpoint. The format is in docs/ledger-format.md.
func (l *Ledger) Export(ctx context.Context, session string, w io.Writer) error {
	c, err := l.Checkpoint(ctx)
	if err == nil {
		err = l.read(ctx, func(tx *sql.Tx) error { return export(ctx, tx, session, c, w) })
	}
	if err != nil {
		return fmt.Errorf("exporting session %.80q: %w", session, err)
	}
	return nil
}

func export(ctx context.Context, tx *sql.Tx, session string, c Checkpoint, w io.Writer) error {
	key, err := keyAt(ctx, tx, c.Size)
	if err != nil {
		return err
	}
	end, err := findChain(ctx, tx, session, c.Size)
	if err == nil && end.seq == 0 {
		err = ErrNotFound
	}
	if err != nil {
		return err
	}
	out := bufio.NewWriterSize(w, 64<<10)
	if _, err := out.WriteString(exportHeader(session, end.seq, key, c)); err != nil {
		return err
	}
	hashes := newNodes(ctx, tx)
	err = eachOfSession(ctx, tx, session, 0, c.Size, func(idx int64, raw []byte) error {
		path, err := hashes.path(c, idx)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(out, "%d %s %s\n", idx, encodePath(path), raw)
		return err
	})
	return errors.Join(err, out.Flush())
}

// exportHeader is everything before the first entry.
func exportHeader(session string, entries int64, key ed25519.PublicKey, c Checkpoint) string {
	return fmt.Sprintf("%s%d\nsession %s\nentries %d\nkey %s\n\n%s\n", exportPrefix, exportVersion, session, entries, keychain.PublicText(key), c.Note)
}

// encodePath writes the hashes of an inclusion proof one after the other in
// base64; "-" for none.
func encodePath(path tlog.RecordProof) string {
	if len(path) == 0 {
		return "-"
	}
	b := make([]byte, 0, 32*len(path))
	for _, h := range path {
		b = append(b, h[:]...)
	}
	return base64.StdEncoding.EncodeToString(b)
}

func decodePath(text string) (tlog.RecordProof, error) {
	malformed := errors.New("malformed inclusion proof")
	if text == "-" {
		return nil, nil
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil || len(b) == 0 || len(b)%32 != 0 || len(b) > 32*maxProof {
		return nil, malformed
	}
	var path tlog.RecordProof
	for ; len(b) > 0; b = b[32:] {
		path = append(path, tlog.Hash(b[:32]))
	}
	if encodePath(path) != text {
		return nil, malformed
	}
	return path, nil
}

// VerifyExport verifies what [Ledger.Export] wrote. It needs no database and
// reads r once. The result is Valid only if the session has ended, and one of
// the trusted keys signed the checkpoint; if anything at all was changed since,
// it is Invalid, whichever keys are given. An error means that r could not be
// read.
func VerifyExport(r io.Reader, trusted []ed25519.PublicKey) (Verification, error) {
	x := exportReader{in: bufio.NewReaderSize(r, 64<<10), trusted: trusted, seq: newSequence(), last: -1}
	x.v.Index = -1
	version, err := x.run()
	if x.readErr != nil {
		return Verification{}, fmt.Errorf("reading export: %w", x.readErr)
	}
	switch {
	case version == exportVersion && err == nil:
	case version == exportVersion || version == 0:
		x.v.reject(err)
		x.v.Line = x.line
	case err == nil:
		x.v.reject(fmt.Errorf("it says that it is version %d, and is version %d", version, exportVersion))
		x.v.Line = 1
	default:
		x.v = Verification{Status: Incomplete, Reason: fmt.Sprintf("%v %d", errVersion, version), Index: -1, Line: 1}
	}
	return x.v, nil
}

// An exportReader reads an export line by line.
type exportReader struct {
	in      *bufio.Reader
	trusted []ed25519.PublicKey
	line    int // the one just read, from 1
	readErr error

	v       Verification
	c       Checkpoint
	entries int64 // as the header says
	key     ed25519.PublicKey
	seq     *sequence
	last    int64 // index of the entry before
	unknown int64 // entries of an unknown version
}

var errLine = errors.New("the line is not as it should be")

// run verifies everything. version is 0 if it does not even say which it is.
// The error, if any, is about the line x.line.
func (x *exportReader) run() (version int64, err error) {
	line, err := x.next(maxHeaderLine)
	if err != nil {
		return 0, fmt.Errorf("not an export: %w", err)
	}
	digits, ok := bytes.CutPrefix(line, []byte(exportPrefix))
	if version, _ = parseInt(digits); !ok || version == 0 {
		return 0, fmt.Errorf("not an export: it begins with %q and a number", exportPrefix)
	}
	if err := x.header(); err != nil {
		return version, err
	}
	for n := int64(0); n < x.entries; n++ {
		if err := x.entry(); err != nil {
			return version, err
		}
	}
	if _, err := x.in.ReadByte(); err != io.EOF {
		x.readErr = err
		x.line++
		return version, fmt.Errorf("something follows the last of the %d entries that line 3 says there are", x.entries)
	}
	x.conclude()
	return version, nil
}

// next reads a line of at most limit bytes and returns it without its end.
func (x *exportReader) next(limit int) ([]byte, error) {
	x.line++
	var line []byte
	for {
		part, err := x.in.ReadSlice('\n')
		if len(line)+len(part) > limit {
			return nil, fmt.Errorf("the line is longer than %d bytes", limit)
		}
		line = append(line, part...)
		switch {
		case err == nil:
			return line[:len(line)-1], nil
		case errors.Is(err, io.EOF):
			return nil, x.cut()
		case !errors.Is(err, bufio.ErrBufferFull):
			x.readErr = err
			return nil, err
		}
	}
}

// cut says what a file that ends too early lacks.
func (x *exportReader) cut() error {
	if x.c.Size == 0 {
		return errors.New("the file ends here, before its first entry")
	}
	return fmt.Errorf("the file ends here: line 3 says that there are %d entries, and %d are whole", x.entries, x.v.Entries)
}

// header reads the lines from the second to the one before the entries.
func (x *exportReader) header() error {
	fields := map[string]string{}
	for _, name := range []string{"session", "entries", "key"} {
		line, err := x.next(maxHeaderLine)
		if err != nil {
			return err
		}
		value, ok := strings.CutPrefix(string(line), name+" ")
		if !ok {
			return fmt.Errorf("%w: the header has %q and a value here", errLine, name)
		}
		fields[name] = value
		if err := x.field(name, value); err != nil {
			return err
		}
	}
	if err := x.empty(); err != nil {
		return err
	}
	var signed []byte
	for range 5 {
		line, err := x.next(maxHeaderLine)
		if err != nil {
			return err
		}
		signed = append(append(signed, line...), '\n')
	}
	var err error
	if x.c, err = openCheckpoint(signed, x.key); err != nil {
		return fmt.Errorf("the checkpoint in lines 6 to 10, with the key in line 4: %w", err)
	}
	if x.entries > x.c.Size {
		return fmt.Errorf("line 3 says that there are %d entries, of a ledger that had %d by line 7", x.entries, x.c.Size)
	}
	x.v.Origin, x.v.Key, x.v.Size, x.v.Session = x.c.Origin, keychain.KeyID(x.key), x.c.Size, fields["session"]
	return x.empty()
}

// field takes one named line of the header.
func (x *exportReader) field(name, value string) (err error) {
	ok := true
	switch name {
	case "session":
		ok = validName([]byte(value), true)
	case "entries":
		x.entries, ok = parseInt([]byte(value))
		ok = ok && x.entries > 0
	case "key":
		x.key, err = keychain.ParsePublic(value)
	}
	if !ok {
		err = fmt.Errorf("%w: %s %.80q", errLine, name, value)
	}
	return err
}

func (x *exportReader) empty() error {
	line, err := x.next(maxHeaderLine)
	if err == nil && len(line) != 0 {
		err = fmt.Errorf("%w: it should be empty", errLine)
	}
	return err
}

// entry reads one entry: index, proof, leaf.
func (x *exportReader) entry() error {
	line, err := x.next(maxLine)
	if err != nil {
		return err
	}
	digits, rest, ok1 := bytes.Cut(line, []byte(" "))
	proof, raw, ok2 := bytes.Cut(rest, []byte(" "))
	index, ok3 := parseInt(digits)
	if !ok1 || !ok2 || !ok3 {
		return fmt.Errorf("%w: an entry is its number in the ledger, its proof, and what was recorded", errLine)
	}
	switch {
	case index == x.last:
		return divergence(index, "it is there twice")
	case index < x.last:
		return divergence(index, "it comes after entry %d: lines were moved, or added", x.last)
	}
	x.last = index
	path, err := decodePath(string(proof))
	if err != nil {
		return divergence(index, "%v", err)
	}
	hash := leafHash(raw)
	if tlog.CheckRecord(path, x.c.Size, tlog.Hash(x.c.Root), index, hash) != nil {
		return divergence(index, "it is not what was signed: its number, its proof or what was recorded has been changed%s", unreadable(raw))
	}
	f, err := parseLeaf(raw)
	switch {
	case errors.Is(err, errVersion):
		x.unknown++
	case err != nil:
		return divergence(index, "%v", err)
	case x.unknown > 0: // what comes before it is not known
	case string(f.session) != x.v.Session && x.v.Entries == 0: // what was signed is right
		header := x.v.Session
		x.line, x.v.Session = 2, ""
		return fmt.Errorf("the header says session %s, and the entries are of session %s: the header was changed, or is that of another export", header, f.session)
	case string(f.session) != x.v.Session:
		return divergence(index, "it is of session %s, not %s", f.session, x.v.Session)
	default:
		if err := x.seq.next(index, 0, &f, hash); err != nil {
			return err
		}
		x.v.Ended = string(f.typ) == TypeEnd
	}
	x.v.Entries++
	return nil
}

// unreadable says why raw is no entry, if it is none.
func unreadable(raw []byte) string {
	if _, err := parseLeaf(raw); err != nil && !errors.Is(err, errVersion) {
		return fmt.Sprintf(" (%v)", err)
	}
	return ""
}

// conclude sets the status when nothing is wrong.
func (x *exportReader) conclude() {
	x.v.Status = Incomplete
	switch {
	case x.unknown > 0:
		x.v.Reason = fmt.Sprintf("%v of %d entries", errVersion, x.unknown)
	case !trusts(x.trusted, x.key):
		x.v.Reason = fmt.Sprintf("signed by key %s, which is not among the trusted keys", x.v.Key)
	case !x.v.Ended:
		x.v.Reason = "the session had not ended: later entries may exist"
	default:
		x.v.Status = Valid
	}
}
