package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/mod/sumdb/note"

	"ringfence/internal/sys/database"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/keychain"
)

// The errors that callers branch on.
var (
	// ErrUnwritable says that an entry may not be on record. Do not let the
	// effect happen.
	ErrUnwritable = errors.New("the ledger cannot be written")
	// ErrClosed says that the ledger was closed.
	ErrClosed = errors.New("the ledger is closed")
	// ErrEnded says that a session has its last entry.
	ErrEnded = errors.New("the session has ended")
	// ErrTampered says that what is stored is not what was signed. Keep the
	// files, run Verify, and tell the person.
	ErrTampered = errors.New("the ledger was tampered with or damaged")
	// ErrRolledBack says that entries which were signed are gone. It is an
	// ErrTampered.
	ErrRolledBack = fmt.Errorf("%w: it was rolled back", ErrTampered)
	// ErrKey says that another key signs this ledger than the one given.
	ErrKey = errors.New("the ledger is signed by another key")
	// ErrNotFound says that there is no such entry or session.
	ErrNotFound = errors.New("not in the ledger")
)

// A DivergenceError is the first entry that is not as it was signed. It is an
// ErrTampered.
type DivergenceError struct {
	Index  int64
	Reason string
	other  *int64 // the entry that Index does not fit, which may be the one that is wrong
}

func (d *DivergenceError) Error() string { return fmt.Sprintf("entry %d: %s", d.Index, d.Reason) }

// Is reports whether target is ErrTampered.
func (d *DivergenceError) Is(target error) bool { return target == ErrTampered }

func divergence(index int64, format string, args ...any) error {
	return &DivergenceError{Index: index, Reason: fmt.Sprintf(format, args...)}
}

// Options say whose ledger it is. Key is required.
type Options struct {
	// Key signs checkpoints. It must be the key the ledger was made with, or
	// the last one it was rotated to.
	Key ed25519.PrivateKey
	// Origin is the name of the ledger in its checkpoints, like
	// "example.com/host": up to 128 printable ASCII characters, no space, no
	// plus sign. By default it is that of the ledger, and for a new one
	// "ringfence/" and the id of the key.
	Origin string
	// Now tells the time; by default time.Now.
	Now func() time.Time
	// Version of the program, for the record.
	Version string

	segment int // bytes of a segment of a new journal; by default journalSegment
}

const (
	checkpointEvery = 256                    // entries after which a checkpoint is due,
	checkpointAfter = time.Second            // and the age of the oldest uncovered entry
	checkpointGap   = 200 * time.Millisecond // and what is at least between two of them
)

// A Ledger is open for appending. Its methods may be called from any goroutine.
type Ledger struct {
	dir    string
	origin string
	now    func() time.Time
	lock   *ipc.Lock
	db     store
	stmts  statements
	boot   int64

	settling sync.Mutex // held by whoever moves entries to the database, before mu
	moving   additions  // that it is to have next
	doubtful bool       // a transaction failed: look what the database has first

	queue   *queue
	due     chan struct{}                // entries have been committed
	ask     chan chan<- checkpointAnswer // a caller wants a checkpoint
	gone    chan struct{}                // closed when nobody answers ask any more
	signing sync.WaitGroup               // checkpointer

	w        writer     // of whoever has the turn to write
	draft    draft      // likewise; the last one, for its memory
	journal  *journal   // likewise, but for flushing it
	rotating sync.Mutex // held by Rotate

	mu     sync.Mutex
	signer note.Signer // in force for the next checkpoint
	public ed25519.PublicKey
	head   frontier   // what has been written
	signed Checkpoint // the newest
	failed error      // why nothing more is appended (L6)

	pending additions // have been written to the journal, and go to the database
	durable int64     // entries that are on disk, in the journal or in the database
	settled int64     // that are in the database
	kept    int64     // that are on disk there
	stuck   bool      // the last move to the database failed
	tight   bool      // the journal fills; the checkpointer has been woken for it
}

