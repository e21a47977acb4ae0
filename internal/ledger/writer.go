package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"
)

const (
	maxChains  = 8192             // ends of chains kept in memory
	clockSlack = time.Millisecond // by which a clock may go back unnoted
)

// A chain is the end of one session's chain. The zero chain is a session that
// has no entry.
type chain struct {
	sid   int64    // number of the session in the database, from 1
	seq   int64    // of the next entry
	prev  [32]byte // hash of the last entry
	ended bool
}

// A writer is the state that the next entry depends on. It is changed only by
// adopting a draft that was committed.
type writer struct {
	tree     frontier
	chains   map[string]chain // always has SystemSession, once it has an entry
	nextSID  int64
	tailSIDs []int64 // of the entries in the tile that is not complete
	last     int64   // time of the last entry, in µs since 1970
	when     []byte  // the same in timeLayout
	wall     int64   // what the clock last said, in µs
	doubtful bool    // a transaction failed: compare with the database first
}

// A draft is what one transaction will add to a writer.
type draft struct {
	writer                   // a copy, whose chains are still the writer's
	from    int64            // entries that are in the database
	changed map[string]chain // and these have changed, or have been read

	boot     int64
	rows     []row
	sessions []sessionRow
	tiles    []tileRow
	keys     []keyRow
	signer   note.Signer // takes over with this draft, if any
}

type sessionRow struct {
	sid, first int64
	name       string
}

type tileRow struct {
	id   int64
	root [32]byte
	sids []byte
}

type keyRow struct {
	idx    int64
	public string
}

// writeLoop is the writer goroutine: it puts what waits into one transaction
// after the other.
func (l *Ledger) writeLoop() {
	defer close(l.unsynced)
	for r := range l.requests {
		l.commit(l.collect(r))
	}
}

// collect returns first and what waits behind it, up to about one transaction.
// Callers that have just been answered together are let run once, so that their
// next requests share a transaction too; it makes a third more under load.
func (l *Ledger) collect(first *request) []*request {
	group, entries, size := []*request{first}, len(first.entries), first.size()
	yielded := false
	for entries < MaxBatch && size < groupBytes {
		select {
		case r, open := <-l.requests:
			if !open {
				return group
			}
			group = append(group, r)
			entries += len(r.entries)
			size += r.size()
			yielded = false
		default:
			if yielded {
				return group
			}
			runtime.Gosched()
			yielded = true
		}
	}
	return group
}

func (r *request) size() (n int) {
	for _, e := range r.entries {
		n += len(e.Body)
	}
	return n
}

// commit writes a group and answers all of it that need not wait for the
// syncer.
func (l *Ledger) commit(group []*request) {
	ctx := context.Background() // callers come and go; the group is one
	refused := map[*request]error{}
	err := l.tryCommit(ctx, group, refused)
	var wait []*request
	for _, r := range group {
		switch e, ok := refused[r]; {
		case ok:
			r.done <- e
		case err != nil:
			r.done <- err
		case r.durable:
			wait = append(wait, r)
		default:
			r.done <- nil
		}
	}
	if len(wait) > 0 {
		l.unsynced <- wait
	}
	if err == nil {
		l.wakeCheckpoints()
	}
}

// errEmpty rolls back a transaction in which there is nothing.
var errEmpty = errors.New("nothing to write")

