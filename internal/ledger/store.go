package ledger

import (
	"context"
	"crypto/ed25519"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/sys/database"
	"ringfence/internal/sys/keychain"
)

// The files in the directory of a ledger.
const (
	databaseFile = "ledger.db"
	journalName  = "journal"   // entries that are not in the database yet
	headFile     = "head.note" // the newest checkpoint once more
	lockFile     = "lock"      // held by the process that appends
)

// schema is what is in the database. Only entries and checkpoints are
// evidence; sessions, tiles and keys can be made from the entries again, are
// there for speed, and are checked by Verify.
var schema = database.Options{
	ApplicationID: 0x52464c31, // "RFL1"
	Migrations: []string{`
CREATE TABLE entries(idx INTEGER PRIMARY KEY, sid INTEGER NOT NULL, leaf BLOB NOT NULL);
CREATE TABLE checkpoints(tile INTEGER PRIMARY KEY, size INTEGER NOT NULL, note BLOB NOT NULL);
CREATE TABLE sessions(sid INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, first INTEGER NOT NULL);
CREATE TABLE tiles(id INTEGER PRIMARY KEY, root BLOB NOT NULL, sids BLOB NOT NULL);
CREATE TABLE keys(idx INTEGER PRIMARY KEY, public TEXT NOT NULL);
CREATE TRIGGER entries_stay BEFORE DELETE ON entries BEGIN SELECT raise(ABORT, 'entries are never deleted'); END;
CREATE TRIGGER entries_keep BEFORE UPDATE ON entries BEGIN SELECT raise(ABORT, 'entries are never changed'); END;
`},
}

// tileID is the key of a row of tiles.
func tileID(level int, n int64) int64 { return int64(level)<<48 | n }

// packSIDs encodes session numbers as ascending uvarints, unpackSIDs decodes.
func packSIDs(sids []int64) []byte {
	slices.Sort(sids)
	b := []byte{}
	for _, s := range slices.Compact(sids) {
		b = binary.AppendUvarint(b, uint64(s))
	}
	return b
}

func unpackSIDs(b []byte) ([]int64, error) {
	var sids []int64
	for len(b) > 0 {
		s, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errors.New("malformed list of sessions in a tile")
		}
		sids, b = append(sids, int64(s)), b[n:]
	}
	return sids, nil
}

// Additions are what one transaction adds to the database, or several.
type additions struct {
	rows     []row
	sessions []sessionRow
	tiles    []tileRow
	keys     []keyRow
}

