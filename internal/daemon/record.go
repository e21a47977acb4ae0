package daemon

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
)

// EntryTypes returns every type that an entry of this program can have, sorted.
func EntryTypes() []string {
	all := []string{
		entryStart, entryEnd, entryAttempt, entryRevoked, entryBox, entryPin, entryAdmit, entryReview, entryGrips, entryClause,
		gate.EntryRequest, gate.EntryQuestion, gate.EntryAnswer, gate.EntryDecision, gate.EntryResult,
		ledger.TypeOpen, ledger.TypeRestart, ledger.TypeClose, ledger.TypeClock, ledger.TypeKey,
	}
	slices.Sort(all)
	return all
}

// LedgerEntries sends entries as they are stored.
func (e *Engine) LedgerEntries(ctx context.Context, _ api.Caller, q api.LedgerQuery, send func(json.RawMessage) error) error {
	lq := ledger.Query{Session: q.Session}
	if q.Kind != "" {
		lq.Types = []string{q.Kind}
	}
	if q.After > 0 {
		lq.FromIndex = int64(q.After) + 1
	}
	var tail []json.RawMessage
	next, over := lq.FromIndex, false
	err := e.ledger.Entries(ctx, lq, func(r ledger.Record) error {
		next, over = r.Index+1, over || q.Session != "" && r.Type == entryEnd
		if q.Tail <= 0 {
			return send(r.Raw)
		}
		if len(tail) == q.Tail {
			tail = tail[1:]
		}
		tail = append(tail, slices.Clone(r.Raw))
		return nil
	})
	if errors.Is(err, ledger.ErrNotFound) {
		err = api.Errorf(api.CodeNotFound, "the record has no session %q", q.Session)
	}
	for _, raw := range tail {
		if err == nil {
			err = send(raw)
		}
	}
	if err != nil || !q.Follow || over {
		return err
	}
	return e.follow(ctx, lq, next, send)
}

// followEvery is how often the record is looked at for who follows it.
const followEvery = 300 * time.Millisecond

// follow sends what is recorded from index next on, until ctx or the session ends.
func (e *Engine) follow(ctx context.Context, q ledger.Query, next int64, send func(json.RawMessage) error) error {
	tick := time.NewTicker(followEvery)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
		q.FromIndex = next
		err := e.ledger.Entries(ctx, q, func(r ledger.Record) error {
			next = r.Index + 1
			over = over || q.Session != "" && r.Type == entryEnd
			return send(r.Raw)
		})
		if err != nil && !errors.Is(err, ledger.ErrNotFound) {
			return err
		}
	}
	return nil
}

// LedgerExport writes the export of one session.
func (e *Engine) LedgerExport(ctx context.Context, _ api.Caller, id string, w io.Writer) error {
	if _, err := e.ledger.Checkpoint(ctx); err != nil {
		return evidence(err)
	}
	err := e.ledger.Export(ctx, id, w)
	if errors.Is(err, ledger.ErrNotFound) {
		return api.Errorf(api.CodeNotFound, "the record has no session %q", id)
	}
	return err
}

// LedgerVerify verifies the whole record.
func (e *Engine) LedgerVerify(ctx context.Context, _ api.Caller) (api.Verification, error) {
	v, err := e.ledger.Verify(ctx)
	if err != nil {
		return api.Verification{}, evidence(err)
	}
	return verification(v), nil
}

func verification(v ledger.Verification) api.Verification {
	out := api.Verification{
		Status: v.Status.String(), Entries: uint64(v.Entries), Sessions: int(v.Sessions), Key: v.Key,
	}
	if v.Reason != "" {
		out.Problems = []string{v.Reason}
	}
	return out
}

// LedgerSessions returns the sessions of the record.
func (e *Engine) LedgerSessions(ctx context.Context, _ api.Caller) ([]api.SessionInfo, error) {
	chains, err := e.ledger.Sessions(ctx)
	if err != nil {
		return nil, err
	}
	starts := map[string]startEntry{}
	err = e.ledger.Entries(ctx, ledger.Query{Types: []string{entryStart}}, func(r ledger.Record) error {
		var b startEntry
		if err := json.Unmarshal(r.Body, &b); err != nil {
			return fmt.Errorf("reading entry %d: %w", r.Index, err)
		}
		starts[r.Session] = b
		return nil
	})
	var out []api.SessionInfo
	for _, c := range chains {
		start, ok := starts[c.Session]
		if !ok {
			continue // a chain of the engine or the ledger
		}
		info := api.SessionInfo{
			ID: c.Session, Principal: start.Principal, Workspace: start.Workspace, PolicyHash: start.Policy,
			Started: c.Started, Entries: uint64(c.Entries), Open: !c.Ended,
		}
		if c.Ended {
			info.Ended = c.Used
		}
		out = append(out, info)
	}
	return out, err
}

