// Package database opens SQLite files with the settings of this tree: a write-
// ahead log, one writer, numbered migrations, and a choice between a write that
// survives the death of the process and one that survives the loss of power.
//
// It knows no tables, and hides no SQL: callers use database/sql, and a [Batch]
// where its cost matters. It is not for files that a stranger made.
//
// Invariants:
//
//	D1  When Write or Batch returns nil the transaction is in the files of the
//	    operating system: it survives the end of this process, however it ends.
//	D2  When Sync returns nil, everything that they returned for before Sync was
//	    called is on disk, in order. After Sync has failed once it always
//	    fails: the kernel may have dropped what it could not write.
//	D3  A file made by a newer version, or by another program, is refused.
//	D4  A file made here is readable by its owner only.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	sqlite "modernc.org/sqlite" // also registers the driver "sqlite"
)

// ErrForeign marks a file that another program or a newer version made. Leave
// it alone, and tell the person.
var ErrForeign = errors.New("not a database of this version")

// ErrUnwritable marks a database that cannot be written: the disk is full or
// gone, or a flush failed. Whatever was being written must be taken as lost.
var ErrUnwritable = errors.New("database cannot be written")

// ErrDamaged marks a file that SQLite cannot make sense of.
var ErrDamaged = errors.New("database is damaged")

const (
	walLimit    = 4 << 20               // bytes of log at which it is moved into the file, beside the writers
	walHigh     = 4 * walLimit          // bytes at which a writer does that itself
	drainPause  = 50 * time.Millisecond // between two such moves
	busyTimeout = 5 * time.Second       // for other processes, such as an offline verifier
	readers     = 2                     // concurrent readers
	readerIdle  = 5 * time.Second       // after which a reader's memory is given back
	cacheKiB    = 512                   // page cache of each connection
)

// Options says what is in a file. The zero Options is an empty schema.
type Options struct {
	// ApplicationID is stored in the file (SQLite's application_id); a file
	// with another one is refused. 0 is not checked.
	ApplicationID int32
	// Migrations[n] is the SQL that takes the schema from version n to n+1.
	// A released migration is never edited.
	Migrations []string
	// ReadOnly refuses writes. The file must exist and be of the newest
	// version. Its directory must be writable if a writer died.
	ReadOnly bool
}

// A DB is an open file. Its methods may be called from any goroutine.
type DB struct {
	path  string
	write *sql.DB // one connection; nil if read-only
	read  *sql.DB
	log   *os.File // the write-ahead log, for Sync

	broken    atomic.Pointer[error] // the Sync that failed (D2)
	drainNext atomic.Bool           // the next Write moves the log first
	grown     chan struct{}         // the log has passed walLimit
	stop      context.CancelFunc
	done      sync.WaitGroup
}

// OpenSQLite opens or makes the file at path and brings its schema up to date.
// The directory must exist, and be ours.
func OpenSQLite(ctx context.Context, path string, o Options) (*DB, error) {
	db, err := open(ctx, path, o)
	if err != nil {
		return nil, fmt.Errorf("opening %s: %w", path, classify(err))
	}
	return db, nil
}

func open(ctx context.Context, path string, o Options) (_ *DB, err error) {
	if err := prepareFile(path, o.ReadOnly); err != nil {
		return nil, err
	}
	db := &DB{path: path, grown: make(chan struct{}, 1), stop: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, db.Close())
		}
	}()
	if db.read, err = pool(path, readers, "query_only(1)"); err != nil {
		return nil, err
	}
	db.read.SetConnMaxIdleTime(readerIdle)
	if o.ReadOnly {
		return db, db.check(ctx, o)
	}
	if db.write, err = pool(path, 1, "journal_mode(WAL)"); err != nil {
		return nil, err
	}
	if err := db.migrate(ctx, o); err != nil {
		return nil, err
	}
	if db.log, err = os.OpenFile(path+"-wal", os.O_RDWR|noFollow, 0); err != nil {
		return nil, err
	}
	// SQLite flushes the directory on its first own flush of the log; ours go
	// around it.
	if err := errors.Join(syncData(db.log), syncDir(filepath.Dir(path))); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	db.stop = stop
	db.done.Go(func() { db.drainLog(background) })
	return db, nil
}

// prepareFile makes an empty private file if there is none (D4). It never opens
// a file that is there: closing it would drop the locks of another connection
// of this process (POSIX fcntl).
func prepareFile(path string, readOnly bool) error {
	fi, err := os.Lstat(path)
	if err == nil && !fi.Mode().IsRegular() {
		return fmt.Errorf("it is not a regular file (%v)", fi.Mode())
	}
	if readOnly || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|noFollow, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// pool opens up to n connections to path, each with our settings and extra.
func pool(path string, n int, extra string) (*sql.DB, error) {
	q := url.Values{"mode": {"rw"}, "_txlock": {"immediate"}, "_defensive": {"1"}, "_error_rc": {"1"}}
	if extra == "query_only(1)" {
		q.Set("_txlock", "deferred")
	}
	for _, p := range []string{
		"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")",
		extra,
		"synchronous(NORMAL)", "wal_autocheckpoint(0)", "journal_size_limit(" + strconv.Itoa(walLimit) + ")",
		"foreign_keys(1)", "trusted_schema(0)", "cache_size(-" + strconv.Itoa(cacheKiB) + ")", "temp_store(MEMORY)",
	} {
		q.Add("_pragma", p)
	}
	inner, err := sqlite.NewConnector("file:" + (&url.URL{Path: path}).EscapedPath() + "?" + q.Encode())
	if err != nil {
		return nil, err
	}
	p := sql.OpenDB(connector{inner})
	p.SetMaxOpenConns(n)
	p.SetMaxIdleConns(n)
	return p, nil
}

