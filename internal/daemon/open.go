package daemon

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/display"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/gate"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/inspect"
	"ringfence/internal/ledger"
	"ringfence/internal/policy"
	"ringfence/internal/session"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// The types of entry that the engine writes about sessions.
const (
	entryStart = "session-start"
	entryEnd   = ledger.TypeEnd
)

var (
	verbForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z][a-z-]{0,31}$`)
	})
	principalForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}/[a-z0-9][a-z0-9._-]{0,63}$`)
	})
	serverForm = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)
	})
)

// startEntry is what the record says of a session before anything happens in it.
type startEntry struct {
	Principal    string        `json:"principal"`
	Verb         string        `json:"verb,omitempty"`
	Workspace    string        `json:"workspace"`
	Home         string        `json:"home"`
	Program      string        `json:"program"`
	Policy       string        `json:"policy"`       // hash of all that decides
	Constitution string        `json:"constitution"` // hash of the English
	Source       string        `json:"source"`       // where the policy came from
	Layers       []string      `json:"layers"`
	Ask          string        `json:"ask"`
	Servers      []serverEntry `json:"servers,omitempty"`
	Reads        []string      `json:"reads,omitempty"`  // hosts that all connections are opened to
	Budget       *act.Budget   `json:"budget,omitempty"` // of models, as the session narrows it
	resumed
	Box    json.RawMessage `json:"box"` // as the launcher reported; "none"
	Client clientEntry     `json:"client"`
	Notes  []string        `json:"notes,omitempty"`
}

type serverEntry struct {
	Name        string          `json:"name"`
	Argv        []string        `json:"argv"`
	Dir         string          `json:"dir,omitempty"`
	Annotations string          `json:"annotations,omitempty"`
	Program     string          `json:"program,omitempty"` // hash of what its program is known by
	Box         json.RawMessage `json:"box"`
	Hosts       []string        `json:"hosts,omitempty"` // that what its box sends may go to
}

type clientEntry struct {
	PID int    `json:"pid"`
	UID uint32 `json:"uid"`
	SID int    `json:"sid,omitempty"`
	TTY string `json:"tty,omitempty"`
	Exe string `json:"exe,omitempty"`
}

// OpenSession opens a session for c. It is on record before it exists.
func (e *Engine) OpenSession(ctx context.Context, c api.Caller, r api.OpenRequest) (api.Opened, error) {
	if err := e.admit(); err != nil {
		return api.Opened{}, err
	}
	defer e.admitted()
	if err := e.lists.check(r.Workspace, r.Lists, r.Sums); err != nil {
		return api.Opened{}, api.Errorf(api.CodeRefused, "%v", err)
	}
	blocked, err := e.programs(ctx, r.Servers)
	if err != nil {
		return api.Opened{}, err
	}
	id, token := session.NewID(), session.NewToken()
	made, start, err := e.build(ctx, id, c, r)
	if err != nil {
		return api.Opened{}, err
	}
	// The first entry that an effect waits for takes this one to the disk with it.
	if err := e.write(ctx, false, id, entryStart, start); err != nil {
		return api.Opened{}, api.Errorf(api.CodeUnavailable, "recording the start of the session: %v", err)
	}
	raw, err := json.Marshal(r)
	if err != nil {
		return api.Opened{}, fmt.Errorf("keeping the session: %w", err)
	}
	made.file = session.File{
		ID: id, Principal: r.Principal, Workspace: made.gate.Session.Workspace, Home: e.user, UID: c.Peer.UID, PID: made.client(),
		TokenHash: session.HashToken(token), Started: e.o.Now().UTC(), Open: raw,
	}
	if err := made.file.Save(paths.Sessions(e.o.Home)); err != nil {
		ended := e.append(ctx, id, entryEnd, map[string]any{"why": "it could not be kept"})
		return api.Opened{}, errors.Join(evidence(err), ended)
	}
	made.owner = c.Conn
	e.mu.Lock()
	e.runs[id] = made
	e.note()
	e.mu.Unlock()
	opened := e.opened(made, token)
	opened.Blocked = blocked
	return opened, nil
}

// admit takes a place for one more session, or says what to do for one. admitted
// gives it back, when the session has its own or does not come to be.
func (e *Engine) admit() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	open, lost := e.countSessions()
	if open+e.opening < e.o.Sessions {
		e.opening++
		return nil
	}
	msg := display.Count(open+e.opening, "session is", "sessions are") + " open, and no more can be: end agents that are not needed any more; `ringfence ledger sessions` lists what is open"
	if lost > 0 {
		msg += fmt.Sprintf(", and %d of those have lost their agent and end by themselves within %s", lost, e.o.Grace)
	}
	return api.Errorf(api.CodeBusy, "%s", msg)
}

