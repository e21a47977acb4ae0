package mitm

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"
)

// A Hello is what the first message of a TLS client says in the clear.
type Hello struct {
	ServerName string   // as written; "" if none
	Protocols  []string // ALPN, as offered
	// Encrypted says that there is an encrypted ClientHello, whose server nobody
	// but upstream can read; many clients send an empty one.
	Encrypted bool
}

// extensionECH is encrypted_client_hello (RFC 9849 §5).
const extensionECH = 0xfe0d

// maxHello bounds what is read before a ClientHello is complete.
const maxHello = 64 << 10

var errPeeked = errors.New("the ClientHello was read")

// Peek reads the ClientHello that conn begins with, and returns what it says and a
// connection on which it can be read again. It writes nothing. The error is a
// *Refusal if there is no ClientHello within wait.
func Peek(conn net.Conn, wait time.Duration) (Hello, net.Conn, error) {
	if err := conn.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return Hello{}, nil, fmt.Errorf("reading a ClientHello: %w", err)
	}
	mute := &muted{Conn: conn}
	hello, found := readHello(mute)
	if err := conn.SetReadDeadline(time.Time{}); err != nil {
		return Hello{}, nil, fmt.Errorf("reading a ClientHello: %w", err)
	}
	if !found {
		return Hello{}, nil, refusal("tls", "the connection does not begin with a TLS ClientHello")
	}
	return hello, &replayed{Conn: conn, first: mute.read.Bytes()}, nil
}

func readHello(conn net.Conn) (hello Hello, found bool) {
	err := tls.Server(conn, &tls.Config{
		GetConfigForClient: func(h *tls.ClientHelloInfo) (*tls.Config, error) {
			found = true
			hello = Hello{
				ServerName: h.ServerName, Protocols: h.SupportedProtos,
				Encrypted: slices.Contains(h.Extensions, extensionECH),
			}
			return nil, errPeeked
		},
	}).Handshake()
	return hello, found && errors.Is(err, errPeeked)
}

// muted is a connection that keeps what is read, and to which nothing is written.
type muted struct {
	net.Conn
	read bytes.Buffer
}

func (m *muted) Read(p []byte) (int, error) {
	if m.read.Len() >= maxHello {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := m.Conn.Read(p[:min(len(p), maxHello-m.read.Len())])
	m.read.Write(p[:n])
	return n, err
}

func (m *muted) Write(p []byte) (int, error) { return len(p), nil }

// replayed is a connection whose first bytes are read again.
type replayed struct {
	net.Conn
	first []byte
}

func (r *replayed) Read(p []byte) (int, error) {
	if len(r.first) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.first)
	r.first = r.first[n:]
	return n, nil
}

// CloseWrite ends what is written, where the connection can.
func (r *replayed) CloseWrite() error {
	if half, ok := r.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return r.Close()
}
