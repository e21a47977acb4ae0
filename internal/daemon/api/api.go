// Package api is the protocol between the engine and everything else: the types
// on the wire, the client, and the engine's side of a connection.
//
// It carries and does not decide: what a method does is the [Handler]'s. It
// knows nothing of policies, ledgers or desks, and talks to one user on one
// machine only.
//
// A frame (package ipc) is a JSON header and a raw body. A request's header is
// {"id","method","params"}; a reply's is {"id","result"} or {"id","error"}, with
// "more":true on every part of a stream but the last. Replies come in any order.
// The request {"id","method":"cancel"} cancels the request of that id and has no
// reply of its own. The first request of a connection is hello. Arguments and
// results travel as bodies and are never re-encoded.
//
// Invariants:
//
//	P1  No answer is a denial: a lost connection, a cancelled wait, a reply that
//	    cannot be read all end in an error and an act.Ticket that denies.
//	P2  A call that was in flight when its connection was lost is never sent
//	    again.
//	P3  One connection owns a session at a time. Decisions for a session are
//	    taken only from its owner; another connection becomes the owner with the
//	    session's token.
//	P4  Headers, bodies, requests in flight and connections are bounded on the
//	    engine's side, and one client's stalled reader holds up nobody else.
package api

import (
	"errors"
	"fmt"
)

// Version is the version of this protocol. Client and engine must have the
// same: they are one program, and an older one still running must be stopped.
const Version = 5

const (
	maxHeader = 1 << 20         // of a request
	maxReply  = 64 << 20        // header of a reply: a person must be able to read whatever waits
	maxBody   = 64<<20 + 64<<10 // the largest result, and room for what wraps it
	chunkSize = 256 << 10       // of raw streams
)

// A Code tells machines why a request failed.
type Code string

// The codes of errors on the wire.
const (
	CodeVersion     Code = "version"     // engine and client are different programs: stop the engine
	CodeMethod      Code = "method"      // no such method
	CodeBadRequest  Code = "bad-request" // the parameters do not decode, or are not allowed
	CodeNoSession   Code = "no-session"  // unknown, ended, or owned by another connection
	CodeNotFound    Code = "not-found"   // no such question, tool, entry
	CodeRefused     Code = "refused"     // this person may not do that
	CodeBusy        Code = "busy"        // too much in flight, or too many sessions: wait for replies, or end some
	CodeTooLarge    Code = "too-large"   // the reply does not fit a frame
	CodeStopping    Code = "stopping"    // the engine is going away: connect anew
	CodeUnavailable Code = "no-evidence" // the record cannot be written
	CodeInternal    Code = "internal"    // anything else
	CodeCancelled   Code = "cancelled"   // the client asked for it
	CodeUnreachable Code = "unreachable" // client side: the connection was lost
	CodeNotRunning  Code = "not-running" // client side: no engine, and none was started
	CodeNotStarted  Code = "not-started" // no engine could be started; try again some seconds later
)

// An Error is what a request failed with, on either side of the wire. A handler
// returns one, wrapped or not, to choose its code; any other error has
// CodeInternal. errors.Is compares codes alone.
type Error struct {
	Code    Code   `json:"code"`
	Message string `json:"message"`
}

// Error returns the message.
func (e *Error) Error() string { return e.Message }

// Is reports whether target is an Error with the same code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Code == e.Code
}

// Errors for errors.Is.
var (
	// ErrVersion: stop the engine that runs, and try again.
	ErrVersion = &Error{CodeVersion, "engine and client are of different versions"}
	// ErrNoSession: the session is gone for good; open another.
	ErrNoSession = &Error{CodeNoSession, "no such session"}
	// ErrNotFound: list again.
	ErrNotFound = &Error{CodeNotFound, "no such thing"}
	// ErrRefused: somebody else must do it.
	ErrRefused = &Error{CodeRefused, "refused"}
	// ErrUnreachable: the connection was lost; the next call tries once to
	// restore it.
	ErrUnreachable = &Error{CodeUnreachable, "the engine cannot be reached"}
	// ErrUndecided: the engine was lost before it had decided, so nothing may happen.
	ErrUndecided = errors.New("there was no decision, which is a denial")
	// ErrNotRunning: no engine listens and none could be started.
	ErrNotRunning = &Error{CodeNotRunning, "no engine is running"}
)

// Errorf returns an Error with a formatted message.
func Errorf(c Code, format string, a ...any) *Error {
	return &Error{Code: c, Message: fmt.Sprintf(format, a...)}
}

// onWire returns err as it is told to the other side: the code of the Error in
// it, and its whole text.
func onWire(err error) *Error {
	e := &Error{Code: CodeInternal, Message: err.Error()}
	if coded, ok := errors.AsType[*Error](err); ok {
		e.Code = coded.Code
	}
	return e
}
