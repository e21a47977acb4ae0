package crash

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/gate"
	"ringfence/internal/ledger"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
	"ringfence/test/rig"
)

// A record is what agents were told, and what the ledger says.
type record struct {
	home *rig.Home

	mu      sync.Mutex
	written []string          // files that an agent was told are written
	denied  map[string]string // tickets of denials that an agent was told, with the path
	shrugs  map[string]int    // why calls came to nothing, as they may while something is down

	read     uint64 // entries read
	sessions map[string]*chain
	decided  map[string]*decision   // by ticket
	writes   map[string][]*decision // by path
}

// A chain is one session as read so far.
type chain struct {
	next    int64
	ended   bool
	request *request // the last one, until it is decided
}

type request struct {
	Tool      string       `json:"tool"`
	Arguments string       `json:"arguments"`
	Effects   []act.Effect `json:"effects"`
}

// A decision is a decision entry with its request and its results.
type decision struct {
	request
	verdict  act.Verdict
	durable  bool
	at       time.Time
	results  int
	orphaned bool
	failed   bool // the result is an error
}

func newRecord(h *rig.Home) *record {
	return &record{
		home: h, denied: map[string]string{}, shrugs: map[string]int{}, sessions: map[string]*chain{},
		decided: map[string]*decision{}, writes: map[string][]*decision{},
	}
}

// answered takes in what an agent was told of a call, and reports whether it was
// what it should be. While something is down a call may come to nothing, for a
// reason that says so; any other answer is an error.
func (r *record) answered(c call, res rig.Result) (ok bool, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	code := act.Code(res.Code)
	switch {
	case !res.IsError && !c.outside:
		r.written = append(r.written, c.path)
		return true, nil
	case res.IsError && c.outside && (code == act.CodePolicy || code == act.CodeTripwire):
		r.denied[res.Ticket] = c.path
		return true, nil
	case res.IsError && (code == act.CodeInternal || code == act.CodeEvidence || code == "unavailable"):
		r.shrugs[res.Code+": "+res.Text]++
		return false, nil
	}
	return false, fmt.Errorf("the answer to %s %s is %+v", c.tool, c.path, res)
}

// check reads what is new in the record and holds it against the world. Last
// says that no agent is at work any more.
func (r *record) check(ctx context.Context, last bool) (err error) {
	// What is there now must be on record when it is read afterwards.
	files, err := filepath.Glob(filepath.Join(r.home.Work, "*"))
	if err != nil {
		return err
	}
	r.mu.Lock()
	written, denied := slices.Clone(r.written), maps.Clone(r.denied)
	r.mu.Unlock()
	e, err := r.home.Connect(ctx)
	if err != nil {
		return err
	}
	defer e.Close()
	if err := r.readAll(ctx, e); err != nil {
		return err
	}
	if err := errors.Join(r.checkFiles(files), r.checkAcks(written, denied)); err != nil {
		return err
	}
	v, err := e.LedgerVerify(ctx)
	if err != nil {
		return err
	}
	if v.Status != "valid" || v.Entries < r.read {
		return fmt.Errorf("the ledger is %s with %d entries, of which %d were read: %v", v.Status, v.Entries, r.read, v.Problems)
	}
	if !last {
		return nil
	}
	return r.checkExports(ctx, e)
}

// readAll reads the entries that are new.
func (r *record) readAll(ctx context.Context, e *api.Client) error {
	q := api.LedgerQuery{}
	if r.read > 0 {
		q.After = r.read - 1
	}
	return e.LedgerEntries(ctx, q, func(raw json.RawMessage) error {
		r.read++
		if err := r.entry(raw); err != nil {
			return fmt.Errorf("%w: %s", err, raw)
		}
		return nil
	})
}

// entry takes in one entry, whose place in its session must be the next.
func (r *record) entry(raw []byte) error {
	var e struct {
		Session string          `json:"session"`
		Seq     int64           `json:"seq"`
		Time    time.Time       `json:"time"`
		Type    string          `json:"type"`
		Body    json.RawMessage `json:"body"`
	}
	if err := json.Unmarshal(raw, &e); err != nil {
		return err
	}
	c := r.sessions[e.Session]
	if c == nil {
		c = &chain{}
		r.sessions[e.Session] = c
	}
	if e.Seq != c.next || c.ended {
		return fmt.Errorf("the session should go on with %d (ended: %v)", c.next, c.ended)
	}
	c.next++
	switch e.Type {
	case gate.EntryRequest:
		c.request = &request{}
		return json.Unmarshal(e.Body, c.request)
	case gate.EntryDecision:
		if c.request == nil {
			return errors.New("a decision without a request before it")
		}
		req := *c.request
		c.request = nil
		return r.decision(fmt.Sprintf("%s/%d", e.Session, e.Seq), e.Time, req, e.Body)
	case gate.EntryResult:
		return r.result(e.Body)
	case ledger.TypeEnd:
		c.ended = true
	}
	return nil
}