// Status says how the engine is.
func (e *Engine) Status(ctx context.Context, _ api.Caller) (api.Status, error) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	open := e.listOpen()
	head, err := e.ledger.Checkpoint(ctx)
	if err != nil {
		return api.Status{}, evidence(err)
	}
	return api.Status{
		Program: e.o.Program, PID: os.Getpid(), Home: e.o.Home, Started: e.started,
		Connections: e.server.Connections(), Sessions: len(open), Open: open, Questions: len(e.desk.List()),
		Entries: uint64(head.Size), Root: hex.EncodeToString(head.Root[:]), MemoryBytes: m.Sys - m.HeapReleased - heapRoom,
	}, nil
}

// Stop begins to stop the engine.
func (e *Engine) Stop(_ context.Context, _ api.Caller, force bool) error {
	if open := e.listOpen(); len(open) > 0 && !force {
		return api.Errorf(api.CodeRefused, "%s", inTheWay(open))
	}
	e.stop(errStopped)
	return nil
}

// ToolsList returns what is known of tool definitions.
func (e *Engine) ToolsList(_ context.Context, _ api.Caller, q api.ToolQuery) ([]api.ToolPin, error) {
	return e.pins.list(q, false), nil
}

// ToolsReview is ToolsList with definitions and differences.
func (e *Engine) ToolsReview(_ context.Context, _ api.Caller, q api.ToolQuery) ([]api.ToolPin, error) {
	return e.pins.list(q, true), nil
}

// ToolsPin settles one definition, after recording that a person did.
func (e *Engine) ToolsPin(ctx context.Context, c api.Caller, r api.PinRequest) (api.ToolPin, error) {
	name := r.Server
	if r.Tool != "" {
		name += "." + r.Tool
	}
	if err := e.pins.waiting(name, r.Hash, r.Approve); err != nil {
		return api.ToolPin{}, api.Errorf(api.CodeNotFound, "%v", err)
	}
	if e.waits(identity(c.Peer)) {
		return api.ToolPin{}, api.Errorf(api.CodeRefused, "%v", desk.ErrSelf)
	}
	err := e.append(ctx, engineChain, entryPin, map[string]any{
		"tool": name, "hash": r.Hash, "approved": r.Approve,
		"by": person(identity(c.Peer), r.Approve),
	})
	if err != nil {
		return api.ToolPin{}, api.Errorf(api.CodeUnavailable, "recording the review: %v", err)
	}
	if err := e.pins.review(name, r.Hash, r.Approve); err != nil {
		return api.ToolPin{}, err
	}
	e.repin(name, r.Hash, r.Approve)
	list := e.pins.list(api.ToolQuery{Server: r.Server, Tool: r.Tool}, false)
	return list[0], nil
}

// engineChain is the chain of what no session did; entryPin is a review.
const (
	engineChain = "engine"
	entryPin    = "pin"
)

// waits reports whether who is in the POSIX session or on the terminal of a
// client with an open session, so that an agent cannot review its own tools.
func (e *Engine) waits(who desk.Identity) bool {
	for _, r := range e.all() {
		a := r.asker.Load()
		if a.who.PID != 0 && a.who.PID == who.PID || who.Known && a.who.Known && (who.SID == a.who.SID || who.TTY != "" && who.TTY == a.who.TTY) {
			return true
		}
	}
	return false
}

// repin tells open sessions of a review.
func (e *Engine) repin(name, hash string, approve bool) {
	server, tool, _ := strings.Cut(name, ".")
	status := gate.PinRejected
	if approve {
		status = gate.PinApproved
	}
	for _, r := range e.all() {
		if s := r.gate.Servers[server]; s != nil {
			s.Repin(tool, hash, status)
		}
	}
}
