package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"errors"
	"fmt"
	"slices"

	"ringfence/internal/sys/database"
	"ringfence/internal/sys/keychain"
)

// An audit is one verification of a database.
type audit struct {
	head    *Checkpoint // the copy beside it
	journal *image      // what else there is, if that is to be verified too
	trusted []ed25519.PublicKey
	upTo    int64 // entries to verify, -1 for all

	v       Verification
	seq     *sequence
	tree    frontier
	key     ed25519.PublicKey // in force
	keys    int64             // how many there have been
	unknown int64             // the first entry of an unknown version, -1 for none
	names   []string          // of sessions, as the database says
	firsts  []int64
	sids    []int64 // of the entries in the incomplete tile
	beyond  bool    // the entry is in the journal only, so that no index has it
	newest  Checkpoint
	signer  ed25519.PublicKey // of newest
	tiles   map[int]*cursor[tileRow]
	notes   *cursor[noteRow]
	tx      *sql.Tx
	ctx     context.Context
}

type noteRow struct {
	tile, size int64
	note       []byte
}

// run verifies what tx sees. What is wrong with it goes into a.v; an error
// means that it could not be read.
func (a *audit) run(ctx context.Context, tx *sql.Tx) error {
	a.ctx, a.tx, a.v.Index, a.unknown = ctx, tx, -1, -1
	a.seq, a.tiles = newSequence(), map[int]*cursor[tileRow]{}
	err := a.verify()
	for _, c := range a.tiles {
		c.rows.Close()
	}
	if errors.Is(err, ErrTampered) {
		a.v.reject(err)
		return nil
	}
	return err
}

type reader interface {
	Read(ctx context.Context, f func(*sql.Tx) error) error
}

// runOn is run in a transaction of its own.
func (a *audit) runOn(ctx context.Context, db reader) error {
	err := db.Read(ctx, func(tx *sql.Tx) error { return a.run(ctx, tx) })
	if errors.Is(err, database.ErrDamaged) {
		a.v.reject(err)
		return nil
	}
	return err
}

func (a *audit) verify() error {
	size, err := countEntries(a.ctx, a.tx)
	if err != nil {
		return fmt.Errorf("counting entries: %w", err)
	}
	if a.upTo < 0 || a.upTo > size {
		a.upTo = size
	}
	if a.names, a.firsts, err = sessionNames(a.ctx, a.tx); err != nil {
		return err
	}
	a.notes, err = openCursor(a.ctx, a.tx, scanNote, "SELECT tile, size, note FROM checkpoints ORDER BY tile")
	if err != nil {
		return err
	}
	defer a.notes.rows.Close()
	if err := eachChecked(a.ctx, a.tx, a.upTo, a.entry); err != nil {
		return err
	}
	if a.upTo == size {
		if err := a.rest(size); err != nil {
			return err
		}
	}
	a.conclude()
	return nil
}

// rest verifies what is there beside size entries in the database.
func (a *audit) rest(size int64) error {
	if a.notes.ok {
		return divergence(size, "it and what follows it is gone, or a checkpoint was moved in the database: there is one over %d entries", a.notes.row.size)
	}
	want := map[string]int64{"sessions": int64(len(a.seq.chains)), "tiles": 0, "keys": a.keys}
	for n := size / tileWidth; n > 0; n /= tileWidth {
		want["tiles"] += n
	}
	a.beyond = true
	for _, raw := range a.journal.after(size) {
		if err := a.journaled(raw); err != nil {
			return err
		}
	}
	return a.leftovers(a.tree.size, want)
}

// journaled takes the next entry from the journal.
func (a *audit) journaled(raw []byte) error {
	idx, sid := a.tree.size, int64(0)
	f, err := parseLeaf(raw)
	if err == nil {
		if c := a.seq.chains[string(f.session)]; c != nil {
			sid = c.sid
		} else {
			a.names, a.firsts = append(a.names, string(f.session)), append(a.firsts, idx)
			sid = int64(len(a.names))
		}
	}
	return a.entry(idx, sid, &f, leafHash(raw), err)
}

// entry takes the next entry. parsed says why f is not valid, if so.
func (a *audit) entry(idx, sid int64, f *leaf, hash [32]byte, parsed error) error {
	switch {
	case errors.Is(parsed, errVersion):
		if a.unknown < 0 {
			a.unknown = idx
		}
	case parsed != nil:
		return divergence(idx, "%v", parsed)
	case a.unknown < 0:
		if err := a.inOrder(idx, sid, f, hash); err != nil {
			return err
		}
	}
	a.v.Entries++
	a.sids = append(a.sids, sid)
	var wrong error
	a.tree.add(hash, func(t tileRoot) {
		if wrong == nil {
			wrong = a.tile(t)
		}
	})
	if wrong != nil {
		return wrong
	}
	return a.signatures()
}