// A row is one entry to be inserted.
type row struct {
	idx, sid int64
	leaf     []byte
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

func (a *additions) add(b *additions) {
	a.rows, a.sessions = append(a.rows, b.rows...), append(a.sessions, b.sessions...)
	a.tiles, a.keys = append(a.tiles, b.tiles...), append(a.keys, b.keys...)
}

// empty returns additions without any, for their memory.
func (a *additions) empty() additions {
	clear(a.rows)
	clear(a.sessions)
	clear(a.tiles)
	clear(a.keys)
	return additions{a.rows[:0], a.sessions[:0], a.tiles[:0], a.keys[:0]}
}

const rowsPerInsert = 32

// statements are what the writer runs.
type statements struct {
	one, many, session, tile, checkpoint, key *database.Stmt
}

func prepare(db *database.DB) statements {
	const values = "(?,?,?)"
	const entries = "INSERT INTO entries(idx, sid, leaf) VALUES " + values
	return statements{
		one:        db.Prepare(entries),
		many:       db.Prepare(entries + strings.Repeat(","+values, rowsPerInsert-1)),
		session:    db.Prepare("INSERT INTO sessions(sid, name, first) VALUES " + values),
		tile:       db.Prepare("INSERT INTO tiles(id, root, sids) VALUES " + values),
		checkpoint: db.Prepare("INSERT OR REPLACE INTO checkpoints(tile, size, note) VALUES " + values),
		key:        db.Prepare("INSERT INTO keys(idx, public) VALUES (?,?)"),
	}
}

// insert puts additions into a transaction.
func (s *statements) insert(b *database.Batch, d *additions) error {
	if err := s.insertRows(b, d.rows); err != nil {
		return err
	}
	for _, r := range d.sessions {
		if err := b.Run(s.session, r.sid, r.name, r.first); err != nil {
			return fmt.Errorf("inserting session %s: %w", r.name, err)
		}
	}
	for _, r := range d.tiles {
		if err := b.Run(s.tile, r.id, r.root[:], r.sids); err != nil {
			return fmt.Errorf("inserting tile: %w", err)
		}
	}
	for _, r := range d.keys {
		if err := b.Run(s.key, r.idx, r.public); err != nil {
			return fmt.Errorf("inserting key: %w", err)
		}
	}
	return nil
}

// insertRows inserts rows, most of them in statements of rowsPerInsert.
func (s *statements) insertRows(b *database.Batch, rows []row) error {
	args := make([]any, 0, 3*min(len(rows), rowsPerInsert))
	for len(rows) > 0 {
		stmt, n := s.one, 1
		if len(rows) >= rowsPerInsert {
			stmt, n = s.many, rowsPerInsert
		}
		args = args[:0]
		for _, r := range rows[:n] {
			args = append(args, r.idx, r.sid, r.leaf)
		}
		if err := b.Run(stmt, args...); err != nil {
			return fmt.Errorf("inserting entry %d: %w", rows[0].idx, err)
		}
		rows = rows[n:]
	}
	return nil
}

// countEntries returns one more than the highest index.
func countEntries(ctx context.Context, tx *sql.Tx) (n int64, err error) {
	err = tx.QueryRowContext(ctx, "SELECT coalesce(max(idx)+1, 0) FROM entries").Scan(&n)
	return n, err
}

// eachLeaf calls f for the entries from..to-1, in order. raw is valid only
// during the call. A gap is an error.
func eachLeaf(ctx context.Context, tx *sql.Tx, from, to int64, f func(idx, sid int64, raw []byte) error) error {
	rows, err := tx.QueryContext(ctx, "SELECT idx, sid, leaf FROM entries WHERE idx >= ? AND idx < ? ORDER BY idx", from, to)
	if err != nil {
		return fmt.Errorf("reading entries: %w", err)
	}
	defer rows.Close()
	next := from
	for rows.Next() {
		var idx, sid int64
		var raw sql.RawBytes
		if err := rows.Scan(&idx, &sid, &raw); err != nil {
			return fmt.Errorf("reading entry %d: %w", next, err)
		}
		if idx != next {
			return divergence(next, "it is missing")
		}
		if err := f(idx, sid, raw); err != nil {
			return err
		}
		next++
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("reading entries: %w", err)
	}
	if next != to {
		return divergence(next, "it is missing")
	}
	return nil
}

// readLeaf returns one entry.
func readLeaf(ctx context.Context, tx *sql.Tx, idx int64) (raw []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT leaf FROM entries WHERE idx = ?", idx).Scan(&raw)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, divergence(idx, "it is missing")
	}
	if err != nil {
		return nil, fmt.Errorf("reading entry %d: %w", idx, err)
	}
	return raw, nil
}

// findChain returns the end of a session's chain within the first size entries.
func findChain(ctx context.Context, tx *sql.Tx, session string, size int64) (chain, error) {
	var sid, first int64
	err := tx.QueryRowContext(ctx, "SELECT sid, first FROM sessions WHERE name = ?", session).Scan(&sid, &first)
	if errors.Is(err, sql.ErrNoRows) {
		return chain{}, nil
	}
	if err == nil && first >= size {
		return chain{sid: sid}, nil
	}
	if err != nil {
		return chain{}, fmt.Errorf("finding session %s: %w", session, err)
	}
	tail := size &^ (tileWidth - 1)
	idx, raw, err := lastOf(ctx, tx, sid, tail, size)
	if err == nil && raw == nil {
		var tile int64
		if tile, err = lastTileOf(ctx, tx, sid, tail/tileWidth); err == nil {
			idx, raw, err = lastOf(ctx, tx, sid, tile*tileWidth, (tile+1)*tileWidth)
		}
	}
	if err != nil {
		return chain{}, fmt.Errorf("finding session %s: %w", session, err)
	}
	f, err := parseLeaf(raw)
	if err != nil || string(f.session) != session {
		return chain{}, divergence(idx, "it is not the last entry of session %s: %v", session, err)
	}
	return chain{sid: sid, seq: f.seq + 1, prev: leafHash(raw), ended: string(f.typ) == TypeEnd, last: idx}, nil
}

