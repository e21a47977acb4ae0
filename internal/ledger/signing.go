package ledger

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"ringfence/internal/sys/atomicfile"
)

// A checkpointAnswer goes to a caller of Checkpoint.
type checkpointAnswer struct {
	checkpoint Checkpoint
	err        error
}

// Checkpoint signs what has been appended so far, unless a checkpoint covers it
// already, and returns the newest checkpoint. It is on disk, also outside the
// database. ctx bounds the wait.
func (l *Ledger) Checkpoint(ctx context.Context) (Checkpoint, error) {
	answer := make(chan checkpointAnswer, 1)
	select {
	case l.ask <- answer:
	case <-l.gone:
		return Checkpoint{}, ErrClosed
	case <-ctx.Done():
		return Checkpoint{}, ctx.Err()
	}
	select {
	case a := <-answer:
		return a.checkpoint, a.err
	case <-ctx.Done():
		return Checkpoint{}, ctx.Err()
	}
}

// wakeCheckpoints tells the checkpointer that there is something new.
func (l *Ledger) wakeCheckpoints() {
	select {
	case l.due <- struct{}{}:
	default:
	}
}

// checkpointLoop is the checkpointer goroutine. Nobody waits for it but callers
// of Checkpoint.
func (l *Ledger) checkpointLoop() {
	defer close(l.gone)
	alarm := time.NewTimer(0)
	if !alarm.Stop() {
		<-alarm.C
	}
	waiting := false // the alarm is set
	var last time.Time
	for {
		var answer chan<- checkpointAnswer
		fire := false
		select {
		case _, open := <-l.due:
			if !open {
				return
			}
		case <-alarm.C:
			waiting, fire = false, true
		case answer = <-l.ask:
		}
		if l.filling() {
			_ = l.keep() // the next append meets what is wrong
		}
		uncovered := l.uncovered()
		if answer != nil || fire && uncovered > 0 || uncovered >= checkpointEvery && time.Since(last) >= checkpointGap {
			c, err := l.checkpoint()
			last = time.Now()
			if answer != nil {
				answer <- checkpointAnswer{c, err}
			}
			if err != nil && l.failure() != nil {
				continue // nothing is going to be covered any more
			}
			// Any other error stays visible: the next caller of Checkpoint gets it,
			// and Append fails by itself if the disk does.
			uncovered, waiting = l.uncovered(), false
		}
		// Appends wake this only for the first that is uncovered and for the last
		// of checkpointEvery, so the alarm stands for all others.
		switch {
		case uncovered >= checkpointEvery:
			alarm.Reset(checkpointGap)
			waiting = true
		case uncovered > 0 && !waiting:
			alarm.Reset(checkpointAfter)
			waiting = true
		}
	}
}

// filling reports whether the journal is running out of places.
func (l *Ledger) filling() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	tight := l.tight
	l.tight = false // asks again if it stays so
	return tight
}

func (l *Ledger) uncovered() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.head.size - l.signed.Size
}

// checkpoint signs the present tree and stores that, with all entries that the
// database does not have yet. They are on disk before the signature exists (L4), and
// the copy outside the database is there before the first row inside, so that a missing
// copy always means something.
func (l *Ledger) checkpoint() (Checkpoint, error) {
	l.mu.Lock()
	head, signed, signer, failed := l.head, l.signed, l.signer, l.failed
	l.mu.Unlock()
	if failed != nil || head.size == signed.Size {
		return signed, failed
	}
	if err := l.sync(); err != nil {
		return Checkpoint{}, err
	}
	c, err := sign(signer, head.size, head.root())
	if err != nil {
		return Checkpoint{}, err
	}
	if err := atomicfile.Write(filepath.Join(l.dir, headFile), c.Note, 0o600); err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	if err := l.settle(&c); err != nil {
		return Checkpoint{}, err
	}
	l.mu.Lock()
	l.signed = c
	l.mu.Unlock()
	return c, nil
}
