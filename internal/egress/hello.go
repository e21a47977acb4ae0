package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"ringfence/internal/act/weburl"
)

// Bounds of a ClientHello, in bytes. Those of today have 300 to 2,000, with keys that
// resist quantum computers.
const (
	maxRecord = 1<<14 + 256 // of a record in plain text, RFC 8446 §5.1, with what old versions add
	maxHello  = 32 << 10
)

// A hello is what is read of a ClientHello (RFC 8446 §4.1.2).
type hello struct {
	name weburl.Host // server_name, RFC 6066 §3; the zero Host if there is none
	ech  bool        // encrypted_client_hello, RFC 9849: the name is not the one that counts
	alpn []string    // RFC 7301, as offered
}

var (
	errNotTLS = errors.New("it is no TLS")
	errHello  = errors.New("its ClientHello is malformed")
)

// A peeker shows what will be read.
type peeker interface {
	// Peek returns the next n bytes, fewer only with an error.
	Peek(n int) ([]byte, error)
}

// peekHello reads the first handshake message of r without consuming it. The error is
// errNotTLS as soon as that is certain.
func peekHello(r peeker) (hello, error) {
	if first, err := r.Peek(1); err != nil {
		return hello{}, fmt.Errorf("reading a ClientHello: %w", err)
	} else if first[0] != 22 {
		return hello{}, errNotTLS
	}
	var message []byte
	for at := 0; ; {
		head, err := r.Peek(at + 5)
		if err != nil {
			return hello{}, fmt.Errorf("reading a ClientHello: %w", err)
		}
		n := int(binary.BigEndian.Uint16(head[at+3:]))
		if head[at] != 22 || head[at+1] != 3 || n == 0 || n > maxRecord || at > 2*maxHello {
			return hello{}, errHello
		}
		record, err := r.Peek(at + 5 + n)
		if err != nil {
			return hello{}, fmt.Errorf("reading a ClientHello: %w", err)
		}
		message = append(message, record[at+5:]...)
		at += 5 + n
		if len(message) < 4 {
			continue
		}
		want := 4 + int(message[1])<<16 + int(message[2])<<8 + int(message[3])
		switch {
		case message[0] != 1 || want > maxHello:
			return hello{}, errHello
		case len(message) > want: // it shares a record with what cannot follow it
			return hello{}, errHello
		case len(message) == want:
			return parseHello(message[4:])
		}
	}
}

// A fields is what is left of a structure of TLS. bad is set when something is missing.
type fields struct {
	b   []byte
	bad bool
}

func (f *fields) take(n int) []byte {
	if n > len(f.b) {
		f.b, f.bad = nil, true
		return nil
	}
	got := f.b[:n]
	f.b = f.b[n:]
	return got
}

// number reads n bytes, at most 3.
func (f *fields) number(n int) int {
	v := 0
	for _, b := range f.take(n) {
		v = v<<8 | int(b)
	}
	return v
}

// vector reads what stands behind its length of n bytes.
func (f *fields) vector(n int) *fields {
	inner := &fields{b: f.take(f.number(n))}
	inner.bad = f.bad
	return inner
}

// parseHello reads the body of a ClientHello.
func parseHello(body []byte) (hello, error) {
	var h hello
	f := &fields{b: body}
	f.take(2 + 32)
	f.vector(1) // session
	f.vector(2) // cipher suites
	f.vector(1) // compression
	if f.bad {
		return h, errHello
	}
	if len(f.b) == 0 {
		return h, nil // before TLS 1.2 there need be no extensions
	}
	extensions := f.vector(2)
	if f.bad || len(f.b) > 0 {
		return h, errHello
	}
	var seen []int
	for len(extensions.b) > 0 {
		kind := extensions.number(2)
		data := extensions.vector(2)
		if extensions.bad || slices.Contains(seen, kind) {
			return h, errHello
		}
		seen = append(seen, kind)
		if err := h.extension(kind, data); err != nil {
			return h, err
		}
	}
	return h, nil
}

// The extensions that matter here.
const (
	extServerName = 0
	extALPN       = 16
	extECH        = 0xfe0d
	extESNI       = 0xffce // its forerunner
)

func (h *hello) extension(kind int, data *fields) error {
	switch kind {
	case extServerName:
		list := data.vector(2)
		typ, name := list.number(1), list.vector(2)
		if data.bad || list.bad || name.bad || typ != 0 || len(list.b) > 0 || len(data.b) > 0 {
			return errHello // one name, as RFC 6066 has it
		}
		host, err := weburl.ParseHost(string(name.b))
		if err != nil {
			return fmt.Errorf("the name in its ClientHello %w", err)
		}
		h.name = host
	case extALPN:
		list := data.vector(2)
		for len(list.b) > 0 && len(h.alpn) < 32 {
			h.alpn = append(h.alpn, string(list.vector(1).b))
		}
		if data.bad || list.bad || len(data.b) > 0 {
			return errHello
		}
	case extECH, extESNI:
		h.ech = true
	}
	return nil
}