func (e *Engine) admitted() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opening--
}

func (e *Engine) opened(r *run, token string) api.Opened {
	return api.Opened{
		Session: r.file.ID, Token: token, Principal: r.file.Principal, PolicyHash: r.gate.Policy.Hash(), Notes: r.notes,
		Held: e.lists.known(), Ports: r.ports,
	}
}

// build makes a run out of a request, and what the record will say of it.
func (e *Engine) build(ctx context.Context, id string, c api.Caller, r api.OpenRequest) (*run, startEntry, error) {
	workspace, err := checkOpen(r)
	if err != nil {
		return nil, startEntry{}, err
	}
	if err := e.lists.add(r.Lists); err != nil {
		return nil, startEntry{}, evidence(err)
	}
	in, err := e.compiled.load(policySource{home: e.o.Home, user: e.user, layers: e.conf.Policies}, r.PolicyDir, workspace)
	if err != nil {
		return nil, startEntry{}, api.Errorf(api.CodeBadRequest, "loading the policy: %v", err)
	}
	servers, entries, notes, err := e.servers(r.Servers, in.annotations, workspace)
	if err != nil {
		return nil, startEntry{}, err
	}
	monitors, err := e.monitor(ctx, in.policy)
	if err != nil {
		return nil, startEntry{}, err
	}
	self, err := os.Executable()
	if err != nil {
		return nil, startEntry{}, fmt.Errorf("finding our own program: %w", err)
	}
	notes = slices.Concat(in.notes, notes)
	if err := e.secrets.ready(); err != nil {
		notes = append(notes, fmt.Sprintf("no secrets are lent: %v", err))
	}
	made := &run{notes: notes, ports: in.policy.Ports(), verb: r.Verb, gate: &gate.Run{
		Session: &session.Session{ID: id, Principal: r.Principal, Workspace: workspace, Home: e.user},
		Policy:  in.policy, Servers: servers, Monitors: monitors, Box: boxName(r.Box),
		View: resolve.View{Workspace: workspace, Home: e.user, OwnState: ownState(e.o.Home, r.PolicyDir, self), Path: searchPath(workspace), Later: realPaths(e.lists.known())},
		Ask: gate.Asking{
			Never: r.Ask != api.AskDesk || e.conf.AskNever, Wait: time.Duration(r.AskSeconds) * time.Second,
		},
	}}
	made.gate.Lend = lender{e.secrets, id}
	if made.gate.Purse, err = e.purseOf(ctx, r.Principal, r.Budget, r.Resumes); err != nil {
		return nil, startEntry{}, evidence(err)
	}
	made.connected.always = r.Reads
	made.asker.Store(&asker{identity(c.Peer), r.OwnTerminal})
	made.gate.Ask.Asker = func() any { return *made.asker.Load() }
	start := startEntry{
		Principal: r.Principal, Verb: r.Verb, Workspace: workspace, Home: e.user, Program: e.o.Program,
		Policy: in.policy.Hash(), Constitution: in.constitution, Source: in.source, Layers: in.layers,
		Ask: r.Ask, Servers: entries, Reads: r.Reads, Budget: r.Budget, Box: boxReport(r.Box), Notes: notes,
		Client: clientEntry{PID: c.Peer.PID, UID: c.Peer.UID, SID: c.Peer.SID, TTY: c.Peer.TTY, Exe: c.Peer.Exe},
	}
	err = e.resumed(ctx, made, &start, r.Resumes)
	return made, start, err
}

