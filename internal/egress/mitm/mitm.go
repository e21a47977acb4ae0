// Package mitm opens the TLS connections of a box whose host policy wants to see
// into, and passes what is said inside on: HTTP/1.1 and HTTP/2 on both sides,
// WebSockets, streams of events.
//
// It decides nothing and dials nothing. Who serves a connection has had it decided,
// says which host it is for, and hands in an http.Handler that decides every request;
// who forwards hands in a transport. It holds no key of an authority either: leafs
// come from a [Minter].
//
// Invariants:
//
//	M1  One connection is for one host: the name of its ClientHello, the Host or
//	    :authority of every request on it and the name of its leaf are the host it
//	    was decided for, or the request is answered 421 and goes no further.
//	M2  What reaches the handler has one reading: the head of an HTTP/1.1 request that
//	    two servers could read differently is answered 400, and its connection ends.
//	M3  A certificate of upstream that does not verify for that host ends the request.
//	    Nothing is signed for a host that did not prove itself.
//	M4  Nothing is held whole: a body is in memory one buffer at a time in each
//	    direction, and who reads slowly slows who writes.
//	M5  After an upgrade to WebSocket only valid frames pass, of messages that who
//	    forwards let begin, and nothing else is upgraded to.
//	M6  Heads, streams, frames, waits and what a compressed body grows to are bounded.
package mitm

import (
	"context"
	"crypto/tls"
	"net/http"
	"time"

	"ringfence/internal/act/weburl"
)

// A Minter returns certificates that the box trusts. Engine and [Leafs] are those of
// this tree.
type Minter interface {
	// Leaf returns a certificate for host, a canonical name or address without port
	// and brackets, with its private key. Do not modify it.
	Leaf(ctx context.Context, host string) (*tls.Certificate, error)
}

// Options say what a connection is for. Host, Minter and Handler must be set.
type Options struct {
	Host    weburl.Host // that the connection was decided for
	Port    uint16      // 0 is 443
	Minter  Minter
	Handler http.Handler // gets requests with URL.Scheme "https" and URL.Host and Host the host that was checked
	Limits  Limits
	// Refused is told what never reached Handler. It may be nil.
	Refused func(RefusedError)
}

// A RefusedError says why something was not let through.
type RefusedError struct {
	Code   string // "sni", "tls", "host", "head", "upgrade", "frame", "large", "content", "message": for machines
	Detail string // for people, of at most 300 bytes, without control characters
}

// Error returns the detail.
func (r *RefusedError) Error() string { return r.Detail }

// Limits bound a connection. A value that is 0 stands for the default beside it.
type Limits struct {
	Handshake time.Duration // 10 s: until the TLS handshake is done
	Head      time.Duration // 30 s: from the first byte of a head to its last
	Idle      time.Duration // 2 min: between two requests
	HeadBytes int           // 64 KiB: request line and headers; 128 KiB of a reply
	Streams   uint32        // 250: at once on one HTTP/2 connection
	Frame     int64         // 16 MiB: payload of one WebSocket frame
	Message   int64         // 64 MiB: of one WebSocket message
}

func (l Limits) withDefaults() Limits {
	set := func(d *time.Duration, to time.Duration) {
		if *d <= 0 {
			*d = to
		}
	}
	set(&l.Handshake, 10*time.Second)
	set(&l.Head, 30*time.Second)
	set(&l.Idle, 2*time.Minute)
	if l.HeadBytes <= 0 {
		l.HeadBytes = 64 << 10
	}
	if l.Streams == 0 {
		l.Streams = 250
	}
	if l.Frame <= 0 {
		l.Frame = 16 << 20
	}
	if l.Message <= 0 {
		l.Message = 64 << 20
	}
	return l
}
