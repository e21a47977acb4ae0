package ledger

import (
	"bytes"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/inplace"
)

// The journal is where entries are written first. It is a file of fixed length, so
// that one write makes them survive the process and one flush of nothing but content
// the loss of power. They are moved to the database many at a time; only when they are
// on disk there, their place is used again. docs/ledger-format.md has the layout.
const (
	journalHead    = 4096    // bytes before the first segment
	journalSegs    = 2       // segments, which take turns
	journalSegment = 1 << 20 // bytes of each, in a new journal
	minSegment     = 4 << 10
	maxSegment     = 64 << 20
	journalPage    = 4096 // bytes that are written at least
	frameHead      = 40   // bytes before the entries of a frame
	frameEntry     = 8    // bytes before the leaf of an entry
	frameAlign     = 8
)

// frameMagic begins a frame. No leaf can contain it: JSON has no NUL.
var frameMagic = []byte("\x00RFJ")

// castagnoli is made when it is first needed: it takes longer than all else that this
// program initialises, and most who run it append nothing.
var castagnoli = sync.OnceValue(func() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) })

// A frame is a group of entries that was written at once. It counts whole or not at all.
type frame struct {
	use     uint64 // random, for one use of a segment
	first   int64  // index of the first entry
	durable int64  // so many entries were on disk before it was written
	count   int
	length  int // bytes of its entries
}

// seal completes a frame whose entries are behind the room for its head.
func (f *frame) seal(b []byte) []byte {
	f.length = len(b) - frameHead
	copy(b, frameMagic)
	binary.LittleEndian.PutUint64(b[8:], f.use)
	binary.LittleEndian.PutUint64(b[16:], uint64(f.first))
	binary.LittleEndian.PutUint64(b[24:], uint64(f.durable))
	binary.LittleEndian.PutUint32(b[32:], uint32(f.count))
	binary.LittleEndian.PutUint32(b[36:], uint32(f.length))
	binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b[8:frameHead], castagnoli()))
	var none [frameAlign]byte
	return append(b, none[:(frameAlign-len(b)%frameAlign)%frameAlign]...)
}

// parseFrame reads the head of a frame; ok is false if there is none.
func parseFrame(b []byte) (f frame, ok bool) {
	if len(b) < frameHead || !bytes.HasPrefix(b, frameMagic) || binary.LittleEndian.Uint32(b[4:]) != crc32.Checksum(b[8:frameHead], castagnoli()) {
		return frame{}, false
	}
	first, durable := binary.LittleEndian.Uint64(b[16:]), binary.LittleEndian.Uint64(b[24:])
	count, length := binary.LittleEndian.Uint32(b[32:]), binary.LittleEndian.Uint32(b[36:])
	if first > maxInt || durable > first || count == 0 || count > maxSegment || int64(length) > int64(len(b)-frameHead) {
		return frame{}, false
	}
	return frame{binary.LittleEndian.Uint64(b[8:]), int64(first), int64(durable), int(count), int(length)}, true
}

// An entrySum computes checksums of entries in frames; it is what a place is written
// into. A leaf in another place, or of another use, has another sum.
type entrySum [20]byte

func (s *entrySum) of(use uint64, index int64, leaf []byte) uint32 {
	binary.LittleEndian.PutUint64(s[0:], use)
	binary.LittleEndian.PutUint64(s[8:], uint64(index))
	binary.LittleEndian.PutUint32(s[16:], uint32(len(leaf)))
	return crc32.Update(crc32.Checksum(s[:], castagnoli()), castagnoli(), leaf)
}

// seal fills in what is before a leaf, which is the rest of b.
func (s *entrySum) seal(b []byte, use uint64, index int64) {
	leaf := b[frameEntry:]
	binary.LittleEndian.PutUint32(b, uint32(len(leaf)))
	binary.LittleEndian.PutUint32(b[4:], s.of(use, index, leaf))
}

// leaves returns the entries of a frame, and the length of all of it. If one of them is
// not as it was written, those before it and ok=false.
func (f *frame) leaves(b []byte) (leaves [][]byte, size int, ok bool) {
	var sum entrySum
	rest := b[frameHead : frameHead+f.length]
	for i := range f.count {
		if len(rest) < frameEntry {
			return leaves, 0, false
		}
		n := int64(binary.LittleEndian.Uint32(rest))
		if n > int64(len(rest)-frameEntry) {
			return leaves, 0, false
		}
		leaf := rest[frameEntry : frameEntry+n : frameEntry+n]
		if binary.LittleEndian.Uint32(rest[4:]) != sum.of(f.use, f.first+int64(i), leaf) {
			return leaves, 0, false
		}
		leaves, rest = append(leaves, leaf), rest[frameEntry+n:]
	}
	size = frameHead + f.length
	padding := (frameAlign - size%frameAlign) % frameAlign
	if len(rest) > 0 || len(b) < size+padding || len(bytes.Trim(b[size:size+padding], "\x00")) > 0 {
		return leaves, 0, false
	}
	return leaves, size + padding, true
}