// checkOpen holds a request against what a client may ask for, and returns the
// real path of the workspace.
func checkOpen(r api.OpenRequest) (string, error) {
	if !principalForm().MatchString(r.Principal) {
		return "", api.Errorf(api.CodeBadRequest, "%q is no principal: it is persona/agent, in lower case", r.Principal)
	}
	if r.Verb != "" && !verbForm().MatchString(r.Verb) {
		return "", api.Errorf(api.CodeBadRequest, "%q is no verb: it has small letters", r.Verb)
	}
	if r.Ask != api.AskDesk && r.Ask != api.AskNever && r.Ask != "" {
		return "", api.Errorf(api.CodeBadRequest, "ask is desk or never, not %q", r.Ask)
	}
	if len(r.Lists) > maxNewLists || slices.ContainsFunc(r.Lists, func(l string) bool { return !filepath.IsAbs(l) || len(l) > maxListPath }) {
		return "", api.Errorf(api.CodeBadRequest, "lists of servers are at most %d absolute paths", maxNewLists)
	}
	if len(r.Reads) > maxReads {
		return "", api.Errorf(api.CodeBadRequest, "a session reads all connections to at most %d hosts", maxReads)
	}
	if !filepath.IsAbs(r.Workspace) {
		return "", api.Errorf(api.CodeBadRequest, "the workspace %q is not an absolute path", r.Workspace)
	}
	workspace, err := filepath.EvalSymlinks(r.Workspace)
	if err != nil {
		return "", api.Errorf(api.CodeBadRequest, "finding the workspace: %v", err)
	}
	if info, err := os.Stat(workspace); err != nil || !info.IsDir() {
		return "", api.Errorf(api.CodeBadRequest, "the workspace %s is not a directory", workspace)
	}
	return workspace, nil
}

// servers finds the annotation of each server, and says where there is none.
func (e *Engine) servers(infos []api.ServerInfo, known map[string]*policy.Annotation, workspace string) (map[string]*gate.Server, []serverEntry, []string, error) {
	servers := map[string]*gate.Server{}
	var entries []serverEntry
	var notes []string
	for _, in := range infos {
		if !serverForm().MatchString(in.Name) {
			return nil, nil, nil, api.Errorf(api.CodeBadRequest, "%q is no name for a server: use letters, digits, - and _", in.Name)
		}
		if servers[in.Name] != nil {
			return nil, nil, nil, api.Errorf(api.CodeBadRequest, "two servers are named %s", in.Name)
		}
		a, err := annotationOf(in, known)
		if err != nil {
			return nil, nil, nil, err
		}
		dir := in.Dir
		if dir == "" {
			dir = workspace
		}
		s := &gate.Server{Name: in.Name, Dir: dir, Annotation: a, Pin: launchHash(in), Boxes: in.Boxes, Changes: in.Changes}
		if s.Hosts, err = sitesOf(in); err != nil {
			return nil, nil, nil, err
		}
		entry := serverEntry{Name: in.Name, Argv: withoutSecrets(in.Argv), Dir: dir, Box: boxReport(in.Report), Hosts: in.Hosts}
		if len(in.Program) > 0 {
			entry.Program = programOf(in.Program).Hash
		}
		if a == nil {
			notes = append(notes, fmt.Sprintf("nothing says what the tools of server %s do, so all of them are denied; draft it with `ringfence annotate-tools --servers FILE -w %s %s`", in.Name, workspace, in.Name))
		} else {
			entry.Annotations = a.Name
		}
		servers[in.Name] = s
		entries = append(entries, entry)
	}
	return servers, entries, notes, nil
}

// withoutSecrets is argv as the record may hold it: credentials that a person
// wrote into it, known by their shape, are redacted.
func withoutSecrets(argv []string) []string {
	var in inspect.Inspector
	out := make([]string, len(argv))
	for i, a := range argv {
		out[i] = string(in.Redact([]byte(a), in.Scan([]byte(a))))
	}
	return out
}

// ResumeSession gives the session to the connection of c.
func (e *Engine) ResumeSession(ctx context.Context, c api.Caller, id, token string) (api.Opened, error) {
	f, err := session.LoadFile(paths.Sessions(e.o.Home), id)
	if err != nil || !f.Resumes(token, c.Peer.UID) {
		return api.Opened{}, api.ErrNoSession
	}
	e.mu.Lock()
	r := e.runs[id]
	e.mu.Unlock()
	if r == nil {
		if r, err = e.rebuild(ctx, id); err != nil {
			return api.Opened{}, err
		}
	}
	// What the connection before this one left under way has no outcome.
	if err := e.gate.Orphan(ctx, r.gate); err != nil {
		return api.Opened{}, api.Errorf(api.CodeUnavailable, "%v", err)
	}
	if !e.take(r, c) {
		return api.Opened{}, api.ErrNoSession
	}
	return e.opened(r, token), nil
}

// take makes the connection of c the owner of r, unless that has ended.
func (e *Engine) take(r *run, c api.Caller) bool {
	e.mu.Lock()
	if e.runs[r.file.ID] != r || r.gate.Session.Ended() {
		e.mu.Unlock()
		return false
	}
	if r.lost != nil {
		r.lost()
		r.lost = nil
	}
	r.owner = c.Conn
	r.asker.Store(&asker{identity(c.Peer), r.asker.Load().ownTerminal})
	was, f := r.file, r.file
	f.Lost, f.PID = time.Time{}, r.client()
	r.file = f
	e.mu.Unlock()
	if !was.Lost.IsZero() || was.PID != f.PID {
		// What is not written makes the next engine end it sooner, and no more.
		_ = f.Save(paths.Sessions(e.o.Home))
	}
	return true
}

