package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

// The methods of the protocol.
const (
	methodHello          = "hello"
	methodCancel         = "cancel"
	methodOpen           = "session.open"
	methodResume         = "session.resume"
	methodClose          = "session.close"
	methodBox            = "session.box"
	methodDecide         = "decide"
	methodFinish         = "finish"
	methodQuestions      = "questions.list"
	methodQuestion       = "questions.get"
	methodAnswer         = "questions.answer"
	methodWatch          = "questions.watch"
	methodToolsList      = "tools.list"
	methodToolsReview    = "tools.review"
	methodToolsPin       = "tools.pin"
	methodAdmit          = "servers.admit"
	methodReview         = "review.record"
	methodLedgerEntries  = "ledger.entries"
	methodLedgerExport   = "ledger.export"
	methodLedgerVerify   = "ledger.verify"
	methodLedgerSessions = "ledger.sessions"
	methodSecretSet      = "secrets.set"
	methodSecretList     = "secrets.list"
	methodSecretRemove   = "secrets.remove"
	methodSentinels      = "session.sentinels"
	methodTokenLoad      = "tokens.load"
	methodTokenSave      = "tokens.save"
	methodTokenDelete    = "tokens.delete"
	methodMint           = "session.mint"
	methodAuthority      = "authority"
	methodGrants         = "grants.list"
	methodGrantRevoke    = "grants.revoke"
	methodClause         = "clauses.accept"
	methodGrips          = "grips"
	methodStatus         = "status"
	methodStop           = "stop"
)

// A header is the JSON part of a frame, of a request or of a reply.
type header struct {
	ID     uint64          `json:"id"` // below 2^63
	Method string          `json:"method,omitempty"`
	Params json.RawMessage `json:"params,omitempty"`
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	More   bool            `json:"more,omitempty"`
}

// The parameters of methods that have no type of their own.
type (
	helloParams struct {
		Version int `json:"version"`
	}
	sessionParams struct {
		Session string `json:"session"`
		Token   string `json:"token,omitempty"`
	}
	// The principal is not on the wire: the engine knows it from the session.
	decideParams struct {
		Session string       `json:"session"`
		Verb    act.Verb     `json:"verb"`
		Tool    string       `json:"tool,omitempty"`
		Direct  []act.Effect `json:"direct,omitempty"`
	}
	finishParams struct {
		Session string `json:"session"`
		Ticket  string `json:"ticket"`
		Error   string `json:"error,omitempty"`

		Labels []act.Label `json:"labels,omitempty"`
		Spent  act.Spent   `json:"spent,omitzero"`
	}
	boxParams struct {
		Session string `json:"session"`
		BoxRecord
	}
	questionParams struct {
		ID     string `json:"id"`
		Choice Choice `json:"choice,omitzero"`
	}
	stopParams struct {
		Force bool `json:"force,omitempty"`
	}
	nothing struct{}
)

// decode reads the JSON of one known type strictly: unknown members and
// trailing text are errors.
func decode(raw []byte, v any) error {
	if len(raw) == 0 {
		raw = []byte("{}")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if d.More() || d.InputOffset() != int64(len(raw)) {
		return errors.New("trailing text")
	}
	return nil
}

// How long the other side may at most leave a frame unread before it counts as dead,
// or up to a quarter less. Who reads a stream may be a person with a pager.
const (
	writeStall  = 30 * time.Second
	streamStall = 30 * time.Minute
)

// A writer writes frames to one connection, one at a time.
type writer struct {
	mu    sync.Mutex
	nc    net.Conn
	to    io.Writer // nc, or what writes to it
	armed time.Time // the deadline of nc
}

// frame writes one frame. After an error the connection is closed, because the
// stream may end within a frame.
func (w *writer) frame(head, body []byte, stall time.Duration) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	// To set a deadline can wake a thread, so one serves for many frames.
	now := time.Now()
	if left := w.armed.Sub(now); left < stall-stall/4 || left > stall {
		w.armed = now.Add(stall)
		// One that cannot be set is a closed connection: the write says so.
		_ = w.nc.SetWriteDeadline(w.armed)
	}
	err := ipc.WriteFrame(w.to, head, body)
	if err != nil {
		_ = w.nc.Close()
	}
	return err
}

// readHeader reads one frame, with a header of at most limit bytes, and decodes
// that.
func readHeader(r io.Reader, limit int) (header, []byte, error) {
	head, body, err := ipc.ReadFrame(r, limit, maxBody)
	if err != nil {
		return header{}, nil, err
	}
	h, err := parseHeader(head)
	if err != nil {
		return header{}, nil, fmt.Errorf("reading header: %w", err)
	}
	return h, body, nil
}
