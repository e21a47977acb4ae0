package ledger

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

// An image is what was read from a journal.
type image struct {
	runs    []run // ascending by their first entry
	durable int64 // so many entries were on disk, by what the journal itself says
	damaged int64 // the first entry in whose place is something else than was written, or was there before; -1 if none
}

// A run is entries one after the other in one segment.
type run struct {
	first  int64
	leaves [][]byte
}

// parseImage reads the segments of a journal.
func parseImage(segments [][]byte) *image {
	img := &image{damaged: -1}
	for _, b := range segments {
		img.segment(b)
		// What a frame says of others counts wherever it is: the segment may have been
		// changed before it.
		for at := bytes.Index(b, frameMagic); at >= 0; {
			if f, ok := parseFrame(b[at:]); ok && at%frameAlign == 0 {
				img.durable = max(img.durable, f.durable)
			}
			next := bytes.Index(b[at+1:], frameMagic)
			if next < 0 {
				break
			}
			at += 1 + next
		}
	}
	slices.SortFunc(img.runs, func(a, b run) int { return int(min(max(a.first-b.first, -1), 1)) })
	return img
}

// segment reads frames from the beginning of a segment until one is not of its use, or
// not whole. Between two there may be entries that were too large for any frame, and went
// to the database.
func (img *image) segment(b []byte) {
	var r run
	for use, started := uint64(0), false; ; started = true {
		next := r.first + int64(len(r.leaves))
		f, ok := parseFrame(b)
		if !ok && len(bytes.Trim(b[:min(frameHead, len(b))], "\x00")) > 0 {
			img.damage(next)
		}
		if !ok || started && (f.use != use || f.first < next) {
			break
		}
		if f.first > next {
			img.keep(r)
			r = run{first: f.first}
		}
		leaves, size, ok := f.leaves(b)
		if !ok {
			img.damage(f.first + int64(len(leaves)))
			break
		}
		use, r.leaves, b = f.use, append(r.leaves, leaves...), b[size:]
	}
	img.keep(r)
}

func (img *image) keep(r run) {
	if len(r.leaves) > 0 {
		img.runs = append(img.runs, r)
	}
}

func (img *image) damage(index int64) {
	if img.damaged < 0 || index < img.damaged {
		img.damaged = index
	}
}

// after returns the entries from index n on, up to the first that is not there.
func (img *image) after(n int64) (leaves [][]byte) {
	if img == nil {
		return nil
	}
	for _, r := range img.runs {
		next := n + int64(len(leaves))
		if end := r.first + int64(len(r.leaves)); r.first <= next && next < end {
			leaves = append(leaves, r.leaves[next-r.first:]...)
		}
	}
	return leaves
}

// check finds out whether entries are missing that were on disk, given how many there
// are, in the database and after it, and how many are signed.
func (img *image) check(size, signed int64) error {
	switch {
	case img == nil:
		return nil
	case img.durable > size:
		return divergence(size, "it is missing or was changed in %s, which had up to entry %d on disk", journalName, img.durable-1)
	case signed > size && img.damaged >= 0 && img.damaged <= size:
		return divergence(size, "it was changed in %s", journalName)
	}
	return nil
}

// readImage reads a journal; the image is nil if it holds nothing.
func readImage(f io.ReaderAt, size int) (*image, error) {
	part := make([]byte, min(size, 64<<10))
	zero := make([]byte, len(part))
	end := int64(journalHead + journalSegs*size)
	for at := int64(journalHead); at < end; at += int64(len(part)) {
		b := part[:min(int64(len(part)), end-at)]
		if _, err := f.ReadAt(b, at); err != nil {
			return nil, fmt.Errorf("reading %s: %w", journalName, err)
		}
		if !bytes.Equal(b, zero[:len(b)]) {
			return readSegments(f, size)
		}
	}
	return nil, nil
}

func readSegments(f io.ReaderAt, size int) (*image, error) {
	all := make([]byte, journalSegs*size)
	if _, err := f.ReadAt(all, journalHead); err != nil {
		return nil, fmt.Errorf("reading %s: %w", journalName, err)
	}
	return parseImage(slices.Collect(slices.Chunk(all, size))), nil
}

// readDir reads the journal in dir without changing it, as another process may at the
// same time; the image is nil if there is nothing in it.
func readDir(dir string) (*image, error) {
	path := filepath.Join(dir, journalName)
	if there, err := findJournal(path); !there {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", journalName, err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", journalName, err)
	}
	size, err := segmentSize(f, fi.Size())
	if err != nil {
		return nil, err
	}
	// What was on disk before a reading began must be in it, or in the database when
	// that is read later. So what is said to be on disk is of an earlier reading.
	before, err := readImage(f, size)
	if err != nil || before == nil {
		return nil, err
	}
	img, err := readSegments(f, size)
	if err != nil {
		return nil, err
	}
	img.durable = before.durable
	return img, nil
}
