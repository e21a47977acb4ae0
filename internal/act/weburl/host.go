package weburl

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/idna"
)

// A Host is an IP address or a registered name. The zero Host is none. Hosts are
// comparable: equal hosts are the same host.
type Host struct {
	name string // "" if addr is valid
	addr netip.Addr
}

// String returns the canonical text: an IPv4 address as four decimal numbers, an
// IPv6 address in brackets, a name in lower-case ASCII without a final dot.
func (h Host) String() string {
	switch {
	case !h.addr.IsValid():
		return h.name
	case h.addr.Is4():
		return h.addr.String()
	}
	return "[" + h.addr.String() + "]"
}

// Addr returns the address; ok is false for a name. IPv4 addresses wrapped in
// IPv6 are returned as IPv4.
func (h Host) Addr() (addr netip.Addr, ok bool) { return h.addr, h.addr.IsValid() }

// IsZero reports whether h is the zero Host.
func (h Host) IsZero() bool { return h == Host{} }

// WithPort returns "host:port".
func (h Host) WithPort(port uint16) string {
	return h.String() + ":" + strconv.Itoa(int(port))
}

// maxName is the length of the longest name that DNS can hold, maxLabel that of
// the longest part between dots (RFC 1035 §2.3.4).
const (
	maxName  = 253
	maxLabel = 63

	// maxHost bounds a host as written. Decoding punycode takes quadratic time.
	maxHost = 1024
)

// toASCII is "domain to ASCII" of the standard with beStrict false: UTS #46
// without transitional processing, without hyphen and length checks, with the
// joiner and Bidi checks.
var toASCII = idna.New(
	idna.MapForLookup(),
	idna.Transitional(false),
	idna.StrictDomainName(false),
	idna.CheckHyphens(false),
	idna.CheckJoiners(true),
	idna.BidiRule(),
	idna.VerifyDNSLength(false),
)

// ParseHost reads a host as it stands in a URL: a name (percent-encoded or
// international forms too), an IPv4 address in any spelling that clients accept
// (0x7f.1, 017700000001, 2130706433), or an IPv6 address in brackets. Without
// brackets an IPv6 address is accepted where nothing else could be meant. The
// error follows the text it is about, as that of [Parse].
func ParseHost(s string) (Host, error) {
	if len(s) > maxHost {
		return Host{}, fmt.Errorf("has a host of more than %d bytes", maxHost)
	}
	if strings.HasPrefix(s, "[") {
		inner, ok := strings.CutSuffix(s[1:], "]")
		if !ok {
			return Host{}, errors.New(`has an IPv6 address without its closing "]"`)
		}
		return parseIPv6(inner)
	}
	if strings.Count(s, ":") > 1 {
		return parseIPv6(s)
	}
	name := Unescape(s)
	if !utf8.ValidString(name) {
		return Host{}, errors.New("has a host that is not valid UTF-8")
	}
	name, err := domainToASCII(name)
	if err != nil {
		return Host{}, err
	}
	if endsInNumber(name) {
		return parseIPv4(name)
	}
	return Host{name: name}, nil
}

// ParseHostPort reads "host" or "host:port"; port is 0 when none is given. An
// IPv6 address with a port must be in brackets.
func ParseHostPort(s string) (h Host, port uint16, err error) {
	if strings.Contains(s, "@") {
		return Host{}, 0, errUserinfo
	}
	if strings.Count(s, ":") > 1 && !strings.HasPrefix(s, "[") {
		h, err = parseIPv6(s)
		return h, 0, err
	}
	return authority(s)
}

func parseIPv6(s string) (Host, error) {
	addr, err := netip.ParseAddr(s)
	if err != nil || addr.Is4() || addr.Zone() != "" {
		return Host{}, fmt.Errorf("has %q where an IPv6 address should be", s)
	}
	return Host{addr: addr.Unmap()}, nil
}

