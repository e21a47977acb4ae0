package ledger

import (
	"context"
	"database/sql"
	"runtime"
	"sync"
)

const (
	chunkRows  = 512
	chunkBytes = 1 << 20 // of leaves, after which a chunk is closed
)

// A chunk is a run of entries on its way from the database through a worker,
// which hashes and decodes them, to the one who checks their order.
type chunk struct {
	first  int64
	sids   []int64
	ends   []int // of each leaf in data
	data   []byte
	leaves []leaf
	hashes [][32]byte
	errs   []error // why a leaf is not valid; its slices are then empty
	ready  chan struct{}
}

func (c *chunk) reset(first int64) {
	*c = chunk{
		first: first, sids: c.sids[:0], ends: c.ends[:0], data: c.data[:0],
		leaves: c.leaves[:0], hashes: c.hashes[:0], errs: c.errs[:0], ready: make(chan struct{}),
	}
}

func (c *chunk) work() {
	start := 0
	for _, end := range c.ends {
		raw := c.data[start:end:end]
		f, err := parseLeaf(raw)
		c.leaves, c.errs, c.hashes = append(c.leaves, f), append(c.errs, err), append(c.hashes, leafHash(raw))
		start = end
	}
	close(c.ready)
}

// eachChecked hashes and decodes the first size entries on all processors and
// calls f for them in order. f gets the error of decoding, and must not keep
// the leaf. An error of f ends it.
func eachChecked(ctx context.Context, tx *sql.Tx, size int64, f func(idx, sid int64, l *leaf, hash [32]byte, parsed error) error) error {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer cancel()

	workers := runtime.GOMAXPROCS(0)
	depth := 2 * workers
	free := make(chan *chunk, depth)
	for range depth {
		free <- new(chunk)
	}
	work, inOrder := make(chan *chunk, depth), make(chan *chunk, depth)
	for range workers {
		running.Go(func() {
			for c := range work {
				c.work()
			}
		})
	}
	var readErr error
	running.Go(func() {
		defer close(inOrder)
		defer close(work)
		readErr = readChunks(ctx, tx, size, free, func(c *chunk) { work <- c; inOrder <- c }) // never more than depth
	})
	for c := range inOrder {
		<-c.ready
		for i := range c.ends {
			if err := f(c.first+int64(i), c.sids[i], &c.leaves[i], c.hashes[i], c.errs[i]); err != nil {
				return err
			}
		}
		free <- c
	}
	return readErr
}

// readChunks fills free chunks with the first size entries and emits them.
func readChunks(ctx context.Context, tx *sql.Tx, size int64, free <-chan *chunk, emit func(*chunk)) error {
	var c *chunk
	err := eachLeaf(ctx, tx, 0, size, func(idx, sid int64, raw []byte) error {
		if c == nil {
			select {
			case c = <-free:
				c.reset(idx)
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		c.data = append(c.data, raw...)
		c.sids, c.ends = append(c.sids, sid), append(c.ends, len(c.data))
		if len(c.ends) == chunkRows || len(c.data) >= chunkBytes {
			emit(c)
			c = nil
		}
		return nil
	})
	if c != nil {
		emit(c)
	}
	return err
}
