package ledger

import (
	"bytes"
	"context"
	"fmt"

	"golang.org/x/mod/sumdb/note"

	"ringfence/internal/act/strictjson"
)

const (
	groupBytes = 8 << 20  // leaves of one transaction, if they are not one batch
	batchBytes = 16 << 20 // bodies of one Append
)

// A request is one Append on its way through the writer and the syncer.
type request struct {
	entries []Entry
	durable bool
	own     bool        // from the ledger itself
	key     string      // public key that the first entry puts in force, if any
	signer  note.Signer // and its signer, if it takes the place of another
	refs    []Ref
	done    chan error // gets one value
}

// Append puts entries on record, all of them or none, in this order and next to
// each other in each session. It returns when they have been written (they
// survive the death of the process) or, if durable, when they are on disk,
// together with everything that was appended before. Concurrent calls share
// transactions and flushes.
//
// On error the caller must assume nothing: after [ErrUnwritable], or when ctx
// ended during the wait, the entries may or may not be there. [ErrEnded]
// and errors about the entries themselves mean that nothing was written.
func (l *Ledger) Append(ctx context.Context, durable bool, entries ...Entry) ([]Ref, error) {
	return l.append(ctx, &request{entries: entries, durable: durable})
}

func (l *Ledger) append(ctx context.Context, r *request) (_ []Ref, err error) {
	r.done = make(chan error, 1)
	if r.entries, err = canonical(r.entries, r.own); err != nil {
		return nil, fmt.Errorf("appending: %w", err)
	}
	if err := l.send(ctx, r); err != nil {
		return nil, fmt.Errorf("appending: %w", err)
	}
	select {
	case err = <-r.done:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("appending: %w", err)
	}
	return r.refs, nil
}

func (l *Ledger) send(ctx context.Context, r *request) error {
	l.closing.RLock()
	defer l.closing.RUnlock()
	if l.closed {
		return ErrClosed
	}
	select {
	case l.requests <- r:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// canonical checks entries and returns them with canonical bodies.
func canonical(entries []Entry, own bool) ([]Entry, error) {
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
		if strictjson.IsCanonical(e.Body) {
			e.Body = bytes.Clone(e.Body) // the caller may be gone, and reuse it, before it is written
		} else {
			body, err := strictjson.Canonical(e.Body)
			if err != nil {
				return nil, fmt.Errorf("body of a %q entry: %w", e.Type, err)
			}
			e.Body = body
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
