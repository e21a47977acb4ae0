package database

import (
	"context"
	"errors"
	"time"
)

// watchLog has the log drained when it has grown. SQLite starts it again from
// the beginning when a write finds that everything in it has reached the file,
// and then cuts it to walLimit (journal_size_limit), so its size says how full
// it is.
func (d *DB) watchLog() {
	if d.log == nil {
		return
	}
	fi, err := d.log.Stat()
	if err != nil || fi.Size() <= walLimit {
		return
	}
	if fi.Size() > walHigh {
		d.drainNext.Store(true)
	}
	select {
	case d.grown <- struct{}{}:
	default: // already asked for
	}
}

// drainLog copies the log into the file when it has grown, from a connection of
// its own, so that no writer waits for it. The log starts again only if nothing
// is written meanwhile; writers that never pause get to walHigh, and then the
// next of them copies the little that is left.
func (d *DB) drainLog(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-d.grown:
		}
		// After an error the log is still valid and only grows; the next Write
		// asks again.
		if err := d.drainOnce(ctx); err != nil && ctx.Err() != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(drainPause):
		}
	}
}

// drainOnce copies what is in the log and no reader still needs there.
func (d *DB) drainOnce(ctx context.Context) error {
	p, err := pool(d.path, 1, "busy_timeout(0)")
	if err != nil {
		return err
	}
	// A connection that has read nothing does not know that there is a log.
	var n int
	err = p.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_schema").Scan(&n)
	if err == nil {
		_, err = p.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)")
	}
	return errors.Join(err, p.Close())
}