// tryCommit writes a group but for the requests that it puts into refused. On
// error nothing was written, as far as we know.
func (l *Ledger) tryCommit(ctx context.Context, group []*request, refused map[*request]error) error {
	if err := l.failure(); err != nil {
		return err
	}
	var d *draft
	err := l.db.Write(ctx, func(tx *sql.Tx) error {
		if err := l.w.agree(ctx, tx); err != nil {
			return err
		}
		d = &draft{writer: l.w, from: l.w.tree.size, changed: map[string]chain{}, boot: l.boot}
		d.tailSIDs = slices.Clip(d.tailSIDs)
		for _, r := range group {
			if err := d.take(ctx, tx, r, l.now); errors.Is(err, ErrEnded) {
				refused[r] = err
			} else if err != nil {
				return err
			}
		}
		if len(d.rows) == 0 {
			return errEmpty
		}
		return l.stmts.insert(ctx, tx, d)
	})
	switch {
	case errors.Is(err, errEmpty):
		return nil
	case errors.Is(err, errDisagree):
		return l.fail(fmt.Errorf("%w: %w", ErrUnwritable, err))
	case err != nil:
		l.w.doubtful = true
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	l.adopt(d)
	return nil
}

var errDisagree = errors.New("after an error, the database has other entries than were acknowledged; open the ledger again")

// agree checks, after a transaction that failed, that it really did.
func (w *writer) agree(ctx context.Context, tx *sql.Tx) error {
	if !w.doubtful {
		return nil
	}
	n, err := countEntries(ctx, tx)
	if err != nil {
		return fmt.Errorf("counting entries: %w", err)
	}
	if n != w.tree.size {
		return errDisagree
	}
	w.doubtful = false
	return nil
}

// adopt makes a draft that was committed the state of the writer.
func (l *Ledger) adopt(d *draft) {
	l.w = d.writer
	if len(l.w.chains) > maxChains { // those that are needed come back from the database
		system := l.w.chains[SystemSession]
		clear(l.w.chains)
		l.w.chains[SystemSession] = system
	}
	maps.Copy(l.w.chains, d.changed)
	l.mu.Lock()
	l.head = l.w.tree
	if d.signer != nil {
		l.signer = d.signer
	}
	l.mu.Unlock()
}

// take adds a request to the draft. With ErrEnded the draft is as before, with
// any other error it is of no further use.
func (d *draft) take(ctx context.Context, tx *sql.Tx, r *request, now func() time.Time) error {
	ends := map[string]bool{}
	for _, e := range r.entries {
		c, err := d.chain(ctx, tx, e.Session)
		if err != nil {
			return err
		}
		if c.ended || ends[e.Session] {
			return fmt.Errorf("%w: %s", ErrEnded, e.Session)
		}
		ends[e.Session] = e.Type == TypeEnd
	}
	d.observe(now())
	if r.key != "" {
		d.keys = append(d.keys, keyRow{d.tree.size, r.key})
		d.signer = r.signer
	}
	r.refs = make([]Ref, len(r.entries))
	for i, e := range r.entries {
		r.refs[i] = d.add(e)
	}
	return nil
}

// chain returns the end of a chain: from the draft, from memory, or from the
// database.
func (d *draft) chain(ctx context.Context, tx *sql.Tx, session string) (c chain, err error) {
	c, ok := d.changed[session]
	if !ok {
		c, ok = d.chains[session]
	}
	if !ok {
		c, err = findChain(ctx, tx, session, d.from)
		d.changed[session] = c
	}
	return c, err
}

// observe reads the clock: the times of entries never decrease, and a clock
// that was set back is noted in the ledger's own chain (L3).
func (d *draft) observe(now time.Time) {
	wall, before := now.UnixMicro(), d.wall
	d.wall = wall
	if wall < before-clockSlack.Microseconds() {
		d.add(Entry{SystemSession, TypeClock, fmt.Appendf(nil, `{"from":%q,"to":%q}`, formatTime(before), formatTime(wall))})
	}
	if wall > d.last {
		d.last, d.when = wall, formatTime(wall)
	}
}

func formatTime(micros int64) []byte {
	return time.UnixMicro(micros).UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout)
}

// add appends one entry to the draft.
func (d *draft) add(e Entry) Ref {
	c, ok := d.changed[e.Session]
	if !ok {
		c = d.chains[e.Session]
	}
	index := d.tree.size
	if c.sid == 0 {
		c.sid = d.nextSID
		d.nextSID++
		d.sessions = append(d.sessions, sessionRow{c.sid, index, e.Session})
	}
	raw := appendLeaf(make([]byte, 0, len(e.Body)+320), leaf{
		body: e.Body, session: []byte(e.Session), typ: []byte(e.Type), time: d.when,
		prev: c.prev, boot: d.boot, seq: c.seq,
	})
	ref := Ref{Index: index, Session: e.Session, Seq: c.seq, Hash: leafHash(raw)}
	d.rows = append(d.rows, row{index, c.sid, raw})
	d.tailSIDs = append(d.tailSIDs, c.sid)
	d.tree.add(ref.Hash, d.completeTile)
	c.seq, c.prev, c.ended = c.seq+1, ref.Hash, e.Type == TypeEnd
	d.changed[e.Session] = c
	return ref
}

func (d *draft) completeTile(t tileRoot) {
	row := tileRow{id: tileID(t.level, t.n), root: t.hash, sids: []byte{}}
	if t.level == 1 {
		row.sids = packSIDs(d.tailSIDs)
		d.tailSIDs = nil
	}
	d.tiles = append(d.tiles, row)
}

// syncLoop is the syncer goroutine: one flush for all that was committed
// during the last.
func (l *Ledger) syncLoop() {
	for group := range l.unsynced {
	collect:
		for {
			select {
			case more, open := <-l.unsynced:
				if !open {
					break collect
				}
				group = append(group, more...)
			default:
				break collect
			}
		}
		err := l.db.Sync()
		if err != nil {
			err = l.fail(fmt.Errorf("%w: %w", ErrUnwritable, err))
		}
		for _, r := range group {
			r.done <- err
		}
	}
}

// failure returns why nothing is appended any more, if so.
func (l *Ledger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

// fail refuses every later append (L6). It returns err.
func (l *Ledger) fail(err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = err
	}
	return err
}
