package ledger

import (
	"context"
	"database/sql"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"
)

// nodes finds the hashes of the tree in the database: those of tiles as they
// are stored, those below by hashing leaves. It is a tlog.HashReader for one
// transaction and one goroutine.
type nodes struct {
	ctx    context.Context
	tx     *sql.Tx
	tile   int64      // whose leaf hashes are in leaves, -1 for none
	leaves [][32]byte // at most tileWidth
	upper  map[int64][32]byte
}

const maxUpper = 4096 // hashes kept in nodes.upper

func newNodes(ctx context.Context, tx *sql.Tx) *nodes {
	return &nodes{ctx: ctx, tx: tx, tile: -1, upper: map[int64][32]byte{}}
}

// ReadHashes implements tlog.HashReader.
func (r *nodes) ReadHashes(indexes []int64) ([]tlog.Hash, error) {
	hashes := make([]tlog.Hash, len(indexes))
	for i, index := range indexes {
		level, n := tlog.SplitStoredHashIndex(index)
		h, err := r.node(level, n)
		if err != nil {
			return nil, err
		}
		hashes[i] = h
	}
	return hashes, nil
}

// node returns the n-th hash of a level; level 0 are the leaves.
func (r *nodes) node(level int, n int64) ([32]byte, error) {
	if level < tileHeight {
		return r.lower(level, n)
	}
	index := tlog.StoredHashIndex(level, n)
	if h, ok := r.upper[index]; ok {
		return h, nil
	}
	width := int64(1) << (level % tileHeight)
	hashes, err := r.tileRoots(level/tileHeight, n*width, width)
	if err != nil {
		return [32]byte{}, err
	}
	if len(r.upper) >= maxUpper {
		clear(r.upper)
	}
	h := fold(hashes)
	r.upper[index] = h
	return h, nil
}

// lower returns a hash from within a tile of leaves.
func (r *nodes) lower(level int, n int64) ([32]byte, error) {
	tile := n >> (tileHeight - level)
	if err := r.load(tile); err != nil {
		return [32]byte{}, err
	}
	from := n<<level - tile*tileWidth
	to := from + 1<<level
	if to > int64(len(r.leaves)) {
		return [32]byte{}, divergence(tile*tileWidth+int64(len(r.leaves)), "it is missing")
	}
	return fold(append([][32]byte(nil), r.leaves[from:to]...)), nil
}

// load reads the leaves of a tile, as many as there are.
func (r *nodes) load(tile int64) error {
	if r.tile == tile {
		return nil
	}
	r.tile, r.leaves = -1, r.leaves[:0]
	size, err := countEntries(r.ctx, r.tx)
	if err != nil {
		return err
	}
	from := tile * tileWidth
	err = eachLeaf(r.ctx, r.tx, from, max(from, min(from+tileWidth, size)), func(_, _ int64, raw []byte) error {
		r.leaves = append(r.leaves, leafHash(raw))
		return nil
	})
	if err == nil {
		r.tile = tile
	}
	return err
}

// tileRoots returns count stored roots of a level of tiles, from the n-th on.
func (r *nodes) tileRoots(level int, n, count int64) ([][32]byte, error) {
	rows, err := r.tx.QueryContext(r.ctx, "SELECT root FROM tiles WHERE id >= ? AND id < ? ORDER BY id", tileID(level, n), tileID(level, n+count))
	if err != nil {
		return nil, fmt.Errorf("reading tiles: %w", err)
	}
	defer rows.Close()
	var hashes [][32]byte
	for rows.Next() {
		var root sql.RawBytes
		if err := rows.Scan(&root); err != nil {
			return nil, fmt.Errorf("reading tiles: %w", err)
		}
		if len(root) != 32 {
			return nil, fmt.Errorf("%w: a tile root of %d bytes", ErrTampered, len(root))
		}
		hashes = append(hashes, [32]byte(root))
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("reading tiles: %w", err)
	}
	if int64(len(hashes)) != count {
		return nil, fmt.Errorf("%w: %d of %d tiles are missing at level %d from %d", ErrTampered, count-int64(len(hashes)), count, level, n)
	}
	return hashes, nil
}

// rootAt returns the root over the first size entries.
func (r *nodes) rootAt(size int64) ([32]byte, error) { return tlog.TreeHash(size, r) }

// frontierAt returns the frontier of the first size entries.
func (r *nodes) frontierAt(size int64) (frontier, error) {
	f := frontier{size: size}
	for level := 0; size>>level != 0; level++ {
		if size>>level&1 == 0 {
			continue
		}
		h, err := r.node(level, size>>level-1)
		if err != nil {
			return frontier{}, err
		}
		f.roots[level] = h
	}
	return f, nil
}
