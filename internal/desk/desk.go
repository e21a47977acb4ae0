// Package desk is where escalations wait for people: it holds questions, takes
// answers, counts quorums and hands out single-use approvals.
//
// It is not a judge: it never decides whether a request is allowed, evaluates
// no policy, records nothing and knows no transport. The gate computes what an
// answer binds to ([Digest]) and consumes the approval before dispatch.
//
// Invariants:
//
//	D1  Nobody answering, an answer too late, a full desk, a cancelled wait: each
//	    is a denial. Only an [Answer] with Approved set carries a token.
//	D2  One no denies every call of its question at once.
//	D3  A yes covers exactly the calls that were shown ([Choice.Mark]), never one
//	    that joined later.
//	D4  Whoever waits cannot approve: the same process, POSIX session or
//	    controlling terminal is refused; where the machine cannot tell, the answer
//	    says SelfNotExcluded.
//	D5  Different people are different user ids, as the kernel tells them of the
//	    socket, and nothing else. One person counts once a clause. A guest counts only
//	    where somebody else than the user of the engine is meant.
//	D6  A token is consumed at most once, only for its digest, only before its
//	    expiry, and only by the desk that made it: none survives a restart.
//	D7  Memory is bounded for each session and in total.
//	D8  Text written by an agent cannot look like ours: it is on marked lines, and
//	    no character of it is invisible, moves the cursor or turns the line.
package desk

import (
	"crypto/rand"
	"errors"
	"sync"
	"time"
)

// Errors that callers branch on. All of them leave the request denied.
var (
	// ErrNoAnswer says that the deadline passed: deny with act.CodeNoAnswer.
	ErrNoAnswer = errors.New("nobody answered in time")
	// ErrCrowded says that the session, or the desk, has too many open
	// questions: deny at once, and do not ask again soon.
	ErrCrowded = errors.New("too many questions are waiting for a person")
	// ErrTooLarge says that the question cannot be shown whole: deny.
	ErrTooLarge = errors.New("the request is too large for a person to judge")
	// ErrClosed says that the desk was closed meanwhile: deny.
	ErrClosed = errors.New("the engine was stopped before anybody had answered: ask again")
	// ErrQuorum says that fewer people can reach the desk than must approve: deny at
	// once.
	ErrQuorum = errors.New("not enough people can answer here")
	// ErrGone says that no such question is open: it was answered, it expired,
	// or it never was. List again.
	ErrGone = errors.New("no such open question")
	// ErrSelf says that the approver is, as far as the machine can tell, whoever
	// asks: answer from another terminal.
	ErrSelf = errors.New("whoever asks cannot approve: answer from another terminal")
	// ErrRole says that no clause shown accepts this person.
	ErrRole = errors.New("this person has none of the roles that must approve")
	// ErrMessage says that a choice has a message that it cannot have.
	ErrMessage = errors.New("this answer cannot have that message")
	// ErrTwice says that this person has already said yes to these calls.
	ErrTwice = errors.New("this person has already approved, and counts once, from whatever terminal: people are users of this machine")
	// ErrScope says that the question cannot be answered for the session, or not so.
	ErrScope = errors.New("no such scope")
	// ErrToken says that a token is forged, foreign, used up or made for
	// something else.
	ErrToken = errors.New("not a valid approval")
	// ErrExpired says that a token was consumed too late.
	ErrExpired = errors.New("the approval has expired")
)

// Options configure a desk. The zero value is valid: nobody has a role, and
// every bound is at its default.
type Options struct {
	// Roles maps a person, by user name or by decimal user id, to the roles that
	// the person holds. Clauses without a role accept anyone who can reach the
	// desk.
	Roles map[string][]string
	// People are those who can reach the desk; nil: anyone. Who needs more is told so at
	// once.
	People []Person
	// Wait is how long a question without a deadline waits. Default 5 minutes.
	Wait time.Duration
	// MaxWait caps the deadline of any question. Default 1 hour.
	MaxWait time.Duration
	// TokenLife is how long an approval may stay unconsumed. Default 1 minute.
	TokenLife time.Duration
	// MaxOpen bounds the open questions of one session. Default 16.
	MaxOpen int
	// MaxCalls bounds the identical calls that wait on one question. Default 64.
	MaxCalls int
	// MaxTotal bounds the open questions of all sessions. Default 1024.
	MaxTotal int
	// MaxArgs bounds the arguments that are kept, in bytes. Default 64 KiB.
	MaxArgs int
	// Now is the clock. Default time.Now.
	Now func() time.Time
}

// A Person is a user of this machine who can reach the desk.
type Person struct {
	UID  uint32
	Name string
	// Guest says that the engine is another user's. A guest is shown, and answers, only
	// what asks for a role that the guest has, or for several people of any role.
	Guest bool
}

const (
	maxEffects   = 256       // effects one person can be asked to read
	maxClauses   = 64        // clauses of one question
	maxScopes    = 8         // scopes of one question
	maxQuestion  = 256 << 10 // bytes of text in one question
	maxKept      = 32 << 20  // and in all
	maxTokens    = 4096      // approvals not yet consumed
	maxWatchers  = 64
	watcherQueue = 256 // events a watcher may fall behind
)

func (o Options) withDefaults() Options {
	o.Wait = positive(o.Wait, 5*time.Minute)
	o.MaxWait = positive(o.MaxWait, time.Hour)
	o.TokenLife = positive(o.TokenLife, time.Minute)
	o.MaxOpen = positive(o.MaxOpen, 16)
	o.MaxCalls = positive(o.MaxCalls, 64)
	o.MaxTotal = positive(o.MaxTotal, 1024)
	o.MaxArgs = positive(o.MaxArgs, 64<<10)
	if o.Now == nil {
		o.Now = time.Now
	}
	return o
}

func positive[T int | time.Duration](v, otherwise T) T {
	if v > 0 {
		return v
	}
	return otherwise
}

// A Desk holds the open questions of one engine. All methods may be called from
// any goroutine.
type Desk struct {
	opts   Options
	key    [32]byte      // authenticates tokens; lives and dies with the desk
	closed chan struct{} // by Close
	once   sync.Once

	mu       sync.Mutex
	asked    uint64              // questions so far
	open     map[string]*entry   // by question id
	same     map[[32]byte]*entry // by digest, to coalesce
	count    map[string]int      // open questions by session
	kept     int                 // bytes of text in open questions
	tokens   map[[16]byte]grant  // approvals not yet consumed, by nonce
	watchers map[*watcher]struct{}
}

// New returns an empty desk.
func New(o Options) *Desk {
	d := &Desk{
		opts:     o.withDefaults(),
		closed:   make(chan struct{}),
		open:     map[string]*entry{},
		same:     map[[32]byte]*entry{},
		count:    map[string]int{},
		tokens:   map[[16]byte]grant{},
		watchers: map[*watcher]struct{}{},
	}
	rand.Read(d.key[:]) // never fails: crypto/rand ends the program instead
	return d
}

// Close ends every wait, and every later one at once, with [ErrClosed]. It may be called
// more than once.
func (d *Desk) Close() { d.once.Do(func() { close(d.closed) }) }
