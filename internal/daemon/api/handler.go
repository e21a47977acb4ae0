package api

import (
	"context"
	"encoding/json"
	"io"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

// A Caller is the connection that a request came over.
type Caller struct {
	Conn uint64   // distinguishes connections of this engine; never reused
	Peer ipc.Peer // as the kernel told when the connection was accepted
	// Guest says that the engine is another user's: the connection may only see what
	// waits for that person, and answer it.
	Guest bool
}

// A Handler is what the engine does. It is the sum of the parts below, each of
// which one part of the engine implements. Methods run concurrently; ctx ends
// when the client cancels, the connection is lost or the engine stops.
type Handler interface {
	Sessions
	Decisions
	Desk
	Tools
	Record
	Secrets
	Authority
	Grants
	Gripping
	Engine
}

// Sessions opens and ends sessions.
type Sessions interface {
	OpenSession(ctx context.Context, c Caller, r OpenRequest) (Opened, error)
	// ResumeSession checks the token in constant time. From its return on, the
	// connection of c owns the session and the former owner does not. That one
	// may still be connected, or its end not yet noticed: what it left open is
	// the session's no longer.
	ResumeSession(ctx context.Context, c Caller, session, token string) (Opened, error)
	CloseSession(ctx context.Context, c Caller, session string) error
	// RecordBox puts on record, on disk, what confines a program that is about to
	// start for the session. The program may start when it has returned nil.
	RecordBox(ctx context.Context, c Caller, session string, b BoxRecord) error
	// Gone says that the connection of c has ended, and which sessions it owned
	// until then: none that another connection resumed before. Every other call
	// of that connection has returned. It never overlaps ResumeSession.
	Gone(c Caller, owned []string)
}

// Decisions decides. The session of a request is one that c owns.
type Decisions interface {
	Decide(ctx context.Context, c Caller, r act.Request) (act.Ticket, error)
	// Finish takes in the outcome of the ticket with that id of that session.
	Finish(ctx context.Context, c Caller, session, ticket string, o act.Outcome) (act.Reply, error)
}

// Desk is where people answer.
type Desk interface {
	Questions(ctx context.Context, c Caller) ([]Question, error)
	Question(ctx context.Context, c Caller, id string) (Question, error)
	AnswerQuestion(ctx context.Context, c Caller, id string, choice Choice) error
	// WatchQuestions sends an "asked" event for every open question and then
	// every change, until ctx ends or send fails.
	WatchQuestions(ctx context.Context, c Caller, send func(QuestionEvent) error) error
}

// Tools is the review of tool definitions.
type Tools interface {
	ToolsList(ctx context.Context, c Caller, q ToolQuery) ([]ToolPin, error)
	ToolsReview(ctx context.Context, c Caller, q ToolQuery) ([]ToolPin, error)
	ToolsPin(ctx context.Context, c Caller, r PinRequest) (ToolPin, error)
	// Admit puts on record that a person admits a server with the tools of that list, or
	// a file that lists servers, and approves them. Who waits for an answer of that
	// person is refused.
	Admit(ctx context.Context, c Caller, r AdmitRequest, tools []byte) error
	// RecordReview puts on record, on disk, what a person is about to do with what a
	// box changed. Who waits for an answer of that person is refused.
	RecordReview(ctx context.Context, c Caller, r ReviewRecord) error
}

// Record reads the ledger.
type Record interface {
	// LedgerEntries sends entries as they are stored, oldest first.
	LedgerEntries(ctx context.Context, c Caller, q LedgerQuery, send func(entry json.RawMessage) error) error
	// LedgerExport writes the export of one session.
	LedgerExport(ctx context.Context, c Caller, session string, w io.Writer) error
	LedgerVerify(ctx context.Context, c Caller) (Verification, error)
	LedgerSessions(ctx context.Context, c Caller) ([]SessionInfo, error)
}

// Authority signs the certificates that boxes trust.
type Authority interface {
	// Mint returns a certificate for r and that of the authority, DER; ErrRefused if
	// the session had no connection to that host allowed.
	Mint(ctx context.Context, c Caller, session string, r MintRequest) ([][]byte, error)
	// Authority returns the certificate of the authority, PEM.
	Authority(ctx context.Context, c Caller) ([]byte, error)
}

// Grants are what people granted open sessions until they end.
type Grants interface {
	// Grants returns those of a session, or of all for "".
	Grants(ctx context.Context, c Caller, session string) ([]Grant, error)
	// RevokeGrant takes one back, on record; ErrNotFound if there is none.
	RevokeGrant(ctx context.Context, c Caller, g Grant) error
	// AcceptClause puts on record that a person adds a clause to a constitution; ErrRefused
	// to whoever has a session open.
	AcceptClause(ctx context.Context, c Caller, a AcceptedClause) error
}

// Gripping says by what clauses are held.
type Gripping interface {
	// Grips says how a policy is held for a program, and what its box is to be. With a
	// session, which c owns, it puts that on record.
	Grips(ctx context.Context, c Caller, r GripsRequest) (Grips, error)
}

// Engine is about the engine itself.
type Engine interface {
	Status(ctx context.Context, c Caller) (Status, error)
	// Stop begins to stop the engine and returns; it is refused, unless force,
	// while sessions are open.
	Stop(ctx context.Context, c Caller, force bool) error
}
