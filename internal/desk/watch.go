package desk

import (
	"context"
	"fmt"
)

// An EventKind says what happened to a question.
type EventKind string

// The events in the life of a question. The last four end it.
const (
	Asked     EventKind = "asked"
	Changed   EventKind = "changed"   // a call joined or left, or a vote was counted
	Approved  EventKind = "approved"  // every remaining call has its quorums
	Refused   EventKind = "refused"   // a person said no
	Expired   EventKind = "expired"   // nobody answered in time
	Withdrawn EventKind = "withdrawn" // whoever asked waits no longer
)

// An Event is one change at the desk, with the question as it was then.
type Event struct {
	Kind     EventKind `json:"kind"`
	Question Question  `json:"question"`
}

type watcher struct{ events chan Event }

// Watch returns a channel that first carries an Asked event for every open
// question and then every change, in order. It is closed when ctx ends, and
// when the receiver falls 256 events behind: it then has missed some, and must
// watch anew. At most 64 watch at once; one more is ErrCrowded.
func (d *Desk) Watch(ctx context.Context) (<-chan Event, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.watchers) >= maxWatchers {
		return nil, fmt.Errorf("watching the desk: %w: %d watch already", ErrCrowded, len(d.watchers))
	}
	w := &watcher{events: make(chan Event, len(d.open)+watcherQueue)}
	for _, q := range d.list() {
		w.events <- Event{Kind: Asked, Question: q}
	}
	d.watchers[w] = struct{}{}
	context.AfterFunc(ctx, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.drop(w)
	})
	return w.events, nil
}

// emit tells every watcher; one that cannot take the event is dropped, so that
// nobody who watches can hold up a decision. The lock is held.
func (d *Desk) emit(k EventKind, e *entry) {
	if len(d.watchers) == 0 {
		return
	}
	ev := Event{Kind: k, Question: e.shown()}
	for w := range d.watchers {
		select {
		case w.events <- ev:
		default:
			d.drop(w)
		}
	}
}

// drop ends a watcher once. The lock is held.
func (d *Desk) drop(w *watcher) {
	if _, ok := d.watchers[w]; ok {
		delete(d.watchers, w)
		close(w.events)
	}
}
