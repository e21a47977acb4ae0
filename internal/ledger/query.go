package ledger

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Query selects entries. The zero Query selects all.
type Query struct {
	Session   string   // only this session; "" for all
	Types     []string // only these types; none for all
	FromIndex int64    // only from this index on
	Limit     int      // at most so many; 0 for all
}

// errEnough ends an iteration early.
var errEnough = errors.New("enough")

// Entries calls f for each entry that q selects, in the order of their indexes,
// as they were when the call began. An error of f ends the iteration and is
// returned. Nothing is verified but the form of an entry; see [Ledger.Verify].
func (l *Ledger) Entries(ctx context.Context, q Query, f func(Record) error) error {
	err := l.read(ctx, func(tx *sql.Tx) error { return entries(ctx, tx, q, f) })
	if err != nil && !errors.Is(err, errEnough) {
		return fmt.Errorf("reading ledger: %w", err)
	}
	return nil
}

func entries(ctx context.Context, tx *sql.Tx, q Query, f func(Record) error) error {
	count := 0
	visit := func(idx int64, raw []byte) error {
		parsed, err := parseLeaf(raw)
		if err != nil {
			return divergence(idx, "%v", err)
		}
		if len(q.Types) > 0 && !slices.Contains(q.Types, string(parsed.typ)) {
			return nil
		}
		r, err := parsed.record(idx, raw)
		if err == nil {
			err = f(r)
		}
		if count++; err == nil && count == q.Limit {
			err = errEnough
		}
		return err
	}
	size, err := countEntries(ctx, tx)
	if err != nil {
		return err
	}
	from := max(q.FromIndex, 0)
	if q.Session == "" {
		return eachLeaf(ctx, tx, min(from, size), size, func(idx, _ int64, raw []byte) error { return visit(idx, raw) })
	}
	return eachOfSession(ctx, tx, q.Session, from, size, visit)
}

// eachOfSession calls f for the entries from..size-1 of one session, in order.
// raw is valid only during the call. A session without entries is ErrNotFound.
func eachOfSession(ctx context.Context, tx *sql.Tx, session string, from, size int64, f func(idx int64, raw []byte) error) error {
	var sid, first int64
	err := tx.QueryRowContext(ctx, "SELECT sid, first FROM sessions WHERE name = ?", session).Scan(&sid, &first)
	if errors.Is(err, sql.ErrNoRows) || err == nil && first >= size {
		return fmt.Errorf("session %s: %w", session, ErrNotFound)
	}
	if err != nil {
		return err
	}
	from = max(from, first)
	full := size / tileWidth
	// Neighbouring tiles are read together.
	var spans [][2]int64
	add := func(tile int64) {
		if n := len(spans); n > 0 && spans[n-1][1] == tile {
			spans[n-1][1]++
			return
		}
		spans = append(spans, [2]int64{tile, tile + 1})
	}
	err = eachTile(ctx, tx, "ASC", from/tileWidth, full, func(tile int64, sids []int64) bool {
		if slices.Contains(sids, sid) {
			add(tile)
		}
		return true
	})
	if err != nil {
		return err
	}
	add(full) // what is not in a tile yet
	for _, s := range spans {
		if err := eachOfSpan(ctx, tx, sid, max(from, s[0]*tileWidth), min(size, s[1]*tileWidth), f); err != nil {
			return err
		}
	}
	return nil
}

func eachOfSpan(ctx context.Context, tx *sql.Tx, sid, from, to int64, f func(idx int64, raw []byte) error) error {
	rows, err := tx.QueryContext(ctx, "SELECT idx, leaf FROM entries WHERE idx >= ? AND idx < ? AND sid = ? ORDER BY idx", from, to, sid)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var idx int64
		var raw sql.RawBytes
		if err := rows.Scan(&idx, &raw); err != nil {
			return err
		}
		if err := f(idx, raw); err != nil {
			return err
		}
	}
	return rows.Err()
}

// A SessionInfo sums up one chain.
type SessionInfo struct {
	Session       string
	Entries       int64
	First, Last   int64     // indexes
	Started, Used time.Time // times of the first and the last entry
	Ended         bool
}

// Sessions returns every chain, in the order in which they began.
func (l *Ledger) Sessions(ctx context.Context) ([]SessionInfo, error) {
	var all []SessionInfo
	err := l.read(ctx, func(tx *sql.Tx) (err error) {
		all, err = sessions(ctx, tx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("listing sessions: %w", err)
	}
	return all, nil
}

func sessions(ctx context.Context, tx *sql.Tx) ([]SessionInfo, error) {
	size, err := countEntries(ctx, tx)
	if err != nil {
		return nil, err
	}
	names, firsts, err := sessionNames(ctx, tx)
	if err != nil {
		return nil, err
	}
	full := size / tileWidth
	lastTile := make([]int64, len(names)) // by sid-1
	err = eachTile(ctx, tx, "ASC", 0, full, func(tile int64, sids []int64) bool {
		for _, sid := range sids {
			if sid > 0 && sid <= int64(len(names)) {
				lastTile[sid-1] = tile
			}
		}
		return true
	})
	if err != nil {
		return nil, err
	}
	all := make([]SessionInfo, len(names))
	for i, name := range names {
		info, err := summarize(ctx, tx, int64(i+1), firsts[i], lastTile[i], full*tileWidth, size)
		if err != nil {
			return nil, fmt.Errorf("session %s: %w", name, err)
		}
		info.Session = name
		all[i] = info
	}
	return all, nil
}

// sessionNames returns the names and first indexes of all sessions, by number
// from 1.
func sessionNames(ctx context.Context, tx *sql.Tx) (names []string, firsts []int64, err error) {
	rows, err := tx.QueryContext(ctx, "SELECT sid, name, first FROM sessions ORDER BY sid")
	if err != nil {
		return nil, nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var sid, first int64
		var name string
		if err := rows.Scan(&sid, &name, &first); err != nil {
			return nil, nil, err
		}
		if sid != int64(len(names)+1) {
			return nil, nil, fmt.Errorf("%w: session number %d is missing", ErrTampered, len(names)+1)
		}
		names, firsts = append(names, name), append(firsts, first)
	}
	return names, firsts, rows.Err()
}

func summarize(ctx context.Context, tx *sql.Tx, sid, first, lastTile, tail, size int64) (SessionInfo, error) {
	idx, raw, err := lastOf(ctx, tx, sid, tail, size)
	if err == nil && raw == nil {
		idx, raw, err = lastOf(ctx, tx, sid, lastTile*tileWidth, (lastTile+1)*tileWidth)
	}
	if err != nil {
		return SessionInfo{}, err
	}
	start, err := readLeaf(ctx, tx, first)
	if err != nil {
		return SessionInfo{}, err
	}
	ends := [2]Record{}
	for i, b := range [][]byte{start, raw} {
		f, err := parseLeaf(b)
		if err != nil {
			return SessionInfo{}, divergence(first, "%v", err)
		}
		if ends[i], err = f.record(idx, b); err != nil {
			return SessionInfo{}, err
		}
	}
	return SessionInfo{
		Entries: ends[1].Seq + 1, First: first, Last: idx,
		Started: ends[0].Time, Used: ends[1].Time, Ended: ends[1].Type == TypeEnd,
	}, nil
}