// inOrder checks an entry against those before it.
func (a *audit) inOrder(idx, sid int64, f *leaf, hash [32]byte) error {
	if err := a.seq.next(idx, sid, f, hash); err != nil {
		return a.blame(err, sid, hash)
	}
	if f.seq == 0 && (sid < 1 || sid > int64(len(a.names)) || a.names[sid-1] != string(f.session) || a.firsts[sid-1] != idx) {
		return divergence(idx, "it is the first of session %s, and the database says otherwise: its list of sessions was changed", f.session)
	}
	if string(f.session) != SystemSession {
		return nil
	}
	var public string
	switch string(f.typ) {
	case TypeOpen:
		var body openBody
		if err := decodeBody(f.body, &body); err != nil {
			return divergence(idx, "%v", err)
		}
		public, a.v.Origin = body.Key, body.Origin
	case TypeKey:
		body, err := parseKeyChange(f.body, a.v.Origin, a.key)
		if err != nil {
			return divergence(idx, "%v", err)
		}
		public = body.To
	default:
		if idx == 0 {
			return divergence(0, "a ledger begins with %s: what came first is gone", TypeOpen)
		}
		return nil
	}
	if (idx == 0) != (string(f.typ) == TypeOpen) {
		return divergence(idx, "a ledger begins, once, with %s", TypeOpen)
	}
	return a.newKey(idx, public)
}

// blame finds out which of two entries is wrong that do not fit together: the later one
// is not, if the one after it fits it. hash is that of the later one.
func (a *audit) blame(err error, sid int64, hash [32]byte) error {
	d, ok := errors.AsType[*DivergenceError](err)
	if !ok || d.other == nil {
		return err
	}
	var next int64
	var raw []byte
	scan := a.tx.QueryRowContext(a.ctx, "SELECT idx, leaf FROM entries WHERE idx > ? AND sid = ? ORDER BY idx LIMIT 1", d.Index, sid).Scan(&next, &raw)
	if scan != nil { // there is none, or it cannot be read: that was no answer
		return err
	}
	if f, wrong := parseLeaf(raw); wrong != nil || f.prev != hash {
		return err
	}
	return divergence(*d.other, "it was changed: entry %d, the next of its session, was recorded after another one", d.Index)
}

// newKey puts a key in force, if the table of keys has it too.
func (a *audit) newKey(idx int64, public string) (err error) {
	if a.key, err = keychain.ParsePublic(public); err != nil {
		return divergence(idx, "%v", err)
	}
	a.keys++
	if a.beyond {
		return nil
	}
	var listed string
	err = a.tx.QueryRowContext(a.ctx, "SELECT public FROM keys WHERE idx = ?", idx).Scan(&listed)
	if err != nil && !errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("reading keys: %w", err)
	}
	if listed != public {
		return divergence(idx, "the database lists another key than this entry, which puts it in force: its list of keys was changed")
	}
	return nil
}

// tile compares a tile with its row.
func (a *audit) tile(t tileRoot) error {
	if a.beyond {
		return nil
	}
	c := a.tiles[t.level]
	if c == nil {
		var err error
		c, err = openCursor(a.ctx, a.tx, scanTile, "SELECT id, root, sids FROM tiles WHERE id >= ? AND id < ? ORDER BY id", tileID(t.level, 0), tileID(t.level+1, 0))
		if err != nil {
			return err
		}
		a.tiles[t.level] = c
	}
	sids := []byte{}
	if t.level == 1 {
		sids = packSIDs(a.sids)
		a.sids = a.sids[:0]
	}
	want := tileRow{tileID(t.level, t.n), t.hash, sids}
	if got := c.row; !c.ok || got.id != want.id || got.root != want.root || !slices.Equal(got.sids, want.sids) {
		span := int64(1)
		for range t.level {
			span *= tileWidth
		}
		return fmt.Errorf("%w: entries %d to %d: one of them, or what the database keeps about them as a whole (table tiles), was changed", ErrTampered, t.n*span, (t.n+1)*span-1)
	}
	return c.next()
}

// signatures verifies the checkpoints at the present size.
func (a *audit) signatures() error {
	for a.notes.ok && a.notes.row.size == a.tree.size {
		n := a.notes.row
		if n.tile != checkpointTile(n.size) {
			return fmt.Errorf("%w: the checkpoint over the first %d entries was moved in the database (table checkpoints)", ErrTampered, n.size)
		}
		if err := a.signature(n.note, "the checkpoint in the database"); err != nil {
			return err
		}
		a.v.Checkpoints++
		if err := a.notes.next(); err != nil {
			return err
		}
	}
	if a.head != nil && a.head.Size == a.tree.size {
		return a.signature(a.head.Note, headFile)
	}
	return nil
}

