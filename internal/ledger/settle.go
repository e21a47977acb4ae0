package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"ringfence/internal/sys/database"
)

// settle moves to the database what was written before it was called, and stores a
// checkpoint there, if one is given. It does not put that on disk: the journal has it.
// Readers of the database settle first, so that they see everything.
func (l *Ledger) settle(c *Checkpoint) error {
	l.settling.Lock()
	defer l.settling.Unlock()
	return l.move(c)
}

// move is settle for whoever holds l.settling.
func (l *Ledger) move(c *Checkpoint) error {
	err := l.reconcile()
	if err == nil {
		l.mu.Lock()
		if len(l.moving.rows) == 0 {
			l.moving, l.pending = l.pending, l.moving
		} else {
			l.moving.add(&l.pending)
			l.pending = l.pending.empty()
		}
		l.mu.Unlock()
		err = l.store(c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stuck = err != nil
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	l.settled += int64(len(l.moving.rows))
	l.moving = l.moving.empty()
	return nil
}

// store is the transaction of a move.
func (l *Ledger) store(c *Checkpoint) error {
	if len(l.moving.rows) == 0 && c == nil {
		return nil
	}
	err := l.db.Batch(context.Background(), func(b *database.Batch) error {
		if err := l.stmts.insert(b, &l.moving); err != nil || c == nil {
			return err
		}
		if err := b.Run(l.stmts.checkpoint, checkpointTile(c.Size), c.Size, c.Note); err != nil {
			return fmt.Errorf("storing checkpoint: %w", err)
		}
		return nil
	})
	l.doubtful = err != nil
	return err
}

// reconcile finds out, after a transaction that failed, whether it really did.
func (l *Ledger) reconcile() error {
	if !l.doubtful {
		return nil
	}
	var n int64
	err := l.db.Write(context.Background(), func(tx *sql.Tx) (err error) {
		n, err = countEntries(context.Background(), tx)
		return err
	})
	if err != nil {
		return fmt.Errorf("counting entries: %w", err)
	}
	l.mu.Lock()
	settled := l.settled
	l.mu.Unlock()
	switch n {
	case settled:
	case settled + int64(len(l.moving.rows)):
		l.mu.Lock()
		l.settled = n
		l.mu.Unlock()
		l.moving = l.moving.empty()
	default:
		return l.fail(fmt.Errorf("%w: %w", ErrUnwritable, errDisagree))
	}
	l.doubtful = false
	return nil
}

// keep settles, and puts on disk what the database has, so that its place in the
// journal can be used again.
func (l *Ledger) keep() error {
	l.settling.Lock()
	defer l.settling.Unlock()
	if err := l.move(nil); err != nil {
		return err
	}
	l.mu.Lock()
	settled := l.settled
	l.mu.Unlock()
	if err := l.db.Sync(); err != nil {
		return l.fail(fmt.Errorf("%w: %w", ErrUnwritable, err))
	}
	l.mu.Lock()
	l.kept, l.tight = settled, false
	l.mu.Unlock()
	return nil
}

// makeFit makes room in the journal for a frame of at most size bytes; false if it is
// larger than any room.
func (l *Ledger) makeFit(size int) (bool, error) {
	j := l.journal
	if size > j.size {
		return false, nil
	}
	if j.fits(size) {
		return true, nil
	}
	next := (j.active + 1) % journalSegs
	l.mu.Lock()
	free := j.segs[next].end <= l.kept
	l.mu.Unlock()
	if !free {
		if err := l.keep(); err != nil {
			return false, err
		}
	}
	j.begin(next)
	return true, nil
}

// fills reports whether the place of the entries up to kept will soon be needed.
func (j *journal) fills(kept int64) bool {
	return j.segs[j.active].used > j.size/2 && j.segs[(j.active+1)%journalSegs].end > kept
}

// bypass puts a group on disk in the database that is too large for the journal.
func (l *Ledger) bypass(ctx context.Context, d *draft) error {
	l.settling.Lock()
	defer l.settling.Unlock()
	if err := l.move(nil); err != nil {
		return err
	}
	if err := l.db.Batch(ctx, func(b *database.Batch) error { return l.stmts.insert(b, &d.additions) }); err != nil {
		l.doubtful = true
		l.mu.Lock()
		l.stuck = true
		l.mu.Unlock()
		return err
	}
	if err := l.db.Sync(); err != nil {
		return l.fail(err)
	}
	return nil
}

// retire leaves nothing in the journal that is not on disk in the database, and then
// nothing at all. If the disk has failed, what it holds is not known, and stays.
func (l *Ledger) retire() error {
	err := l.settle(nil)
	if err != nil || l.failure() != nil {
		return err
	}
	if err := l.db.Sync(); err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	return l.journal.erase()
}

// read calls f with what the ledger holds now.
func (l *Ledger) read(ctx context.Context, f func(*sql.Tx) error) error {
	if err := l.settle(nil); err != nil {
		return err
	}
	return l.db.Read(ctx, f)
}
