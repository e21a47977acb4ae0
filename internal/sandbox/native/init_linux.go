package native

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// serve is the life of pid 1 while the program runs: it reaps, and it ends when the
// program does, or when the caller is gone. Its end is that of all others (N4).
func (s *stage) serve() error {
	go func() {
		// The caller says nothing more: he lives, or he does not.
		_, err := s.wire.recv(0)
		s.end()
		if err != nil && !errors.Is(err, io.EOF) {
			os.Exit(2)
		}
		os.Exit(1)
	}()
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return err
		case pid == s.pid && (status.Exited() || status.Signaled()):
			b, err := encode(&ending{int(status)})
			if err != nil {
				return err
			}
			return errors.Join(s.wire.send(frameEnded, b), s.end())
		}
	}
}

// end ends all other processes of the box. Where we are pid 1 the kernel does that
// when we end.
func (s *stage) end() error {
	if !s.plan.plain {
		return nil
	}
	return endDescendants()
}