// A journalFile is what a journal needs of its file; tests put faults in between.
type journalFile interface {
	io.ReaderAt
	io.WriterAt
	Sync() error
	Close() error
}

// A journal is open to be written, by whoever has the turn to write. Its file may be
// flushed by others.
type journal struct {
	file   journalFile
	size   int // bytes of a segment
	segs   [journalSegs]segment
	active int // the segment that is written to
}

// A segment is a part of a journal. What is in use of it is also in memory, where the
// database gets it from.
type segment struct {
	mem  []byte
	use  uint64
	used int   // bytes
	high int   // bytes that were ever written since the journal was opened
	end  int64 // one more than the index of the last entry in it
}

// openJournal opens the journal in dir, or makes one with segments of some size. It may
// still hold entries of an earlier opening: see readImage and erase.
func openJournal(dir string, segment int) (*journal, error) {
	path := filepath.Join(dir, journalName)
	there, err := findJournal(path)
	if err != nil {
		return nil, err
	}
	if !there {
		all := make([]byte, journalHead+journalSegs*segment)
		copy(all, journalTitle(segment))
		if err := atomicfile.WriteBlocks(path, all, 0o600); err != nil {
			return nil, fmt.Errorf("%w: %w", ErrUnwritable, err)
		}
	}
	f, err := inplace.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", journalName, err)
	}
	j := &journal{file: f}
	if j.size, err = segmentSize(f, f.Size()); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for i := range j.segs {
		j.segs[i].mem = make([]byte, j.size)
	}
	j.begin(0)
	return j, nil
}

// findJournal reports whether there is a journal at path.
func findJournal(path string) (bool, error) {
	fi, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil && !fi.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is not a regular file (%v)", ErrTampered, journalName, fi.Mode())
	}
	return err == nil, err
}

// journalTitle is what a journal begins with; the rest of its head is zero.
func journalTitle(segment int) string {
	return fmt.Sprintf("ringfence-journal/v1 %d %d\n", journalSegs, segment)
}

// segmentSize reads the head of a journal of a length.
func segmentSize(f io.ReaderAt, length int64) (int, error) {
	head := make([]byte, journalHead)
	if _, err := f.ReadAt(head, 0); err != nil {
		return 0, fmt.Errorf("%w: reading %s: %w", ErrTampered, journalName, err)
	}
	size := int((length - journalHead) / journalSegs)
	want := make([]byte, journalHead)
	copy(want, journalTitle(size))
	if !bytes.Equal(head, want) || int64(journalHead+journalSegs*size) != length || size < minSegment || size > maxSegment || size%frameAlign != 0 {
		return 0, fmt.Errorf("%w: %s is not a journal of this version: its head or its length was changed", ErrTampered, journalName)
	}
	return size, nil
}

// begin starts to use a segment.
func (j *journal) begin(n int) {
	var use [8]byte
	_, _ = rand.Read(use[:]) // never fails
	j.active = n
	s := &j.segs[n]
	s.use, s.used = binary.LittleEndian.Uint64(use[:]), 0
}

// fits reports whether a frame of at most size bytes fits into the active segment.
func (j *journal) fits(size int) bool { return j.segs[j.active].used+size <= j.size }

// room is where the next frame belongs, in memory.
func (j *journal) room() []byte {
	s := &j.segs[j.active]
	return s.mem[s.used:s.used:j.size]
}

// write writes a sealed frame that was built in room. On error its place is free. What is
// written are whole pages, with what is beside the frame in memory, so that the kernel
// never has to read one first.
func (j *journal) write(b []byte, end int64) error {
	s := &j.segs[j.active]
	from, to := s.used&^(journalPage-1), min((s.used+len(b)+journalPage-1)&^(journalPage-1), j.size)
	if s.used+len(b) > to {
		return fmt.Errorf("writing %s: %d bytes do not fit behind %d", journalName, len(b), s.used)
	}
	s.high = max(s.high, to)
	if _, err := j.file.WriteAt(s.mem[from:to], j.place(j.active)+int64(from)); err != nil {
		return fmt.Errorf("writing %s: %w", journalName, err)
	}
	s.used, s.end = s.used+len(b), end
	return nil
}

func (j *journal) place(n int) int64 { return journalHead + int64(n)*int64(j.size) }

// eraseAll is erase for a journal that was used by an earlier opening.
func (j *journal) eraseAll() error {
	for i := range j.segs {
		j.segs[i].high = j.size
	}
	return j.erase()
}

// erase writes zeroes over what was used, and flushes them. Everything in it must be on
// disk elsewhere.
func (j *journal) erase() error {
	for i := range j.segs {
		s := &j.segs[i]
		clear(s.mem[:s.high])
		if _, err := j.file.WriteAt(s.mem[:s.high], j.place(i)); err != nil {
			return fmt.Errorf("emptying %s: %w", journalName, err)
		}
		s.used, s.high, s.end = 0, 0, 0
	}
	if err := j.file.Sync(); err != nil {
		return fmt.Errorf("emptying %s: %w", journalName, err)
	}
	j.begin(0)
	return nil
}
