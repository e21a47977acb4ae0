package egress

import (
	"encoding/binary"
	"io"
	"net/netip"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/dns"
)

// Bounds of a stream to the resolver.
const (
	fakeTTL      = 30   // seconds for which a program may keep an address
	maxQuestions = 4096 // in one stream
)

// resolver answers the questions of a stream, each behind its length (RFC 1035 §4.2.2).
func (w *way) resolver(s *stream) {
	for range maxQuestions {
		if s.await(w.limits.Idle) != nil {
			return
		}
		var size [2]byte
		if _, err := io.ReadFull(s, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > dns.MaxMessage || s.await(w.limits.HeadWait) != nil {
			return
		}
		message := make([]byte, n)
		if _, err := io.ReadFull(s, message); err != nil {
			return
		}
		q, answerable, err := dns.Parse(message)
		if !answerable {
			return
		}
		answer := q.Answer(dns.Format, 0)
		if err == nil {
			answer = w.resolve(s, q)
		}
		if _, err := s.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(answer))), answer...)); err != nil {
			return
		}
	}
}

// resolve answers q with addresses that stand for its name, if the name may be resolved.
// No query leaves.
func (w *way) resolve(s *stream, q dns.Question) []byte {
	host, err := weburl.ParseHost(q.Name)
	if err != nil || host.String() != q.Name {
		return q.Answer(dns.Refused, 0)
	}
	if _, isAddr := host.Addr(); isAddr {
		return q.Answer(dns.NoName, 0)
	}
	t, no := w.askResolve(s, host)
	if no != nil {
		return q.Answer(dns.Refused, 0)
	}
	defer t.finish(ending{})
	if q.Type != dns.TypeA && q.Type != dns.TypeAAAA {
		return q.Answer(dns.NoError, 0) // there is no record of that type
	}
	var stand []netip.Addr
	four, six := w.names.standIns(host)
	for _, a := range []netip.Addr{four, six} {
		if a.IsValid() {
			stand = append(stand, a)
		}
	}
	return q.Answer(dns.NoError, fakeTTL, stand...)
}

// askResolve has it decided whether a name may have an address.
func (w *way) askResolve(s *stream, host weburl.Host) (*ticket, *DeniedError) {
	if w.reads(host) {
		return &ticket{way: w, inside: true}, nil
	}
	s.waiting.Add(1)
	defer s.touch()
	defer s.waiting.Add(-1)
	return w.decide(w.ctx, question{
		effects: []act.Effect{hostEffect(act.Resolve, host, defaultPort)},
		facts:   facts{Via: viaDNS, PID: s.from.PID},
	})
}

// defaultPort is the one that a name which is only resolved has in the text of an effect.
const defaultPort = 443
