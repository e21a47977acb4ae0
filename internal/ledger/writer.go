package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"golang.org/x/mod/sumdb/note"

	"ringfence/internal/sys/database"
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
	last  int64 // index of its last entry, if it has one
}

// A writer is the state that the next entry depends on. It belongs to the caller
// whose turn it is to write, and is changed only by adopting a draft that was
// committed, and by remembering what is in the database.
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
	changed map[string]chain // and these have changed

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

var (
	errDisagree = errors.New("after an error, the database has other entries than were acknowledged; open the ledger again")
	errStopped  = fmt.Errorf("%w: the writer stopped half-way; open the ledger again", ErrUnwritable)
)

// write is the turn of a caller: it puts what waits into one transaction, for
// all, so that no context ends it.
func (l *Ledger) write() {
	l.queue.gather()
	group := l.queue.takeWrites()
	refused := map[*request]error{}
	err := errStopped
	defer func() {
		if errors.Is(err, errStopped) { // it panicked, which need not end the process
			_ = l.fail(err)
		}
		l.queue.written(group, func(r *request) error { return cmp.Or(refused[r], err) })
	}()
	err = l.commit(context.Background(), group, refused)
}

// commit writes a group but for the requests that it puts into refused. On
// error nothing was written, as far as we know.
func (l *Ledger) commit(ctx context.Context, group []*request, refused map[*request]error) error {
	err := l.failure()
	if err != nil {
		return err
	}
	d := l.draft.again(l.boot)
	if err = l.recall(ctx, group); err == nil {
		d.writer = l.w
		for _, r := range group {
			if e := d.take(r, l.now); e != nil {
				refused[r] = e
			}
		}
		if len(d.rows) == 0 {
			return nil
		}
		err = l.db.Batch(ctx, func(b *database.Batch) error { return l.stmts.insert(b, d) })
		clear(d.rows) // they would keep the leaves
	}
	switch {
	case errors.Is(err, errDisagree):
		return l.fail(fmt.Errorf("%w: %w", ErrUnwritable, err))
	case err != nil:
		l.w.doubtful = true
		return fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	l.adopt(d)
	return nil
}

// again empties a draft for another transaction.
func (d *draft) again(boot int64) *draft {
	if d.changed == nil {
		d.changed = map[string]chain{}
	}
	clear(d.changed)
	clear(d.sessions)
	*d = draft{boot: boot, changed: d.changed, rows: d.rows[:0], sessions: d.sessions[:0]}
	return d
}

// recall puts into memory the ends of the chains that a group goes on with, and
// checks, after a transaction that failed, that it really did.
func (l *Ledger) recall(ctx context.Context, group []*request) error {
	if len(l.w.chains) > maxChains {
		system := l.w.chains[SystemSession]
		clear(l.w.chains)
		l.w.chains[SystemSession] = system
	}
	var missing []string
	for _, r := range group {
		for _, e := range r.entries {
			if _, ok := l.w.chains[e.Session]; !ok {
				missing = append(missing, e.Session)
			}
		}
	}
	if len(missing) == 0 && !l.w.doubtful {
		return nil
	}
	// It uses the connection that writes: those that read may be taken by readers
	// that take long.
	return l.db.Write(ctx, func(tx *sql.Tx) error {
		if err := l.w.agree(ctx, tx); err != nil {
			return err
		}
		for _, session := range missing {
			if _, ok := l.w.chains[session]; ok {
				continue // twice in the group
			}
			c, err := findChain(ctx, tx, session, l.w.tree.size)
			if err != nil {
				return err
			}
			l.w.chains[session] = c
		}
		return nil
	})
}

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

// adopt makes a draft that was committed the state of the writer, and wakes the
// checkpointer if it has not been since the last checkpoint.
func (l *Ledger) adopt(d *draft) {
	l.w = d.writer
	maps.Copy(l.w.chains, d.changed)
	l.mu.Lock()
	before := l.head.size - l.signed.Size
	l.head = l.w.tree
	after := l.head.size - l.signed.Size
	if d.signer != nil {
		l.signer = d.signer
	}
	l.mu.Unlock()
	if before <= 0 || before < checkpointEvery && after >= checkpointEvery {
		l.wakeCheckpoints()
	}
}

// take adds a request to the draft, or leaves it as it is and returns ErrEnded.
func (d *draft) take(r *request, now func() time.Time) error {
	ends := map[string]bool{}
	for _, e := range r.entries {
		if d.chain(e.Session).ended || ends[e.Session] {
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

// chain returns the end of a chain. It has been recalled.
func (d *draft) chain(session string) chain {
	if c, ok := d.changed[session]; ok {
		return c
	}
	return d.chains[session]
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
		d.when = nextTime(d.when, d.last, wall)
		d.last = wall
	}
}

// nextTime is formatTime of micros, given that of a time before: most entries
// are of the same second as the last.
func nextTime(when []byte, before, micros int64) []byte {
	if micros/1e6 != before/1e6 || len(when) != len(timeLayout) || before < 0 {
		return formatTime(micros)
	}
	when = slices.Clone(when)
	digits := micros % 1e6
	for i := len(when) - 2; i > len(when)-8; i-- {
		when[i] = byte('0' + digits%10)
		digits /= 10
	}
	return when
}

func formatTime(micros int64) []byte {
	return time.UnixMicro(micros).UTC().AppendFormat(make([]byte, 0, len(timeLayout)), timeLayout)
}

// add appends one entry to the draft.
func (d *draft) add(e Entry) Ref {
	c := d.chain(e.Session)
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
	if d.tailSIDs == nil {
		d.tailSIDs = make([]int64, 0, tileWidth)
	}
	// What is behind the end of the writer's is nobody's, so the draft may have it.
	d.tailSIDs = append(d.tailSIDs, c.sid)
	d.tree.add(ref.Hash, d.completeTile)
	c.seq, c.prev, c.ended, c.last = c.seq+1, ref.Hash, e.Type == TypeEnd, index
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

// flush is the turn of a caller: one flush for all that was written during the
// last.
func (l *Ledger) flush() {
	l.queue.gather()
	group := l.queue.takeFlushes()
	err := errStopped
	defer func() { l.queue.flushed(group, err) }()
	if err = l.db.Sync(); err != nil {
		err = l.fail(fmt.Errorf("%w: %w", ErrUnwritable, err))
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