// check is migrate for a file that must be right already.
func (d *DB) check(ctx context.Context, o Options) error {
	return d.Read(ctx, func(tx *sql.Tx) error {
		version, err := identify(ctx, tx, o)
		if err == nil && version != len(o.Migrations) {
			err = fmt.Errorf("%w: its schema is version %d, this program has %d", ErrForeign, version, len(o.Migrations))
		}
		return err
	})
}

// identify returns the version of the schema, after D3.
func identify(ctx context.Context, tx *sql.Tx, o Options) (version int, err error) {
	var app int32
	err = tx.QueryRowContext(ctx, "SELECT user_version, application_id FROM pragma_user_version, pragma_application_id").Scan(&version, &app)
	switch {
	case err != nil:
		return 0, fmt.Errorf("reading its version: %w", err)
	case version > 0 && app != o.ApplicationID:
		return 0, fmt.Errorf("%w: its application id is %#x, want %#x", ErrForeign, app, o.ApplicationID)
	case version < 0 || version > len(o.Migrations):
		return 0, fmt.Errorf("%w: its schema is version %d, this program knows up to %d", ErrForeign, version, len(o.Migrations))
	}
	return version, nil
}

// migrate runs the migrations that the file does not have, in one transaction.
func (d *DB) migrate(ctx context.Context, o Options) error {
	return d.Write(ctx, func(tx *sql.Tx) error {
		version, err := identify(ctx, tx, o)
		if err != nil {
			return err
		}
		for n := version; n < len(o.Migrations); n++ {
			if _, err := tx.ExecContext(ctx, o.Migrations[n]); err != nil {
				return fmt.Errorf("migrating its schema to version %d: %w", n+1, err)
			}
		}
		_, err = tx.ExecContext(ctx, fmt.Sprintf("PRAGMA user_version=%d; PRAGMA application_id=%d", len(o.Migrations), o.ApplicationID))
		return err
	})
}

// Path returns the path of the file.
func (d *DB) Path() string { return d.path }

// Write runs f in a transaction and commits it if f returns nil (D1); call
// [DB.Sync] for more. Writers take turns. The error is that of f, with [ErrDamaged]
// where that is why, or else [ErrUnwritable]; then nothing was written.
func (d *DB) Write(ctx context.Context, f func(*sql.Tx) error) error {
	if err := d.prepareToWrite(ctx); err != nil {
		return err
	}
	tx, err := d.write.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	if err := f(tx); err != nil {
		if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
			err = errors.Join(err, e)
		}
		return classify(err)
	}
	if err := tx.Commit(); err != nil {
		// SQLite keeps a transaction open after some of its errors.
		_, _ = d.write.ExecContext(context.WithoutCancel(ctx), "ROLLBACK")
		return fmt.Errorf("%w: committing: %w", ErrUnwritable, err)
	}
	d.watchLog()
	return nil
}

// prepareToWrite moves the log first if it has grown too long.
func (d *DB) prepareToWrite(ctx context.Context) error {
	if d.write == nil {
		return fmt.Errorf("%w: it was opened to be read", ErrUnwritable)
	}
	if d.drainNext.CompareAndSwap(true, false) {
		if _, err := d.write.ExecContext(ctx, "PRAGMA wal_checkpoint(PASSIVE)"); err != nil {
			return fmt.Errorf("%w: emptying its log: %w", ErrUnwritable, err)
		}
	}
	return nil
}

// Sync puts on disk what has been written (D2). Concurrent calls, and Writes
// meanwhile, are allowed. The error is [ErrUnwritable].
func (d *DB) Sync() error {
	if err := d.broken.Load(); err != nil {
		return *err
	}
	// The log of SQLite is valid up to the last commit whose checksums hold, and
	// is itself flushed before the file is written from it. So flushing it from
	// outside gives what synchronous=FULL gives, but beside the writer rather
	// than in its way.
	err := syncData(d.log)
	if err != nil {
		err = fmt.Errorf("%w: flushing: %w", ErrUnwritable, err)
		d.broken.CompareAndSwap(nil, &err)
	}
	return err
}

// Read runs f in a transaction that sees one state of the database, however
// long it takes. Long reads keep the log from being emptied. The error is that
// of f, with [ErrDamaged] where that is why.
func (d *DB) Read(ctx context.Context, f func(*sql.Tx) error) error {
	tx, err := d.read.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("reading database: %w", err)
	}
	err = f(tx)
	if e := tx.Rollback(); e != nil && !errors.Is(e, sql.ErrTxDone) {
		err = errors.Join(err, e)
	}
	return classify(err)
}

// classify adds ErrDamaged to errors that mean it: SQLITE_CORRUPT and
// SQLITE_NOTADB.
func classify(err error) error {
	var e *sqlite.Error
	if errors.As(err, &e) && (e.Code()&0xff == 11 || e.Code()&0xff == 26) {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	return err
}

// Close flushes everything into the file and closes it.
func (d *DB) Close() error {
	d.stop()
	d.done.Wait()
	var errs []error
	for _, p := range []*sql.DB{d.read, d.write} {
		if p != nil {
			errs = append(errs, p.Close())
		}
	}
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("closing %s: %w", d.path, err)
	}
	return nil
}
