package ledger

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
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
	last  int64 // index of its last entry, if it has one
}

// A writer is the state that the next entry depends on. It belongs to the caller
// whose turn it is to write, and is changed only by adopting a draft that was
// written, and by remembering what is in the database.
type writer struct {
	tree     frontier
	chains   map[string]chain // always has SystemSession, once it has an entry
	nextSID  int64
	tailSIDs []int64 // of the entries in the tile that is not complete
	last     int64   // time of the last entry, in µs since 1970
	when     instant // the same in timeLayout
	wall     int64   // what the clock last said, in µs
	forgot   int64   // how many entries the database had when chains were last forgotten
}

// become makes w what v is, and does not copy what is not in use.
func (w *writer) become(v *writer) {
	w.tree.become(&v.tree)
	w.chains, w.nextSID, w.tailSIDs, w.forgot = v.chains, v.nextSID, v.tailSIDs, v.forgot
	w.last, w.when, w.wall = v.last, v.when, v.wall
}

// A draft is what one group will add to a writer.
type draft struct {
	writer                   // a copy, whose chains are still the writer's
	changed map[string]chain // and these have changed
	additions

	boot   int64
	sum    entrySum
	frame  frame       // in which its entries are written,
	buf    []byte      // and its bytes
	signer note.Signer // takes over with this draft, if any
}

var (
	errDisagree = errors.New("after an error, the database has other entries than were acknowledged; open the ledger again")
	errStopped  = fmt.Errorf("%w: the writer stopped half-way; open the ledger again", ErrUnwritable)
)

// write is the turn of a caller: it writes what waits at once, for all, so that
// no context ends it.
func (l *Ledger) write() {
	l.queue.gather()
	group := l.queue.takeWrites()
	var refused map[*request]error
	err := errStopped
	defer func() {
		if errors.Is(err, errStopped) { // it panicked, which need not end the process
			_ = l.fail(err)
		}
		l.queue.written(group, func(r *request) error { return cmp.Or(refused[r], err) })
	}()
	refused, err = l.commit(context.Background(), group)
}

// commit writes a group but for the requests that it returns. On error nothing
// was written, as far as we know.
func (l *Ledger) commit(ctx context.Context, group []*request) (refused map[*request]error, err error) {
	if err := l.ready(); err != nil {
		return nil, err
	}
	if err := l.recall(ctx, group); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	size := groupSize(group)
	inJournal, err := l.makeFit(size)
	if err != nil {
		return nil, err
	}
	d := l.draft.again(l, size, inJournal)
	for _, r := range group {
		if e := d.take(r, l.now); e != nil {
			if refused == nil {
				refused = map[*request]error{}
			}
			refused[r] = e
		}
	}
	switch {
	case len(d.rows) == 0:
		return refused, nil
	case inJournal:
		d.frame.count = len(d.rows)
		err = l.journal.write(d.frame.seal(d.buf), d.tree.size)
	default:
		err = l.bypass(ctx, d)
	}
	if err != nil {
		return refused, fmt.Errorf("%w: %w", ErrUnwritable, err)
	}
	l.adopt(d, inJournal)
	return refused, nil
}

// ready returns why nothing can be written, if so. If the database could not be, that
// is tried again first: the journal is no place to stay.
func (l *Ledger) ready() error {
	l.mu.Lock()
	failed, stuck := l.failed, l.stuck
	l.mu.Unlock()
	if failed != nil || !stuck {
		return failed
	}
	return l.settle(nil)
}

// groupSize returns how many bytes the frame of a group has at most.
func groupSize(group []*request) int {
	n := frameHead + frameAlign
	for _, r := range group {
		// One entry more, about the clock.
		n += r.size() + (len(r.entries)+1)*(frameEntry+maxEnvelope)
	}
	return n
}

// again empties a draft for another group, which has size bytes at most.
func (d *draft) again(l *Ledger, size int, inJournal bool) *draft {
	if d.changed == nil {
		d.changed = map[string]chain{}
	}
	clear(d.changed)
	d.additions = d.empty()
	d.become(&l.w)
	d.boot, d.signer = l.boot, nil
	if inJournal {
		d.frame, d.buf = frame{use: l.journal.segs[l.journal.active].use}, l.journal.room()
	} else {
		d.frame, d.buf = frame{}, make([]byte, 0, size)
	}
	d.buf = d.buf[:frameHead]
	d.frame.first, d.frame.durable = l.w.tree.size, l.onDisk()
	return d
}