// CloseSession ends a session that c owns.
func (e *Engine) CloseSession(ctx context.Context, c api.Caller, id string) error {
	r := e.owned(id, c)
	if r == nil {
		return api.ErrNoSession
	}
	return evidence(e.end(ctx, r, "closed by its client"))
}

// owned returns the run with that id if the connection of c owns it, else nil.
func (e *Engine) owned(id string, c api.Caller) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.runs[id]; r != nil && r.owner == c.Conn {
		return r
	}
	return nil
}

// Gone keeps the sessions of a lost connection for a while.
func (e *Engine) Gone(c api.Caller, owned []string) {
	for _, id := range owned {
		if r := e.owned(id, c); r != nil {
			if err := e.gate.Orphan(context.Background(), r.gate); err != nil {
				e.stop(err) // evidence before anything else: without it the engine ends
				return
			}
			e.lose(r)
		}
	}
}

// lose ends r at the end of the process that was its client, or after the grace, unless
// it is resumed before.
func (e *Engine) lose(r *run) {
	ctx, cancel := context.WithCancel(context.Background())
	stopping := e.stopping()
	e.mu.Lock()
	r.owner, r.lost = 0, cancel
	if !stopping {
		r.file.Lost = e.o.Now().UTC()
	}
	f := r.file
	e.mu.Unlock()
	if stopping {
		return // it is we who left the client
	}
	// What is not written gives it another grace under the next engine, and no more.
	_ = f.Save(paths.Sessions(e.o.Home))
	e.work.Go(func() {
		defer cancel()
		why := e.awaitLoss(ctx, f.PID)
		e.mu.Lock()
		over := why != "" && ctx.Err() == nil && r.gate.Session.End() // it was not resumed at this moment
		e.mu.Unlock()
		if !over {
			return
		}
		if err := e.ended(context.Background(), r, why); err != nil {
			e.stop(err)
		}
	})
}

func (e *Engine) stopping() bool {
	select {
	case <-e.done:
		return true
	default:
		return false
	}
}

// end ends r: orphans, last entry, and then, with nobody waiting, checkpoint and file.
func (e *Engine) end(ctx context.Context, r *run, why string) error {
	if !r.gate.Session.End() {
		return nil
	}
	return e.ended(ctx, r, why)
}

// ended is end of a session in which nothing can be opened any more.
func (e *Engine) ended(ctx context.Context, r *run, why string) error {
	id := r.file.ID
	err := e.gate.Orphan(ctx, r.gate)
	if err == nil {
		err = e.write(ctx, false, id, entryEnd, map[string]any{"why": why}) // seal takes it to the disk
	}
	e.mu.Lock()
	delete(e.runs, id)
	e.note()
	e.mu.Unlock()
	e.secrets.drop(id)
	if err != nil {
		return fmt.Errorf("ending session %s: %w", id, err)
	}
	e.work.Go(func() { e.seal(context.WithoutCancel(ctx), id) })
	return nil
}

// seal takes what a session that ended has left to the disk, signs it, and forgets the
// session. Nobody waits for it: the entries survive this process, an export asks for a
// signature itself, and a session whose file stays is seen to have ended by the next
// engine.
func (e *Engine) seal(ctx context.Context, id string) {
	_, err := e.ledger.Checkpoint(ctx)
	if err == nil {
		err = session.RemoveFile(paths.Sessions(e.o.Home), id)
	}
	if err != nil {
		slog.WarnContext(ctx, "sealing a session", slog.String("session", id), slog.Any("err", err))
	}
}

// append puts an entry on disk.
func (e *Engine) append(ctx context.Context, id, kind string, body any) error {
	return e.write(ctx, true, id, kind, body)
}

// write puts an entry on record: on disk, or where it survives this process.
func (e *Engine) write(ctx context.Context, durable bool, id, kind string, body any) error {
	data, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", kind, err)
	}
	_, err = e.ledger.Append(ctx, durable, ledger.Entry{Session: id, Type: kind, Body: data})
	return err
}

// identity is a peer as the desk knows people.
func identity(p ipc.Peer) desk.Identity {
	return desk.IdentityOf(p, paths.UserName(p.UID))
}

// An asker is who waits for an answer.
type asker struct {
	who         desk.Identity
	ownTerminal bool
}
