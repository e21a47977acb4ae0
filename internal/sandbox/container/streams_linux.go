package container

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sync/atomic"

	"ringfence/internal/sandbox"
)

// ends are the streams of a box: those of the program, and our ends of them.
type ends struct {
	theirs [3]*os.File
	ours   []*os.File
	given  [3]bool
}

// streams connects the three streams of a box.
func (b *box) streams(s sandbox.Spec) (*ends, error) {
	b.stdin, b.stdout, b.stderr = closedStream{}, noOutput(), noOutput()
	e := &ends{}
	for i, given := range []*os.File{s.Stdin, s.Stdout, s.Stderr} {
		if given != nil {
			e.theirs[i], e.given[i] = given, true
			continue
		}
		r, w, err := os.Pipe()
		if err == nil {
			// Who opens /dev/stdout opens the pipe anew, as the box's user.
			err = r.Chmod(0o666)
		}
		if err != nil {
			e.closeTheirs()
			e.closeOurs()
			return nil, fmt.Errorf("making a pipe: %w", err)
		}
		ours := r
		e.theirs[i] = w
		if i == 0 {
			ours, e.theirs[i] = w, r
		}
		e.ours = append(e.ours, ours)
		switch i {
		case 0:
			b.stdin = ours
		case 1:
			b.stdout = &outputPipe{f: ours}
		case 2:
			b.stderr = &outputPipe{f: ours}
		}
	}
	return e, nil
}

// An outputPipe is closed at its end.
type outputPipe struct {
	f     *os.File
	ended atomic.Bool
}

func (o *outputPipe) Read(p []byte) (int, error) {
	if o.ended.Load() {
		return 0, io.EOF
	}
	n, err := o.f.Read(p)
	if errors.Is(err, io.EOF) {
		o.ended.Store(true)
		shut(o.f)
	}
	return n, err
}

func (e *ends) closeTheirs() {
	for i, f := range e.theirs {
		if f != nil && !e.given[i] {
			f.Close()
		}
	}
}

func (e *ends) closeOurs() {
	for _, f := range e.ours {
		f.Close()
	}
}