// recall puts into memory the ends of the chains that a group goes on with.
func (l *Ledger) recall(ctx context.Context, group []*request) error {
	var missing []string
	for _, r := range group {
		for i := range r.entries {
			if _, ok := l.w.chains[r.entries[i].Session]; !ok {
				missing = append(missing, r.entries[i].Session)
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	// It uses the connection that writes: those that read may be taken by readers
	// that take long.
	return l.db.Write(ctx, func(tx *sql.Tx) error {
		l.mu.Lock()
		settled := l.settled
		l.mu.Unlock()
		for _, session := range missing {
			if _, ok := l.w.chains[session]; ok {
				continue // twice in the group
			}
			// A session that is not in memory has no entry but in the database.
			c, err := findChain(ctx, tx, session, settled)
			if err != nil {
				return err
			}
			l.w.chains[session] = c
		}
		return nil
	})
}

// forget keeps the number of chains in memory small: those of sessions that have
// entries which are not in the database stay.
func (l *Ledger) forget(settled int64) {
	if len(l.w.chains) <= maxChains || l.w.forgot == settled {
		return
	}
	l.w.forgot = settled
	for session, c := range l.w.chains {
		if session != SystemSession && (c.sid == 0 || c.last < settled) {
			delete(l.w.chains, session)
		}
	}
}

// adopt makes a draft that was written the state of the writer, and wakes the
// checkpointer if it has not been since the last checkpoint, or if the journal
// fills.
func (l *Ledger) adopt(d *draft, inJournal bool) {
	l.w.become(&d.writer)
	maps.Copy(l.w.chains, d.changed)
	l.mu.Lock()
	before := l.head.size - l.signed.Size
	l.head.become(&l.w.tree)
	after := l.head.size - l.signed.Size
	if d.signer != nil {
		l.signer = d.signer
	}
	wake := before <= 0 || before < checkpointEvery && after >= checkpointEvery
	if inJournal {
		l.pending.add(&d.additions)
	} else {
		l.settled, l.kept, l.durable = l.head.size, l.head.size, l.head.size
	}
	if !l.tight && l.journal.fills(l.kept) {
		l.tight, wake = true, true
	}
	settled := l.settled
	l.mu.Unlock()
	l.forget(settled)
	if wake {
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
		d.when.set(d.last, wall)
		d.last = wall
	}
}

// An instant is a time in timeLayout.
type instant [len(timeLayout)]byte

// set makes it that of micros, given the time it is: most entries are of the same second
// as the last.
func (t *instant) set(before, micros int64) {
	if micros/1e6 != before/1e6 || t[0] == 0 || before < 0 {
		copy(t[:], formatTime(micros))
		return
	}
	digits := micros % 1e6
	for i := len(t) - 2; i > len(t)-8; i-- {
		t[i] = byte('0' + digits%10)
		digits /= 10
	}
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
	start := len(d.buf)
	d.buf = appendLeaf(append(d.buf, make([]byte, frameEntry)...), leaf{
		body: e.Body, session: []byte(e.Session), typ: []byte(e.Type), time: d.when[:],
		prev: c.prev, boot: d.boot, seq: c.seq,
	})
	d.sum.seal(d.buf[start:], d.frame.use, index)
	raw := d.buf[start+frameEntry : len(d.buf) : len(d.buf)]
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
	err = l.sync()
}

// sync puts on disk what has been written (L6).
func (l *Ledger) sync() error {
	l.mu.Lock()
	size, durable, err := l.head.size, l.durable, l.failed
	l.mu.Unlock()
	if err != nil || durable >= size {
		return err
	}
	if err := l.journal.file.Sync(); err != nil {
		return l.fail(fmt.Errorf("%w: flushing %s: %w", ErrUnwritable, journalName, err))
	}
	l.mu.Lock()
	l.durable = max(l.durable, size)
	l.mu.Unlock()
	return nil
}

// onDisk returns how many entries are on disk, in the journal or in the database.
func (l *Ledger) onDisk() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.durable
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
