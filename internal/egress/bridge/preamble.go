package bridge

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
	"strconv"
	"strings"
)

// A Kind says what a connection came to.
type Kind string

// The kinds.
const (
	KindProxy    Kind = "proxy"  // the proxy: HTTP or SOCKS5, told apart by the first byte
	KindDirect   Kind = "direct" // an address that the resolver made up
	KindResolver Kind = "dns"    // the resolver
)

// A Preamble is what stands before a connection to the egress socket:
//
//	{"v":1,"kind":"direct","dst":"198.18.0.7:443","pid":123}
//
// and a line feed. It is written in exactly this way, and read in no other.
type Preamble struct {
	Kind Kind
	// Dst is where the connection came to in the box. IPv4 in IPv6 is written as IPv4; there
	// is no zone.
	Dst netip.AddrPort
	// PID is the number of the process that connected, in the numbers of the box; 0 is not
	// known. What a box says of its own processes proves nothing.
	PID int
}

// Version is that of the protocol.
const Version = 1

// MaxLine is how many bytes the line of a Preamble has at most, with its line feed.
const MaxLine = 1 << 10

var errMalformed = errors.New("reading the preamble of a connection: it is malformed")

// valid reports whether p can be written.
func (p Preamble) valid() bool {
	switch p.Kind {
	case KindProxy, KindDirect, KindResolver:
	default:
		return false
	}
	a := p.Dst.Addr()
	return p.PID >= 0 && p.Dst.IsValid() && p.Dst.Port() > 0 && a.Zone() == "" && !a.Is4In6()
}

// Line returns p as it is sent.
func (p Preamble) Line() ([]byte, error) {
	if p.Dst.Addr().Is4In6() {
		p.Dst = netip.AddrPortFrom(p.Dst.Addr().Unmap(), p.Dst.Port())
	}
	if !p.valid() {
		return nil, fmt.Errorf("a preamble of kind %q to %v by process %d cannot be", p.Kind, p.Dst, p.PID)
	}
	return []byte(p.text()), nil
}

const (
	beforeKind = `{"v":1,"kind":"`
	beforeDst  = `","dst":"`
	beforePID  = `","pid":`
	afterAll   = "}\n"
)

func (p Preamble) text() string {
	return beforeKind + string(p.Kind) + beforeDst + p.Dst.String() + beforePID + strconv.Itoa(p.PID) + afterAll
}

// ParseLine reads a whole line. It takes only what [Preamble.Line] writes.
func ParseLine(line string) (Preamble, error) {
	rest, ok := strings.CutPrefix(line, beforeKind)
	kind, rest, ok1 := strings.Cut(rest, beforeDst)
	dst, rest, ok2 := strings.Cut(rest, beforePID)
	pid, ok3 := strings.CutSuffix(rest, afterAll)
	if !ok || !ok1 || !ok2 || !ok3 || len(line) > MaxLine {
		return Preamble{}, errMalformed
	}
	to, err := netip.ParseAddrPort(dst)
	if err != nil {
		return Preamble{}, errMalformed
	}
	n, err := strconv.Atoi(pid)
	if err != nil {
		return Preamble{}, errMalformed
	}
	p := Preamble{Kind: Kind(kind), Dst: to, PID: n}
	if !p.valid() || p.text() != line {
		return Preamble{}, errMalformed
	}
	return p, nil
}

// ReadPreamble reads the line before a connection and nothing beyond it, [MaxLine] bytes at
// most. A deadline is the caller's to set.
func ReadPreamble(r io.Reader) (Preamble, error) {
	line := make([]byte, 0, 128)
	var one [1]byte
	for len(line) < MaxLine {
		if _, err := io.ReadFull(r, one[:]); err != nil {
			return Preamble{}, fmt.Errorf("reading the preamble of a connection: %w", err)
		}
		line = append(line, one[0])
		if one[0] == '\n' {
			return ParseLine(string(line))
		}
	}
	return Preamble{}, errMalformed
}
