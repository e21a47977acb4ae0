package egress

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net/netip"

	"ringfence/internal/act/weburl"
)

// SOCKS version 5 (RFC 1928).
const (
	socksVersion = 5
	socksConnect = 1

	socksIPv4 = 1
	socksName = 3
	socksIPv6 = 4

	socksGranted     = 0
	socksNotAllowed  = 2
	socksUnreachable = 4
	socksNoCommand   = 7
	socksNoAddress   = 8
)

// A socksError is what a request is answered with that cannot be one.
type socksError struct {
	code byte
	why  string
}

func (e *socksError) Error() string { return "reading a request of SOCKS: " + e.why }

// readGreeting reads which ways to authenticate the client offers, and whether none at
// all is one of them.
func readGreeting(r io.Reader) (none bool, err error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return false, err
	}
	if head[0] != socksVersion {
		return false, errors.New("reading a greeting of SOCKS: it is not version 5")
	}
	ways := make([]byte, head[1])
	if _, err := io.ReadFull(r, ways); err != nil {
		return false, err
	}
	for _, m := range ways {
		none = none || m == 0
	}
	return none, nil
}

// readSocks reads a request. The error is a *socksError where it can be answered.
func readSocks(r io.Reader) (host weburl.Host, port uint16, err error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return host, 0, err
	}
	if head[0] != socksVersion || head[2] != 0 {
		return host, 0, errors.New("reading a request of SOCKS: it is none")
	}
	switch head[3] {
	case socksIPv4:
		host, err = readSocksAddr(r, 4)
	case socksIPv6:
		host, err = readSocksAddr(r, 16)
	case socksName:
		host, err = readSocksName(r)
	default:
		return host, 0, &socksError{socksNoAddress, fmt.Sprintf("the type of address %d", head[3])}
	}
	if err != nil {
		return host, 0, err
	}
	var to [2]byte
	if _, err := io.ReadFull(r, to[:]); err != nil {
		return host, 0, err
	}
	port = binary.BigEndian.Uint16(to[:])
	switch {
	case head[1] != socksConnect: // nobody connects to a box, and there is no UDP
		return host, port, &socksError{socksNoCommand, "only CONNECT is known"}
	case port == 0:
		return host, port, &socksError{socksNotAllowed, "port 0"}
	}
	return host, port, nil
}

func readSocksAddr(r io.Reader, size int) (weburl.Host, error) {
	b := make([]byte, size)
	if _, err := io.ReadFull(r, b); err != nil {
		return weburl.Host{}, err
	}
	a, _ := netip.AddrFromSlice(b)
	return weburl.AddrHost(a), nil
}

// readSocksName reads a name. An address in its place is taken in one form only: the
// four numbers of IPv4.
func readSocksName(r io.Reader) (weburl.Host, error) {
	var size [1]byte
	if _, err := io.ReadFull(r, size[:]); err != nil {
		return weburl.Host{}, err
	}
	name := make([]byte, size[0])
	if _, err := io.ReadFull(r, name); err != nil {
		return weburl.Host{}, err
	}
	for _, c := range name {
		if c <= ' ' || c >= 0x7f || c == ':' || c == '[' || c == '%' {
			return weburl.Host{}, &socksError{socksNotAllowed, "a name with a character that no name has"}
		}
	}
	h, err := weburl.ParseHost(string(name))
	if err != nil {
		return weburl.Host{}, &socksError{socksNotAllowed, "a name that " + err.Error()}
	}
	if _, isAddr := h.Addr(); isAddr && h.String() != string(name) {
		return weburl.Host{}, &socksError{socksNotAllowed, "an address in an odd form"}
	}
	return h, nil
}

// socksReply is the answer to a request. The address that it has room for says nothing.
func socksReply(code byte) []byte {
	return []byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0}
}

// socks carries a stream that speaks SOCKS.
func (w *way) socks(s *stream) {
	none, err := readGreeting(s)
	switch {
	case err != nil:
		return
	case !none:
		_, _ = s.Write([]byte{socksVersion, 0xff}) // it may listen no more
		return
	}
	if _, err := s.Write([]byte{socksVersion, 0}); err != nil {
		return
	}
	host, port, err := readSocks(s)
	if why, ok := errors.AsType[*socksError](err); ok {
		_, _ = s.Write(socksReply(why.code))
	}
	if err != nil || s.await(0) != nil {
		return
	}
	ctx, left := w.untilGone(s)
	d := &destination{host: host, port: port, via: viaSOCKS, stream: s, conn: s}
	t, no := w.askConnect(ctx, d)
	if left(); no != nil {
		_, _ = s.Write(socksReply(socksNotAllowed))
		return
	}
	d.granted = func(err error) error {
		code := byte(socksGranted)
		if err != nil {
			code = socksUnreachable
		}
		_, werr := s.Write(socksReply(code))
		return werr
	}
	w.carry(w.ctx, d, t)
}
