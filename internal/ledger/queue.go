package ledger

import (
	"runtime"
	"slices"
	"sync"
)

// A queue is where appends wait, first to be written and then, if durable, for
// a flush. No goroutine serves it: one of those who wait in a line has its turn
// and works for all of them, and gives the turn to another when it is done. So
// an append that is alone wakes nobody.
//
// Whoever is in a line is either taken in a turn or withdraws, and a line in
// which somebody waits always has somebody whose turn it is.
type queue struct {
	mu      sync.Mutex
	write   line
	flush   line
	crowded bool // the last turn to write had more than one request
	closed  bool
	turns   sync.WaitGroup // that are in somebody's hands
}

type line struct {
	waiting []*request // the first of them may have the turn
	turn    turn       // which this line gives
	given   bool       // somebody has it
}

// A turn is what a caller is told to do while it waits.
type turn int

const (
	noTurn turn = iota
	toWrite
	toFlush
)

// A notice goes to a caller that waits: it has a turn, or else its answer.
type notice struct {
	turn turn
	err  error
}

func newQueue() *queue { return &queue{write: line{turn: toWrite}, flush: line{turn: toFlush}} }

// enter puts a request into the line to be written.
func (q *queue) enter(r *request) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return ErrClosed
	}
	q.join(&q.write, r)
	return nil
}

// join puts a request at the end of a line; it has its turn at once if nobody
// else has. q.mu is held, as it is for next.
func (q *queue) join(n *line, r *request) {
	n.waiting = append(n.waiting, r)
	if !n.given {
		n.given = true
		q.turns.Add(1)
		q.next(n)
	}
}

// next gives the turn to the first of a line, if there is one.
func (q *queue) next(n *line) {
	if len(n.waiting) == 0 {
		n.waiting, n.given = nil, false // the old array would keep what was in the line
		q.turns.Done()
		return
	}
	r := n.waiting[0]
	r.turn = n.turn
	r.notices <- notice{turn: n.turn}
}

// takeWrites takes out of the line what is to be written in this turn, up to
// about one transaction.
func (q *queue) takeWrites() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	count, entries, size := 0, 0, 0
	for ; count < len(q.write.waiting) && entries < MaxBatch && size < groupBytes; count++ {
		r := q.write.waiting[count]
		entries += len(r.entries)
		size += r.size()
	}
	q.crowded = count > 1
	return q.write.take(count)
}

// takeFlushes takes out of the line all that wait for a flush.
func (q *queue) takeFlushes() []*request {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.flush.take(len(q.flush.waiting))
}

func (n *line) take(count int) []*request {
	group := n.waiting[:count:count]
	n.waiting = n.waiting[count:]
	return group
}

// written ends a turn to write. result says what became of a request. The next
// turn begins before the answers are given: there may be many.
func (q *queue) written(group []*request, result func(*request) error) {
	q.mu.Lock()
	var done []*request
	for _, r := range group {
		if r.durable && !r.left && result(r) == nil {
			q.join(&q.flush, r)
		} else {
			done = append(done, r)
		}
	}
	q.next(&q.write)
	q.mu.Unlock()
	for _, r := range done {
		r.notices <- notice{err: result(r)}
	}
}

// flushed ends a turn to flush, as written does.
func (q *queue) flushed(group []*request, err error) {
	q.mu.Lock()
	q.next(&q.flush)
	q.mu.Unlock()
	for _, r := range group {
		r.notices <- notice{err: err}
	}
}

// withdraw says that nobody waits for r any more. What has not been taken yet is
// then not going to be; a turn goes to another.
func (q *queue) withdraw(r *request) {
	q.mu.Lock()
	defer q.mu.Unlock()
	r.left = true
	for _, n := range []*line{&q.write, &q.flush} {
		i := slices.Index(n.waiting, r)
		if i < 0 {
			continue
		}
		n.waiting = slices.Delete(n.waiting, i, i+1)
		if r.turn == n.turn {
			q.next(n)
		}
	}
}

// close refuses whatever comes, and waits for what has come.
func (q *queue) close() error {
	q.mu.Lock()
	again := q.closed
	q.closed = true
	q.mu.Unlock()
	if again {
		return ErrClosed
	}
	q.turns.Wait()
	return nil
}

// gather lets callers that were answered together run once before a turn takes
// what waits, so that their next requests share it. A caller that is alone is
// not held up.
func (q *queue) gather() {
	q.mu.Lock()
	busy := q.crowded || len(q.write.waiting) > 1
	q.mu.Unlock()
	if busy {
		runtime.Gosched()
	}
}
