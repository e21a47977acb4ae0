package bridge

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"time"
)

const (
	headSize    = 12      // bytes of the head of a message (RFC 1035 §4.1.1)
	plainSize   = 512     // what fits into a datagram by itself (RFC 1035 §4.2.1)
	largestSize = 4096    // what we send to one that says that it takes more (RFC 6891 §6.2.3)
	typeOPT     = 41      // RFC 6891 §6.1.2
	truncated   = 1 << 1  // TC, in the third byte of the head
	maxMessage  = 1 << 16 // of the resolver
	// answerTime is more than clients wait for an answer before they ask again, and less than
	// a person takes to be asked; who asks again finds what was answered meanwhile.
	answerTime = 30 * time.Second
)

// datagrams answers what comes to p: each message on a connection of its own.
func (s *server) datagrams(p net.PacketConn) error {
	buf := make([]byte, maxMessage)
	for {
		n, from, err := p.ReadFrom(buf)
		if s.ctx.Err() != nil {
			break
		}
		switch {
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil || n < headSize || !s.place():
			continue // who asked asks again; an error is one of an answer that nobody wanted
		}
		query := append([]byte(nil), buf[:n]...)
		s.all.Go(func() {
			defer func() { <-s.slots }()
			if answer, err := s.ask(p, query); err == nil {
				_, _ = p.WriteTo(fit(answer, query), from)
			}
		})
	}
	return nil //nolint:nilerr // it is how the end shows
}

// ask brings query to the way out and returns what that answers.
func (s *server) ask(p net.PacketConn, query []byte) ([]byte, error) {
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	to := netip.AddrPort{}
	if a, ok := p.LocalAddr().(*net.UDPAddr); ok {
		to = netip.AddrPortFrom(a.AddrPort().Addr().Unmap().WithZone(""), uint16(a.Port))
	}
	c, err := s.o.Dial(ctx, Preamble{Kind: KindResolver, Dst: to})
	if err != nil {
		return nil, err
	}
	if !s.keep(c) {
		return nil, net.ErrClosed
	}
	defer s.drop(c)
	if err := c.SetDeadline(time.Now().Add(answerTime)); err != nil {
		return nil, err
	}
	if _, err := c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(query))), query...)); err != nil {
		return nil, err
	}
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return nil, err
	}
	answer := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, answer); err != nil {
		return nil, err
	}
	if len(answer) < headSize || answer[0] != query[0] || answer[1] != query[1] {
		return nil, errors.New("this answers another question")
	}
	return answer, nil
}

// fit returns answer as it goes into one datagram for who sent query: one that does not is
// its head and question, and says that it is cut short, so that the client asks over TCP.
func fit(answer, query []byte) []byte {
	if len(answer) <= datagramSize(query) {
		return answer
	}
	end := headSize
	cut := append([]byte(nil), answer[:headSize]...)
	if binary.BigEndian.Uint16(answer[4:]) == 1 {
		end = afterQuestion(answer)
	}
	if end < 0 || end > plainSize || end == headSize {
		end = headSize
		cut[4], cut[5] = 0, 0 // no question
	}
	cut = append(cut, answer[headSize:end]...)
	cut[2] |= truncated
	clear(cut[6:headSize]) // no records
	return cut
}

// datagramSize returns how many bytes an answer to query may have: what its OPT record
// says, if that is the first after the question, within bounds.
func datagramSize(query []byte) int {
	at := afterQuestion(query)
	if at < 0 || binary.BigEndian.Uint16(query[4:]) != 1 || binary.BigEndian.Uint32(query[6:]) != 0 || len(query) < at+5 {
		return plainSize
	}
	if query[at] != 0 || binary.BigEndian.Uint16(query[at+1:]) != typeOPT {
		return plainSize
	}
	return min(max(int(binary.BigEndian.Uint16(query[at+3:])), plainSize), largestSize)
}

// afterQuestion returns where the first question of a message ends, or -1.
func afterQuestion(m []byte) int {
	at := headSize
	for at < len(m) {
		label := int(m[at])
		switch {
		case label == 0 && at+5 <= len(m):
			return at + 5 // type and class
		case label == 0 || label > 63:
			return -1
		}
		at += 1 + label
	}
	return -1
}
