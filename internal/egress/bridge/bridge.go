// Package bridge brings connections of a box to its way out: it accepts them on the
// loopback of the box and gives each to who decides, with a line before it that says where
// it came to.
//
// It decides nothing, resolves nothing and looks at no byte of a connection, and it is no
// boundary: what is in the box may speak to the socket itself, and may say anything there.
// Who listens on the socket trusts a [Preamble] no more than the bytes behind it. There are
// two ways of using it: [Listener], outside of a box whose listening sockets were handed out,
// as those of all boxes of today are; and [Serve], within one on another kernel, whence no
// socket comes out, over its egress socket.
//
// Three kinds of connections come in: to the proxy ([ProxyPort]); to the resolver
// ([ResolverPort], over UDP and TCP); and straight to an address that the resolver made up,
// at a port that the policy names. The first bytes of a connection to the egress socket are
// a Preamble, as one line of JSON; what follows are bytes as they are, or for the resolver
// messages with two bytes of length before each (RFC 1035 §4.2.2).
//
// Invariants:
//
//	B1  Nothing is read of a connection before it has a place in a bound number of them;
//	    what has none is reset, and does not wait.
//	B2  The end of one direction is passed on alone. What the way out cuts off, or closes
//	    before it said anything, is reset in the box and not ended.
//	B3  When [Serve] returns there is no goroutine, socket or connection of it any more.
//	B4  Standard library only, so that what runs in a box stays small and starts at once.
package bridge

import (
	"context"
	"net"
)

// Where a box finds the proxy and the resolver, on 127.0.0.1; the proxy on ::1 too.
const (
	ProxyPort    = 3128 // HTTP (CONNECT and absolute form) and SOCKS5
	ResolverPort = 53
	ToolsPort    = 3129 // MCP and hooks, of who holds the box; no way out
)

// Dial connects to the Unix socket of a way out and says p. The deadline of ctx bounds both.
func Dial(ctx context.Context, socket string, p Preamble) (*net.UnixConn, error) {
	line, err := p.Line()
	if err != nil {
		return nil, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", socket)
	if err != nil {
		return nil, err // net says "dial unix path"
	}
	u := c.(*net.UnixConn) // that is what "unix" dials
	if deadline, ok := ctx.Deadline(); ok {
		if err := u.SetWriteDeadline(deadline); err != nil {
			return nil, closing(u, err)
		}
	}
	if _, err := u.Write(line); err != nil { // the first of an empty buffer: it does not block
		return nil, closing(u, err)
	}
	return u, u.SetWriteDeadline(noDeadline)
}
