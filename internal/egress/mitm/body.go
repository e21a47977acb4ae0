package mitm

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strings"
)

// A Filter looks at a body as it passes. It may hold the end of a piece back until it
// has seen what follows. One goroutine calls it.
type Filter interface {
	// Push takes the next piece and returns what may go on, which is valid until the
	// next call. An error ends the body: what was not returned never goes on.
	Push(piece []byte) ([]byte, error)
	// End returns the rest.
	End() ([]byte, error)
}

const (
	encodingGzip = "gzip"
	// maxUnpacked bounds what a compressed body grows to, and maxRatio by how much once
	// there is more than fewUnpacked of it. Deflate reaches 1032.
	maxUnpacked = 16 << 30
	maxRatio    = 200
	fewUnpacked = 64 << 20
)

// unpack returns what a body with that Content-Encoding holds. The error is a *RefusedError
// where that cannot be read.
func unpack(body io.Reader, encoding string) (io.Reader, error) {
	switch strings.ToLower(strings.TrimSpace(encoding)) {
	case "", "identity":
		return body, nil
	case encodingGzip, "x-gzip":
		return &unpacked{packed: meter(body)}, nil
	}
	return nil, refusal("encoding", "a body with the encoding %.40q cannot be looked at", encoding)
}

// A meter counts the bytes that a decoder takes, one by one where it can.
func meter(body io.Reader) *metered {
	bytewise, ok := body.(byteReader)
	if !ok {
		bytewise = bufio.NewReader(body)
	}
	return &metered{from: bytewise}
}

type byteReader interface {
	io.Reader
	io.ByteReader
}

type metered struct {
	from byteReader
	n    int64
}

func (m *metered) Read(p []byte) (int, error) {
	n, err := m.from.Read(p)
	m.n += int64(n)
	return n, err
}

func (m *metered) ReadByte() (byte, error) {
	b, err := m.from.ReadByte()
	if err == nil {
		m.n++
	}
	return b, err
}

// unpacked reads a gzip body, which may be of several members.
type unpacked struct {
	packed *metered
	zip    *gzip.Reader
	n      int64
}

func (u *unpacked) Read(p []byte) (int, error) {
	if u.zip == nil {
		zip, err := gzip.NewReader(u.packed)
		if errors.Is(err, io.EOF) && u.packed.n == 0 {
			return 0, io.EOF // some servers send no byte for an empty body
		}
		if err != nil {
			return 0, fmt.Errorf("unpacking a body: %w", err)
		}
		u.zip = zip
	}
	n, err := u.zip.Read(p)
	u.n += int64(n)
	if u.n > maxUnpacked || u.n > fewUnpacked && u.n > maxRatio*u.packed.n {
		return 0, refusal("encoding", "%d bytes of a body grow to more than %d", u.packed.n, u.n)
	}
	return n, err
}

// filtered is a body that went through a filter.
type filtered struct {
	from   io.Reader
	filter Filter
	piece  []byte
	out    []byte
	err    error
}

func (f *filtered) Read(p []byte) (int, error) {
	if f.piece == nil {
		f.piece = make([]byte, copyPiece)
	}
	for len(f.out) == 0 {
		if f.err != nil {
			return 0, f.err
		}
		n, err := f.from.Read(f.piece)
		var pushErr error
		if n > 0 {
			f.out, pushErr = f.filter.Push(f.piece[:n])
		}
		switch {
		case pushErr != nil:
			f.out, f.err = nil, pushErr
		case errors.Is(err, io.EOF):
			f.end()
		case err != nil:
			f.err = err
		}
	}
	n := copy(p, f.out)
	f.out = f.out[n:]
	return n, nil
}

// end adds what the filter held back.
func (f *filtered) end() {
	before := f.out
	rest, err := f.filter.End()
	if err != nil {
		f.err = err
		return
	}
	f.err = io.EOF
	if len(before) == 0 {
		f.out = rest
		return
	}
	f.out = append(append(make([]byte, 0, len(before)+len(rest)), before...), rest...)
}
