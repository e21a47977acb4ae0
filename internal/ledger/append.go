package ledger

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"ringfence/internal/act/strictjson"
)

const (
	groupBytes = 256 << 10 // bodies of one frame, if they are not one batch
	batchBytes = 16 << 20  // bodies of one Append
)

// A request is one Append on its way through the queue.
type request struct {
	entries []Entry
	durable bool
	own     bool        // from the ledger itself
	key     string      // public key that the first entry puts in force, if any
	signer  note.Signer // and its signer, if it takes the place of another
	refs    []Ref
	notices chan notice // room for one: it gets no other before the first is read

	// Guarded by the mutex of the queue.
	turn turn // the last it was given
	left bool // nobody waits for it
}

func (r *request) size() (n int) {
	for _, e := range r.entries {
		n += len(e.Body)
	}
	return n
}

// Append puts entries on record, all of them or none, in this order and next to
// each other in each session. It returns when they have been written (they
// survive the death of the process) or, if durable, when they are on disk,
// together with everything that was appended before. Concurrent calls share
// writes and flushes.
//
// ctx bounds the wait for others; what is being written or flushed, maybe by this
// very call, is not interrupted.
//
// On error the caller must assume nothing: after [ErrUnwritable], or when ctx
// ended during the wait, the entries may or may not be there. [ErrEnded]
// and errors about the entries themselves mean that nothing was written.
func (l *Ledger) Append(ctx context.Context, durable bool, entries ...Entry) ([]Ref, error) {
	return l.append(ctx, &request{entries: entries, durable: durable})
}

func (l *Ledger) append(ctx context.Context, r *request) (_ []Ref, err error) {
	if r.entries, err = canonical(r.entries, r.own, ctx.Done() != nil); err == nil {
		err = l.put(ctx, r)
	}
	if err != nil {
		return nil, fmt.Errorf("appending: %w", err)
	}
	return r.refs, nil
}

// put sends a request through the queue, and does the work of others when it is
// its turn.
func (l *Ledger) put(ctx context.Context, r *request) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	r.notices = make(chan notice, 1)
	if err := l.queue.enter(r); err != nil {
		return err
	}
	for {
		select {
		case n := <-r.notices:
			switch n.turn {
			case toWrite:
				l.write()
			case toFlush:
				l.flush()
			default:
				return n.err
			}
		case <-ctx.Done():
			l.queue.withdraw(r)
			return ctx.Err()
		}
	}
}

// canonical checks entries and returns them with canonical bodies, which are the
// caller's own unless it may be gone, and reuse them, before they are written.
func canonical(entries []Entry, own, mayLeave bool) ([]Entry, error) {
	if len(entries) == 0 || len(entries) > MaxBatch {
		return nil, fmt.Errorf("%d entries, want 1 to %d", len(entries), MaxBatch)
	}
	out := make([]Entry, len(entries))
	total := 0
	for i, e := range entries {
		if err := checkNames([]byte(e.Session), []byte(e.Type)); err != nil {
			return nil, err
		}
		if reserved(e.Type) && !own {
			return nil, fmt.Errorf("type %q is for the ledger itself", e.Type)
		}
		if e.Type == TypeEnd && e.Session == SystemSession {
			return nil, fmt.Errorf("session %q never ends", SystemSession)
		}
		if !strictjson.IsCanonical(e.Body) {
			body, err := strictjson.Canonical(e.Body)
			if err != nil {
				return nil, fmt.Errorf("body of a %q entry: %w", e.Type, err)
			}
			e.Body = body
		} else if mayLeave {
			e.Body = bytes.Clone(e.Body)
		}
		if err := checkBody(e.Body); err != nil {
			return nil, fmt.Errorf("%q entry: %w", e.Type, err)
		}
		if total += len(e.Body); total > batchBytes {
			return nil, fmt.Errorf("bodies of more than %d bytes together", batchBytes)
		}
		out[i] = e
	}
	return out, nil
}

func reserved(typ string) bool {
	switch typ {
	case TypeOpen, TypeRestart, TypeClose, TypeClock, TypeKey:
		return true
	}
	return false
}