// store is what the ledger needs of its database; tests put faults in between.
type store interface {
	Write(ctx context.Context, f func(*sql.Tx) error) error
	Batch(ctx context.Context, f func(*database.Batch) error) error
	Read(ctx context.Context, f func(*sql.Tx) error) error
	Sync() error
	Close() error
}

// Open opens the ledger in dir, or makes one. Only one process can have it
// open. It compares the ledger with its newest checkpoints (L5), verifies what
// came after them, and records that it was opened.
func Open(ctx context.Context, dir string, o Options) (*Ledger, error) {
	l, err := open(ctx, dir, o)
	if errors.Is(err, database.ErrDamaged) {
		err = fmt.Errorf("%w: %w", ErrTampered, err)
	}
	if err != nil {
		return nil, fmt.Errorf("opening ledger %s: %w", dir, err)
	}
	return l, nil
}

func open(ctx context.Context, dir string, o Options) (_ *Ledger, err error) {
	if len(o.Key) != ed25519.PrivateKeySize {
		return nil, errors.New("no key given")
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.segment == 0 {
		o.segment = journalSegment
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	l := &Ledger{
		dir: dir, now: o.Now, queue: newQueue(),
		due: make(chan struct{}, 1), ask: make(chan chan<- checkpointAnswer), gone: make(chan struct{}),
	}
	if l.lock, err = ipc.NewLock(filepath.Join(dir, lockFile)); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.release())
		}
	}()
	if err := removeTemps(dir); err != nil {
		return nil, err
	}
	head, err := readHead(dir)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, databaseFile)
	if _, e := os.Lstat(path); errors.Is(e, os.ErrNotExist) && head != nil {
		return nil, fmt.Errorf("%w: %s is gone", ErrRolledBack, databaseFile)
	}
	if l.journal, err = openJournal(dir, o.segment); err != nil {
		return nil, err
	}
	db, err := database.OpenSQLite(ctx, path, schema)
	if err != nil {
		return nil, err
	}
	l.db, l.stmts = db, prepare(db)
	first, err := l.restore(ctx, o, head)
	if err != nil {
		return nil, err
	}
	l.signing.Go(l.checkpointLoop)
	if _, err = l.append(ctx, first); err == nil {
		_, err = l.Checkpoint(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, l.shutdown())
	}
	return l, nil
}

// Close records that the ledger was closed in order, signs a last checkpoint
// and releases the files. What was appended is on disk in any case, when it
// returns without error. ctx bounds the wait.
func (l *Ledger) Close(ctx context.Context) error {
	_, err := l.append(ctx, &request{entries: []Entry{{SystemSession, TypeClose, []byte("{}")}}, durable: true, own: true})
	if errors.Is(err, ErrClosed) {
		return err
	}
	if err == nil {
		_, err = l.Checkpoint(ctx)
	}
	if e := l.shutdown(); e != nil {
		return e // another call closes it
	}
	if err = errors.Join(err, l.retire(), l.release()); err != nil {
		return fmt.Errorf("closing ledger: %w", err)
	}
	return nil
}

// shutdown refuses what comes, and ends when what had come is done.
func (l *Ledger) shutdown() error {
	if err := l.queue.close(); err != nil {
		return err
	}
	close(l.due)
	l.signing.Wait()
	return nil
}

// release gives back the files.
func (l *Ledger) release() error {
	var errs []error
	if l.journal != nil {
		errs = append(errs, l.journal.file.Close())
	}
	if l.db != nil {
		errs = append(errs, l.db.Close())
	}
	return errors.Join(append(errs, l.lock.Unlock())...)
}

// Origin returns the name of the ledger.
func (l *Ledger) Origin() string { return l.origin }

func publicText(key ed25519.PrivateKey) string {
	return keychain.PublicText(key.Public().(ed25519.PublicKey))
}