// lastOf returns the last entry of a session from..to-1; raw is nil if there is
// none.
func lastOf(ctx context.Context, tx *sql.Tx, sid, from, to int64) (idx int64, raw []byte, err error) {
	err = tx.QueryRowContext(ctx, "SELECT idx, leaf FROM entries WHERE idx >= ? AND idx < ? AND sid = ? ORDER BY idx DESC LIMIT 1",
		from, to, sid).Scan(&idx, &raw)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, nil, nil
	}
	return idx, raw, err
}

// lastTileOf returns the last of the first count tiles with an entry of a
// session.
func lastTileOf(ctx context.Context, tx *sql.Tx, sid, count int64) (tile int64, err error) {
	tile = -1
	err = eachTile(ctx, tx, "DESC", 0, count, func(n int64, sids []int64) bool {
		if slices.Contains(sids, sid) {
			tile = n
		}
		return tile < 0
	})
	if err == nil && tile < 0 {
		err = fmt.Errorf("%w: no tile has session number %d", ErrTampered, sid)
	}
	return tile, err
}

// eachTile calls f for the complete tiles of leaves from..to-1, in the given
// order, with the numbers of the sessions in them, until f returns false.
func eachTile(ctx context.Context, tx *sql.Tx, order string, from, to int64, f func(n int64, sids []int64) bool) error {
	rows, err := tx.QueryContext(ctx, "SELECT id, sids FROM tiles WHERE id >= ? AND id < ? ORDER BY id "+order, tileID(1, from), tileID(1, to))
	if err != nil {
		return fmt.Errorf("reading tiles: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var packed sql.RawBytes
		if err := rows.Scan(&id, &packed); err != nil {
			return fmt.Errorf("reading tiles: %w", err)
		}
		sids, err := unpackSIDs(packed)
		if err != nil {
			return fmt.Errorf("%w: %w", ErrTampered, err)
		}
		if !f(id-tileID(1, 0), sids) {
			break
		}
	}
	return rows.Err()
}

// keyAt returns the key that signs a checkpoint of size entries: the last one
// put in force by an entry that the checkpoint covers.
func keyAt(ctx context.Context, tx *sql.Tx, size int64) (ed25519.PublicKey, error) {
	var text string
	err := tx.QueryRowContext(ctx, "SELECT public FROM keys WHERE idx < ? ORDER BY idx DESC LIMIT 1", size).Scan(&text)
	if err != nil {
		return nil, fmt.Errorf("finding the key of a checkpoint of size %d: %w", size, err)
	}
	return keychain.ParsePublic(text)
}

// newestCheckpoint returns the stored checkpoint that covers most; Size is 0 if
// there is none. Its signature has been verified.
func newestCheckpoint(ctx context.Context, tx *sql.Tx) (Checkpoint, error) {
	var size int64
	var signed []byte
	err := tx.QueryRowContext(ctx, "SELECT size, note FROM checkpoints ORDER BY tile DESC LIMIT 1").Scan(&size, &signed)
	if errors.Is(err, sql.ErrNoRows) {
		return Checkpoint{}, nil
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("reading checkpoint: %w", err)
	}
	return checkStored(ctx, tx, size, signed)
}

// checkStored verifies a checkpoint that is kept for a tree of size entries.
func checkStored(ctx context.Context, tx *sql.Tx, size int64, signed []byte) (Checkpoint, error) {
	key, err := keyAt(ctx, tx, size)
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := openCheckpoint(signed, key)
	if err == nil && c.Size != size {
		err = fmt.Errorf("it is stored for %d entries and covers %d", size, c.Size)
	}
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%w: the checkpoint at size %d: %w", ErrTampered, size, err)
	}
	return c, nil
}

// checkpointTile is the key of a row of checkpoints. One checkpoint is kept for
// each tile, the last.
func checkpointTile(size int64) int64 { return (size - 1) >> tileHeight }
