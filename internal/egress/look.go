package egress

import (
	"compress/gzip"
	"io"
	"net/http"
	"sync"

	"ringfence/internal/inspect"
)

// looking is a transport whose replies are looked at while they pass as they are.
type looking struct {
	base http.RoundTripper
	in   *inspect.Inspector
	e    *ending // gets the labels
}

// RoundTrip implements http.RoundTripper.
func (l *looking) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := l.base.RoundTrip(r)
	if err != nil || res.StatusCode == http.StatusSwitchingProtocols || !isText(res.Header) || !readable(res.Header) {
		return res, err
	}
	seen := &seen{ReadCloser: res.Body, stream: l.in.Stream(inspect.Result, inspect.Nothing), e: l.e}
	if encoding := res.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		seen.unpack()
	}
	res.Body = seen
	return res, nil
}

// A seen is a body that a stream looks at.
type seen struct {
	io.ReadCloser
	stream *inspect.Stream
	e      *ending
	packed *io.PipeWriter // nil: the body is as it is
	done   chan struct{}  // closed when all that was packed has been seen
	once   sync.Once
}

// maxSeen bounds how much of a packed body is looked at, unpacked. What is beyond it is
// not: labels need no more.
const maxSeen = 64 << 20

// unpack has the body looked at as it is unpacked. It passes all the same where it cannot
// be, or is too much.
func (s *seen) unpack() {
	from, to := io.Pipe()
	s.packed, s.done = to, make(chan struct{})
	go func() {
		defer close(s.done)
		defer func() { _, _ = io.Copy(io.Discard, from) }() // a pipe that is closed ends it
		z, err := gzip.NewReader(from)
		if err != nil {
			return
		}
		_, _ = io.Copy(pushing{s.stream}, io.LimitReader(z, maxSeen)) // what cannot be unpacked has no more to see
	}()
}

// pushing writes to a stream.
type pushing struct{ *inspect.Stream }

func (p pushing) Write(b []byte) (int, error) {
	_, err := p.Push(b)
	return len(b), err
}

// Read implements io.Reader.
func (s *seen) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	if n > 0 {
		var to io.Writer = pushing{s.stream}
		if s.packed != nil {
			to = s.packed
		}
		_, _ = to.Write(p[:n]) // neither ends before end is called
	}
	if err != nil {
		s.end()
	}
	return n, err
}

// Close implements io.Closer.
func (s *seen) Close() error {
	s.end()
	return s.ReadCloser.Close()
}

// end takes in what was found.
func (s *seen) end() {
	s.once.Do(func() {
		if s.packed != nil {
			_ = s.packed.Close() // never fails
			<-s.done
		}
		_, _ = s.stream.End() // nothing is held back
		s.e.label(s.stream.Findings().Labels)
	})
}
