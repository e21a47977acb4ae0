package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"ringfence/internal/act/strictjson"
)

// replay puts the entries into the database that only the journal has, and returns how
// many there are then. Nothing is verified but that what was on disk is there: what
// follows in the same transaction does the rest, or undoes it.
func replay(ctx context.Context, tx *sql.Tx, img *image, size int64, head *Checkpoint) (int64, error) {
	leaves := img.after(size)
	end, signed := size+int64(len(leaves)), int64(0)
	if head != nil {
		signed = head.Size
	}
	if err := img.check(end, signed); err != nil || len(leaves) == 0 {
		return size, err
	}
	r := replayer{ctx: ctx, tx: tx, sids: map[string]int64{}}
	if err := r.start(size); err != nil {
		return 0, err
	}
	for _, raw := range leaves {
		if err := r.next(raw); err != nil {
			return 0, err
		}
	}
	if err := r.insert(); err != nil {
		return 0, fmt.Errorf("%w: moving entries from %s: %w", ErrUnwritable, journalName, err)
	}
	return end, nil
}

// A replayer makes the rows of entries from their leaves alone.
type replayer struct {
	ctx     context.Context
	tx      *sql.Tx
	tree    frontier
	nextSID int64
	sids    map[string]int64
	tail    []int64 // sids of the entries in the tile that is not complete
	additions
}

// start goes on from the first size entries, of which alone the database may know.
func (r *replayer) start(size int64) (err error) {
	if err := noRowsBeyond(r.ctx, r.tx, size); err != nil {
		return err
	}
	if err := r.tx.QueryRowContext(r.ctx, "SELECT coalesce(max(sid), 0)+1 FROM sessions").Scan(&r.nextSID); err != nil {
		return fmt.Errorf("counting sessions: %w", err)
	}
	if size == 0 {
		return nil
	}
	if r.tree, err = newNodes(r.ctx, r.tx).frontierAt(size); err != nil {
		return err
	}
	return eachLeaf(r.ctx, r.tx, size&^(tileWidth-1), size, func(_, sid int64, _ []byte) error {
		r.tail = append(r.tail, sid)
		return nil
	})
}

// noRowsBeyond checks that the indexes know of no more than size entries.
func noRowsBeyond(ctx context.Context, tx *sql.Tx, size int64) error {
	const most = 52 / tileHeight // levels of tiles that there can be
	var beyond bool
	err := tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM sessions WHERE first >= ?) OR EXISTS(SELECT 1 FROM keys WHERE idx >= ?)", size, size).Scan(&beyond)
	for level := 1; err == nil && !beyond && level <= most; level++ {
		err = tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM tiles WHERE id >= ? AND id < ?)",
			tileID(level, size>>(level*tileHeight)), tileID(level+1, 0)).Scan(&beyond)
	}
	if err == nil && beyond {
		err = fmt.Errorf("%w: the database has %d entries, and lists sessions, keys or tiles of others", ErrRolledBack, size)
	}
	return err
}

// next adds one entry.
func (r *replayer) next(raw []byte) error {
	index := r.tree.size
	f, err := parseLeaf(raw)
	if err != nil {
		return divergence(index, "%v", err)
	}
	sid, err := r.sidOf(string(f.session), index)
	if err != nil {
		return err
	}
	if string(f.session) == SystemSession && (string(f.typ) == TypeOpen || string(f.typ) == TypeKey) {
		var body struct{ Key, To string }
		if err := strictjson.Unmarshal(f.body, &body); err != nil {
			return divergence(index, "%v", err)
		}
		r.keys = append(r.keys, keyRow{index, body.Key + body.To})
	}
	r.rows = append(r.rows, row{index, sid, raw})
	r.tail = append(r.tail, sid)
	r.tree.add(leafHash(raw), func(t tileRoot) {
		tile := tileRow{id: tileID(t.level, t.n), root: t.hash, sids: []byte{}}
		if t.level == 1 {
			tile.sids, r.tail = packSIDs(r.tail), nil
		}
		r.tiles = append(r.tiles, tile)
	})
	return nil
}

// sidOf returns the number of a session, a new one if it has no entry yet.
func (r *replayer) sidOf(session string, index int64) (sid int64, err error) {
	if sid := r.sids[session]; sid != 0 {
		return sid, nil
	}
	err = r.tx.QueryRowContext(r.ctx, "SELECT sid FROM sessions WHERE name = ?", session).Scan(&sid)
	if errors.Is(err, sql.ErrNoRows) {
		sid, err = r.nextSID, nil
		r.nextSID++
		r.sessions = append(r.sessions, sessionRow{sid, index, session})
	}
	if err != nil {
		return 0, fmt.Errorf("finding session %s: %w", session, err)
	}
	r.sids[session] = sid
	return sid, nil
}

func (r *replayer) insert() error {
	run := func(query string, args ...any) error {
		_, err := r.tx.ExecContext(r.ctx, query, args...)
		return err
	}
	for _, e := range r.rows {
		if err := run("INSERT INTO entries(idx, sid, leaf) VALUES (?,?,?)", e.idx, e.sid, e.leaf); err != nil {
			return err
		}
	}
	for _, s := range r.sessions {
		if err := run("INSERT INTO sessions(sid, name, first) VALUES (?,?,?)", s.sid, s.name, s.first); err != nil {
			return err
		}
	}
	for _, t := range r.tiles {
		if err := run("INSERT INTO tiles(id, root, sids) VALUES (?,?,?)", t.id, t.root[:], t.sids); err != nil {
			return err
		}
	}
	for _, k := range r.keys {
		if err := run("INSERT INTO keys(idx, public) VALUES (?,?)", k.idx, k.public); err != nil {
			return err
		}
	}
	return nil
}