// domainToASCII returns name in lower-case ASCII without a final dot, or why it
// is no name.
func domainToASCII(name string) (string, error) {
	ascii := name
	if needsIDNA(name) {
		var err error
		if ascii, err = toASCII.ToASCII(name); err != nil {
			return "", fmt.Errorf("has the host %q, which is no valid domain name", name)
		}
	}
	ascii = asciiLower(ascii)
	for _, c := range []byte(ascii) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`#/:<>?@[\]^|%`, c) >= 0 {
			return "", fmt.Errorf("has the host %q, which holds the character %q", name, c)
		}
	}
	ascii = strings.TrimSuffix(ascii, ".")
	if ascii == "" {
		return "", errors.New("has no host")
	}
	if len(ascii) > maxName {
		return "", fmt.Errorf("has a host of more than %d bytes", maxName)
	}
	for label := range strings.SplitSeq(ascii, ".") {
		if label == "" {
			return "", fmt.Errorf("has the host %q, in which two dots meet", name)
		}
		if len(label) > maxLabel {
			return "", fmt.Errorf("has a host with a part of more than %d bytes", maxLabel)
		}
	}
	return ascii, nil
}

// needsIDNA reports whether name is more than ASCII or has a punycode label,
// which must decode to something valid.
func needsIDNA(name string) bool {
	for i := 0; i < len(name); i++ {
		if name[i] >= utf8.RuneSelf {
			return true
		}
	}
	lower := asciiLower(name)
	return strings.HasPrefix(lower, "xn--") || strings.Contains(lower, ".xn--")
}

// endsInNumber is the "ends in a number checker": such a host is an IPv4 address
// or invalid, never a name.
func endsInNumber(name string) bool {
	last := name[strings.LastIndexByte(name, '.')+1:]
	if last == "" {
		return false
	}
	if strings.Trim(last, "0123456789") == "" {
		return true
	}
	_, ok := ipv4Number(last)
	return ok
}

// parseIPv4 is the IPv4 parser of the standard: one to four numbers in decimal,
// octal or hexadecimal, the last filling all the bytes that are left.
func parseIPv4(name string) (Host, error) {
	bad := fmt.Errorf("has the host %q, which ends in a number but is no IPv4 address", name)
	parts := strings.Split(name, ".")
	if len(parts) > 4 {
		return Host{}, bad
	}
	var sum uint64
	for i, p := range parts {
		n, ok := ipv4Number(p)
		if !ok {
			return Host{}, bad
		}
		if i < len(parts)-1 {
			if n > 255 {
				return Host{}, bad
			}
			sum |= n << (8 * (3 - i))
			continue
		}
		if n >= 1<<(8*(5-len(parts))) {
			return Host{}, bad
		}
		sum |= n
	}
	return Host{addr: netip.AddrFrom4([4]byte{byte(sum >> 24), byte(sum >> 16), byte(sum >> 8), byte(sum)})}, nil
}

// ipv4Number reads one number; ok is false for anything else. Numbers beyond 32
// bits come back as some value of more than 32 bits.
func ipv4Number(s string) (n uint64, ok bool) {
	if s == "" {
		return 0, false
	}
	base := uint64(10)
	switch {
	case len(s) >= 2 && s[0] == '0' && (s[1] == 'x' || s[1] == 'X'):
		s, base = s[2:], 16
	case len(s) >= 2 && s[0] == '0':
		s, base = s[1:], 8
	}
	for i := 0; i < len(s); i++ {
		d, isHex := hexDigit(s[i])
		if !isHex || uint64(d) >= base {
			return 0, false
		}
		if n = n*base + uint64(d); n > 1<<40 {
			n = 1 << 40
		}
	}
	return n, true
}

// Embedded returns the IPv4 address that an IPv6 address carries for a gateway
// on the way to unwrap: IPv4-compatible, NAT64 (RFC 6052, the well-known
// prefix), 6to4 (RFC 3056) and ISATAP (RFC 5214) forms; for an IPv4 address, that address.
func (h Host) Embedded() (v4 netip.Addr, ok bool) {
	if !h.addr.IsValid() {
		return netip.Addr{}, false
	}
	if h.addr.Is4() {
		return h.addr, true
	}
	b := h.addr.As16()
	last := netip.AddrFrom4([4]byte(b[12:16]))
	switch {
	case [12]byte(b[:12]) == [12]byte{} && h.addr != netip.IPv6Loopback() && h.addr != netip.IPv6Unspecified():
		return last, true
	case [12]byte(b[:12]) == [12]byte{0, 0x64, 0xff, 0x9b}:
		return last, true
	case b[0] == 0x20 && b[1] == 0x02:
		return netip.AddrFrom4([4]byte(b[2:6])), true
	case b[8]&^2 == 0 && b[9] == 0 && b[10] == 0x5e && b[11] == 0xfe:
		return last, true
	}
	return netip.Addr{}, false
}