func (r *record) decision(ticket string, at time.Time, req request, body []byte) error {
	var b struct {
		Verdict act.Verdict `json:"verdict"`
		Durable bool        `json:"durable"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	d := &decision{request: req, verdict: b.Verdict, durable: b.Durable, at: at}
	r.decided[ticket] = d
	if req.Tool == "filesystem.write_file" && b.Verdict == act.Allow {
		for _, e := range req.Effects {
			r.writes[e.Resource.Text] = append(r.writes[e.Resource.Text], d)
		}
	}
	return nil
}

func (r *record) result(body []byte) error {
	var b struct {
		Ticket string `json:"ticket"`
		Error  string `json:"error"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return err
	}
	d := r.decided[b.Ticket]
	if d == nil || d.verdict != act.Allow {
		return errors.New("the result of what was not allowed")
	}
	if d.results++; d.results > 1 {
		return errors.New("a second result")
	}
	d.failed, d.orphaned = b.Error != "", strings.HasPrefix(b.Error, "orphaned")
	return nil
}

// checkFiles looks for effects without an entry before them.
func (r *record) checkFiles(files []string) error {
	for _, f := range files {
		info, err := os.Lstat(f)
		if errors.Is(err, os.ErrNotExist) {
			continue // it was on its way to its name
		}
		if err != nil {
			return err
		}
		base := filepath.Base(f)
		if strings.HasPrefix(base, ".ringfence-") {
			continue // a server died before it gave the file its name
		}
		text, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		ds := r.writes[f]
		if len(ds) != 1 {
			return fmt.Errorf("%s exists and %d entries allow it", f, len(ds))
		}
		d := ds[0]
		switch {
		case string(text) != content(f) || !strings.Contains(d.Arguments, content(f)):
			return fmt.Errorf("%s holds %q, and %s was allowed", f, text, d.Arguments)
		case !d.durable:
			return fmt.Errorf("%s exists and its entry was not put on disk first", f)
		case d.at.After(info.ModTime().Add(coarse)):
			return fmt.Errorf("%s is of %s and was allowed at %s", f, info.ModTime(), d.at)
		}
	}
	stray, err := filepath.Glob(filepath.Join(r.home.Person, "f-*"))
	if err != nil || len(stray) > 0 {
		return fmt.Errorf("these files were denied and exist: %v (%w)", stray, err)
	}
	return nil
}

// checkAcks looks for answers without entries.
func (r *record) checkAcks(written []string, denied map[string]string) error {
	for _, f := range written {
		if ds := r.writes[f]; len(ds) != 1 || ds[0].results != 1 || ds[0].failed {
			return fmt.Errorf("an agent was told that %s is written, and the record has %+v", f, ds)
		}
		if _, err := os.Lstat(f); err != nil {
			return fmt.Errorf("an agent was told that it is written: %w", err)
		}
	}
	for ticket, path := range denied {
		d := r.decided[ticket]
		if d == nil || d.verdict != act.Deny || !strings.Contains(d.Arguments, path) {
			return fmt.Errorf("an agent was told that %s denies %s, and the record has %+v", ticket, path, d)
		}
	}
	return nil
}

// checkExports verifies every session alone.
func (r *record) checkExports(ctx context.Context, e *api.Client) error {
	key, err := keychain.LoadOrCreate(paths.LedgerKey(r.home.Own))
	if err != nil {
		return err
	}
	all, err := e.LedgerSessions(ctx)
	if err != nil {
		return err
	}
	for _, s := range all {
		var export bytes.Buffer
		if err := e.LedgerExport(ctx, s.ID, &export); err != nil {
			return fmt.Errorf("exporting %s: %w", s.ID, err)
		}
		v, err := ledger.VerifyExport(&export, []ed25519.PublicKey{key.Public().(ed25519.PublicKey)})
		if err != nil {
			return err
		}
		// One that was open when they were listed may have ended by now.
		if v.Status != ledger.Valid && (!s.Open || v.Status != ledger.Incomplete) {
			return fmt.Errorf("the export of %s (ended: %v) is %v: %s", s.ID, !s.Open, v.Status, v.Reason)
		}
	}
	return nil
}

// offline verifies what is on disk, with no engine, and looks for calls that
// nothing is known of.
func (r *record) offline(ctx context.Context) error {
	key, err := keychain.LoadOrCreate(paths.LedgerKey(r.home.Own))
	if err != nil {
		return err
	}
	v, err := ledger.VerifyDir(ctx, paths.LedgerDir(r.home.Own), []ed25519.PublicKey{key.Public().(ed25519.PublicKey)})
	if err != nil {
		return err
	}
	if v.Status != ledger.Valid {
		return fmt.Errorf("the ledger on disk is %v: %s", v.Status, v.Reason)
	}
	e, err := r.home.Connect(ctx) // the next engine settles what the last left open
	if err != nil {
		return err
	}
	defer e.Close()
	if err := r.readAll(ctx, e); err != nil {
		return err
	}
	for ticket, d := range r.decided {
		if d.verdict == act.Allow && d.results != 1 {
			return fmt.Errorf("%s was allowed and has %d results: %+v", ticket, d.results, d)
		}
	}
	return nil
}

func (r *record) summary() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	ended, allowed, orphaned := 0, 0, 0
	for _, c := range r.sessions {
		if c.ended {
			ended++
		}
	}
	for _, d := range r.decided {
		if d.verdict == act.Allow {
			allowed++
		}
		if d.orphaned {
			orphaned++
		}
	}
	return fmt.Sprintf("%d entries in %d sessions, %d of them ended; %d calls decided, %d allowed, %d orphaned; %d files and %d denials acknowledged, calls that came to nothing: %v",
		r.read, len(r.sessions), ended, len(r.decided), allowed, orphaned, len(r.written), len(r.denied), r.shrugs)
}