// signature verifies one checkpoint against the present tree.
func (a *audit) signature(signed []byte, what string) error {
	c, err := openCheckpoint(signed, a.key)
	switch {
	case err != nil && a.unknown >= 0:
		return nil // the key may have changed in a way that we do not know
	case err != nil:
		return fmt.Errorf("%w: %s over the first %d entries: %w", ErrTampered, what, a.tree.size, err)
	case c.Size != a.tree.size || c.Origin != a.v.Origin:
		return fmt.Errorf("%w: %s over the first %d entries is one of ledger %s over %d", ErrTampered, what, a.tree.size, c.Origin, c.Size)
	case c.Root != a.tree.root():
		return a.locate(what)
	}
	a.newest, a.signer = c, a.key
	return nil
}

// locate makes the error for entries that are well formed and chained, and not
// those that were signed: all that is known is after which checkpoint they are.
func (a *audit) locate(what string) error {
	return divergence(a.newest.Size, "from it on, up to entry %d, one was changed after %s over the first %d entries was signed", a.tree.size-1, what, a.tree.size)
}

// leftovers finds what belongs to no entry. want says how many rows of the indexes the
// entries in the database make.
func (a *audit) leftovers(size int64, want map[string]int64) error {
	signed := int64(0)
	if a.head != nil {
		signed = a.head.Size
	}
	if err := a.journal.check(size, signed); err != nil {
		return err
	}
	if signed > size {
		return divergence(size, "it and what follows it is gone: %s was signed over %d entries", headFile, signed)
	}
	if a.head == nil && a.v.Checkpoints > 0 {
		return fmt.Errorf("%w: %s is gone", ErrTampered, headFile)
	}
	if a.unknown >= 0 {
		return nil
	}
	for table, n := range want {
		var rows int64
		if err := a.tx.QueryRowContext(a.ctx, "SELECT count(*) FROM "+table).Scan(&rows); err != nil {
			return fmt.Errorf("counting %s: %w", table, err)
		}
		if rows != n {
			return fmt.Errorf("%w: the database lists %d %s, and its entries have %d: table %s was changed", ErrTampered, rows, table, n, table)
		}
	}
	return nil
}

// conclude sets the status when nothing is wrong.
func (a *audit) conclude() {
	v := &a.v
	v.Size, v.Sessions = a.newest.Size, int64(len(a.seq.chains))
	if a.signer != nil {
		v.Key = keychain.KeyID(a.signer)
	}
	v.Status = Incomplete
	switch {
	case a.unknown >= 0:
		v.Index = a.unknown
		v.Reason = fmt.Sprintf("entry %d: %v", a.unknown, errVersion)
	case a.signer == nil:
		v.Reason = "there is no checkpoint"
	case !trusts(a.trusted, a.signer):
		v.Reason = fmt.Sprintf("signed by key %s, which is not among the trusted keys", v.Key)
	case v.Size < v.Entries:
		v.Reason = fmt.Sprintf("the last %d entries are not signed yet", v.Entries-v.Size)
	default:
		v.Status = Valid
	}
}

func trusts(trusted []ed25519.PublicKey, key ed25519.PublicKey) bool {
	return slices.ContainsFunc(trusted, func(k ed25519.PublicKey) bool { return k.Equal(key) })
}

// A cursor is a query whose rows are taken one by one while others go on in the
// same transaction.
type cursor[T any] struct {
	rows *sql.Rows
	scan func(*sql.Rows) (T, error)
	row  T
	ok   bool // row is valid
}

// openCursor runs a query and takes its first row.
func openCursor[T any](ctx context.Context, tx *sql.Tx, scan func(*sql.Rows) (T, error), query string, args ...any) (*cursor[T], error) {
	rows, err := tx.QueryContext(ctx, query, args...) //nolint:rowserrcheck // next does
	if err != nil {
		return nil, fmt.Errorf("reading ledger: %w", err)
	}
	c := &cursor[T]{rows: rows, scan: scan}
	if err := c.next(); err != nil {
		rows.Close() //nolint:sqlclosecheck // otherwise it stays open
		return nil, err
	}
	return c, nil
}

func (c *cursor[T]) next() (err error) {
	if c.ok = c.rows.Next(); c.ok {
		c.row, err = c.scan(c.rows)
	} else {
		err = c.rows.Err()
	}
	if err != nil {
		return fmt.Errorf("reading ledger: %w", err)
	}
	return nil
}

func scanNote(rows *sql.Rows) (n noteRow, err error) {
	err = rows.Scan(&n.tile, &n.size, &n.note)
	return n, err
}

func scanTile(rows *sql.Rows) (t tileRow, err error) {
	var root []byte
	if err := rows.Scan(&t.id, &root, &t.sids); err != nil {
		return t, err
	}
	if len(root) != 32 {
		return t, fmt.Errorf("%w: a tile root of %d bytes", ErrTampered, len(root))
	}
	t.root = [32]byte(root)
	return t, nil
}
