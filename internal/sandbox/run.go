package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"
)

// maxKept is how many bytes Run keeps of a stream when the Spec sets no limit.
const maxKept = 64 << 20

// An Output is what a program left behind.
type Output struct {
	Stdout, Stderr []byte
	// Dropped is the number of bytes beyond the limit, of both streams.
	Dropped int64
	Exit    Exit
	Report  Report
}

// Run starts s in a box of t, feeds it stdin, and waits for its end. Each stream is
// kept up to the output limit of s, or 64 MiB if it has none; what follows is read
// and dropped, so that the program does not block. Errors are those of Start and
// Wait: a program that fails is no error, see Output.Exit.
func Run(ctx context.Context, t Tier, s Spec, stdin []byte) (Output, error) {
	box, err := t.Start(ctx, s)
	if err != nil {
		return Output{}, err
	}
	limit := s.Bounds().Output
	if limit == Unlimited {
		limit = maxKept
	}
	stdout, stderr := Cap(box.Stdout(), limit), Cap(box.Stderr(), limit)
	var o, e bytes.Buffer
	var oErr, eErr error
	var streams sync.WaitGroup
	streams.Go(func() { _, oErr = io.Copy(&o, stdout) })
	streams.Go(func() { _, eErr = io.Copy(&e, stderr) })
	streams.Go(func() {
		// The program may end without reading its input: that is its affair.
		_, _ = box.Stdin().Write(stdin)
		box.Stdin().Close()
	})
	exit, err := box.Wait()
	streams.Wait()
	out := Output{
		Stdout: o.Bytes(), Stderr: e.Bytes(), Exit: exit, Report: box.Report(),
		Dropped: stdout.Dropped() + stderr.Dropped(),
	}
	if err := errors.Join(err, oErr, eErr); err != nil {
		return out, fmt.Errorf("running %s: %w", s.Argv[0], err)
	}
	return out, nil
}

// Watch ends a box when its time is over, or ctx: then it calls kill with the cause.
// It returns when it has, or when done is closed. wall may be Unlimited.
func Watch(ctx context.Context, wall time.Duration, done <-chan struct{}, kill func(Cause)) {
	var over <-chan time.Time
	if wall != Unlimited {
		t := time.NewTimer(wall)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-done:
	case <-ctx.Done():
		kill(CauseKill)
	case <-over:
		kill(CauseDeadline)
	}
}

// A Capped passes on the first bytes of a stream and drops the others.
type Capped struct {
	r       io.Reader
	left    int64
	dropped atomic.Int64
}

// Cap returns a reader of the first n bytes of r. At its end it reads r to its own
// end, dropping what comes, and only then returns io.EOF: a writer behind r never
// blocks because we stopped listening.
func Cap(r io.Reader, n int64) *Capped { return &Capped{r: r, left: n} }

// Read implements [io.Reader].
func (c *Capped) Read(p []byte) (int, error) {
	if c.left > 0 {
		if int64(len(p)) > c.left {
			p = p[:c.left]
		}
		n, err := c.r.Read(p)
		c.left -= int64(n)
		return n, err
	}
	n, err := io.Copy(io.Discard, c.r)
	c.dropped.Add(n)
	if err == nil {
		err = io.EOF
	}
	return 0, err
}

// Dropped returns the number of bytes that were not passed on so far.
func (c *Capped) Dropped() int64 { return c.dropped.Load() }
