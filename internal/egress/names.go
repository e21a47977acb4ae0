package egress

import (
	"container/list"
	"encoding/binary"
	"net/netip"
	"sync"

	"ringfence/internal/act/weburl"
)

// defaultLocal are ranges that lead nowhere else: of RFC 2544 and RFC 4193.
var defaultLocal = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd52:6633::/64")}

// names are the names of one box that addresses stand for. The one that was not used for
// longest is forgotten for a new one. Its addresses then stand for nothing until all others
// have been given out: a program that still has one is not led to another host.
type names struct {
	four, six netip.Prefix // the zero Prefix: there are none
	limit     int          // names at once
	places    uint32       // that there are, from 1

	mu    sync.Mutex
	used  *list.List // of *standIn, the last used first
	by    map[weburl.Host]*list.Element
	place map[uint32]*list.Element
	next  uint32 // the place that is given out next, unless it is taken
}

type standIn struct {
	host  weburl.Host
	place uint32
}

func newNames(limit int, local []netip.Prefix) *names {
	if local == nil {
		local = defaultLocal
	}
	n := &names{limit: min(limit, 1<<15), places: 1<<16 - 2, used: list.New(), by: map[weburl.Host]*list.Element{}, place: map[uint32]*list.Element{}, next: 1}
	for _, p := range local {
		room := min(p.Addr().BitLen()-p.Bits(), 16)
		n.places = min(n.places, 1<<room-2) // neither the first nor the last address
		if p = p.Masked(); p.Addr().Is4() {
			n.four = p
		} else {
			n.six = p
		}
	}
	n.limit = min(n.limit, int(n.places))
	return n
}

// standIns returns the addresses that stand for host, invalid where there is no range.
func (n *names) standIns(host weburl.Host) (four, six netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.by[host]
	if e == nil {
		e = n.add(host)
	}
	n.used.MoveToFront(e)
	place := e.Value.(*standIn).place
	return at(n.four, place), at(n.six, place)
}

// add gives host a place: of those that are free the one that was not given out for longest.
func (n *names) add(host weburl.Host) *list.Element {
	if n.used.Len() >= n.limit {
		old := n.used.Remove(n.used.Back()).(*standIn)
		delete(n.by, old.host)
		delete(n.place, old.place)
	}
	for n.place[n.next] != nil {
		n.turn()
	}
	s := &standIn{host: host, place: n.next}
	n.turn()
	e := n.used.PushFront(s)
	n.by[host], n.place[s.place] = e, e
	return e
}

// turn goes on to the next place, and after the last to the first.
func (n *names) turn() { n.next = n.next%n.places + 1 }

// at returns the address number place of p.
func at(p netip.Prefix, place uint32) netip.Addr {
	if !p.IsValid() {
		return netip.Addr{}
	}
	b := p.Addr().AsSlice()
	last := b[len(b)-4:]
	binary.BigEndian.PutUint32(last, binary.BigEndian.Uint32(last)|place)
	a, _ := netip.AddrFromSlice(b)
	return a
}

// host returns what a stands for, and counts it as used: a name, or itself where it is of
// no local range.
func (n *names) host(a netip.Addr) (weburl.Host, bool) {
	h, ok := n.byAddress(a)
	if _, isAddr := h.Addr(); ok && !isAddr {
		n.standIns(h)
	}
	return h, ok
}

func (n *names) byAddress(a netip.Addr) (weburl.Host, bool) {
	a = a.Unmap()
	p := n.four
	if a.Is6() {
		p = n.six
	}
	if !p.IsValid() || !p.Contains(a) {
		return literal(a), a.IsValid()
	}
	b := a.AsSlice()
	place := binary.BigEndian.Uint32(b[len(b)-4:])
	first := p.Addr().AsSlice()
	place &^= binary.BigEndian.Uint32(first[len(first)-4:])
	n.mu.Lock()
	defer n.mu.Unlock()
	e := n.place[place]
	if e == nil || at(p, place) != a {
		return weburl.Host{}, false
	}
	return e.Value.(*standIn).host, true
}
