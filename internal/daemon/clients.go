package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
	"ringfence/internal/session"
	"ringfence/internal/sys/proc"
)

// clientGone is why a session ends whose client did not come back within the grace.
const clientGone = "its client was lost, and did not come back"

// clientEnded is why one ends whose client cannot come back.
func clientEnded(pid int) string {
	return fmt.Sprintf("its client was lost: process %d ended without closing it", pid)
}

// client is the process that owns r; 0 if it is not known.
func (r *run) client() int { return r.asker.Load().who.PID }

// awaitLoss waits until a session that has lost its client, the process pid, is over,
// and returns why; "" if ctx ended or the engine stops.
func (e *Engine) awaitLoss(ctx context.Context, pid int) string {
	timer := time.NewTimer(e.o.Grace)
	defer timer.Stop()
	var watching sync.WaitGroup
	defer watching.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan struct{})
	watching.Go(func() {
		// Where this cannot be known, the grace decides alone.
		if proc.AwaitEnd(ctx, pid) == nil {
			close(ended)
		}
	})
	select {
	case <-ctx.Done():
	case <-e.done:
	case <-ended:
		return clientEnded(pid)
	case <-timer.C:
		return clientGone
	}
	return ""
}

// listOpen returns the sessions that are open, oldest first.
func (e *Engine) listOpen() []api.OpenSession {
	e.mu.Lock()
	defer e.mu.Unlock()
	var all []api.OpenSession
	for _, w := range e.waiting {
		all = append(all, w.info)
	}
	for _, r := range e.runs {
		all = append(all, api.OpenSession{
			ID: r.file.ID, Principal: r.file.Principal, Verb: r.verb, PID: r.file.PID, Since: r.file.Started, Lost: r.owner == 0,
		})
	}
	slices.SortFunc(all, func(a, b api.OpenSession) int {
		if c := a.Since.Compare(b.Since); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	return all
}

// infoOf is what people are told of an adopted session.
func infoOf(f session.File) api.OpenSession {
	var r api.OpenRequest
	_ = json.Unmarshal(f.Open, &r) // what it does not say is not told
	return api.OpenSession{ID: f.ID, Principal: f.Principal, Verb: r.Verb, PID: f.PID, Since: f.Started, Lost: true}
}

// maxNamed is how many sessions a refusal names.
const maxNamed = 16

// inTheWay says which sessions keep the engine from being stopped.
func inTheWay(open []api.OpenSession) string {
	var b strings.Builder
	b.WriteString(display.Count(len(open), "session is", "sessions are") + " open and would be cut off")
	for i, s := range open {
		if i == maxNamed {
			fmt.Fprintf(&b, "\n  and %d more", len(open)-i)
			break
		}
		b.WriteString("\n  " + s.String())
	}
	b.WriteString("\nend them first, or use --force: what is under way is then on record as orphaned, and clients can go on with the next engine")
	return b.String()
}
