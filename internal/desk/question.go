package desk

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/sys/ipc"
)

// NoUID is the user id of someone the kernel did not name. No user has it.
const NoUID = ^uint32(0)

// An Identity is the kernel's word on who is at the other end of a connection.
type Identity struct {
	UID  uint32 `json:"uid"`
	PID  int    `json:"pid"`
	SID  int    `json:"sid"`            // POSIX session (getsid); 0 when unknown
	TTY  string `json:"tty,omitempty"`  // controlling terminal; "" when none or unknown
	Name string `json:"name,omitempty"` // user name, for roles and for people
	// Known says that SID and TTY are what the kernel reports. Without it they
	// are not evidence.
	Known bool `json:"known"`
}

// IdentityOf returns who the kernel says p is, with the user name that the
// caller looked up, or "".
func IdentityOf(p ipc.Peer, name string) Identity {
	if !p.HasUID {
		return Identity{UID: NoUID}
	}
	return Identity{UID: p.UID, PID: p.PID, SID: p.SID, TTY: p.TTY, Name: name, Known: p.Known}
}

// A Clause is one sentence of the policy that wants a person's consent.
type Clause struct {
	ID    string `json:"id"`
	Text  string `json:"text"`           // the English, as its author wrote it
	Count int    `json:"count"`          // how many different people; less than 1 counts as 1
	Role  string `json:"role,omitempty"` // the role they must hold; "" is anyone
	Have  int    `json:"have"`           // set by the desk: people who have said yes to the oldest call
}

// A Sum is a SHA-256 digest. Its text form is lower-case hexadecimal.
type Sum [32]byte

// String returns the 64 hexadecimal digits.
func (s Sum) String() string { return hex.EncodeToString(s[:]) }

// MarshalText writes what [Sum.String] returns.
func (s Sum) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (s *Sum) UnmarshalText(b []byte) error {
	if len(b) != hex.EncodedLen(len(s)) {
		return fmt.Errorf("reading a digest: %d characters, want %d", len(b), hex.EncodedLen(len(s)))
	}
	if _, err := hex.Decode(s[:], b); err != nil {
		return fmt.Errorf("reading a digest: %w", err)
	}
	return nil
}

// A Question is one request as a person is shown it: resolved, bounded, and
// bound to a digest.
type Question struct {
	ID        string       `json:"id"` // set by the desk
	Session   string       `json:"session"`
	Principal string       `json:"principal"` // "persona/agent"
	Tool      string       `json:"tool,omitempty"`
	Effects   []act.Effect `json:"effects"` // resolved; at most 256
	Args      string       `json:"args,omitempty"`
	ArgsBytes int          `json:"args_bytes,omitempty"` // size of the arguments before they were cut; set by the desk if 0
	Clauses   []Clause     `json:"clauses"`              // at least one, at most 64
	// Scopes are the ways in which a yes can be for the session; none: it cannot. At most 8.
	Scopes []Scope  `json:"scopes,omitempty"`
	Digest Sum      `json:"digest"` // what an answer binds to, from [Digest]
	Asker  Identity `json:"asker"`  // the client that waits
	// OwnTerminal says that the asker is a verb that owns its terminal and
	// prompts there ([Prompt]): an answer by that very process is the person's in
	// front of it. Other processes of the same session stay refused.
	OwnTerminal bool      `json:"own_terminal,omitempty"`
	Asked       time.Time `json:"asked"`    // set by the desk
	Deadline    time.Time `json:"deadline"` // zero: Options.Wait from now; of several calls the earliest
	Calls       int       `json:"calls"`    // set by the desk: identical calls that wait
	Mark        uint64    `json:"mark"`     // set by the desk: names exactly these calls, for [Choice.Mark]

	size int // bytes of text
}

// A Scope is one way to say yes for the session.
type Scope struct {
	Form string `json:"form"`           // such as "exact" or "subtree"
	Text string `json:"text"`           // what is allowed
	Such string `json:"such,omitempty"` // an example of what is within
	Not  string `json:"not,omitempty"`  // an example of what is not
}

// MaxMessage is how long a message to the client that waits may be, in bytes.
const MaxMessage = 1000

// A Choice is what a person answers. The zero Choice is a no.
type Choice struct {
	Yes bool `json:"yes"`
	// Mark is the Mark of the question as it was shown: a yes covers the calls
	// that were waiting then and no later one. 0 covers the oldest call alone.
	Mark uint64 `json:"mark,omitempty"`
	// Message is what whoever says no tells the client that waits: UTF-8, at most
	// [MaxMessage] bytes. With a yes it is an error.
	Message string `json:"message,omitempty"`
	// Scope makes a yes one for the session: which of [Question.Scopes], counted from 1. With
	// 0 it is for the calls alone; with a no it is an error.
	Scope int `json:"scope,omitempty"`
}

// A Vote is one person's answer as it was taken.
type Vote struct {
	By              Identity  `json:"by"`
	Yes             bool      `json:"yes"`
	At              time.Time `json:"at"`
	Clauses         []string  `json:"clauses,omitempty"` // the clauses that this yes counts for
	SelfNotExcluded bool      `json:"self_not_excluded,omitempty"`
	Message         string    `json:"message,omitempty"` // of a no; as [Visible] shows it
	Scope           int       `json:"scope,omitempty"`   // of a yes for the session
}

// An Answer is what became of one call that waited. The zero Answer denies.
type Answer struct {
	Question string   `json:"question"` // id of the question it was shown in
	Approved bool     `json:"approved"`
	Clauses  []string `json:"clauses,omitempty"` // Approved: the ids of every clause shown
	Scope    int      `json:"scope,omitempty"`   // Approved for the session: which of the scopes, from 1
	Votes    []Vote   `json:"votes,omitempty"`
	// SelfNotExcluded says that for at least one yes the machine could not tell
	// the approver from the asker.
	SelfNotExcluded bool      `json:"self_not_excluded,omitempty"`
	Token           string    `json:"-"` // Approved: for [Desk.Consume], once
	Expires         time.Time `json:"expires,omitzero"`
}

// An entry is one open question and the calls that wait on it.
type entry struct {
	q     Question
	order uint64  // of asking
	calls []*call // oldest first; never empty while the entry is open
	next  uint64  // mark of the call that joins next
}

// A call is one waiting [Desk.Ask].
type call struct {
	mark     uint64
	asker    Identity
	own      bool // OwnTerminal
	deadline time.Time
	votes    []Vote
	done     chan Answer // capacity 1; sent to once, under the lock, when the call leaves its entry
}

// shown returns the question as it stands now.
func (e *entry) shown() Question {
	q := e.q
	q.Effects = slices.Clone(q.Effects)
	q.Clauses = slices.Clone(q.Clauses)
	q.Calls = len(e.calls)
	q.Mark = e.next - 1
	if len(e.calls) == 0 {
		return q
	}
	first := slices.MinFunc(e.calls, func(a, b *call) int { return a.deadline.Compare(b.deadline) })
	q.Deadline = first.deadline
	for i := range q.Clauses {
		q.Clauses[i].Have = e.calls[0].have(q.Clauses[i].ID)
	}
	return q
}

// have counts the different people who said yes to clause id of this call.
func (c *call) have(id string) int {
	n := 0
	for i, v := range c.votes {
		again := slices.ContainsFunc(c.votes[:i], func(w Vote) bool {
			return w.By.UID == v.By.UID && slices.Contains(w.Clauses, id)
		})
		if v.Yes && !again && slices.Contains(v.Clauses, id) {
			n++
		}
	}
	return n
}

// satisfied reports whether every clause has its quorum for this call.
func (c *call) satisfied(clauses []Clause) bool {
	for _, cl := range clauses {
		if c.have(cl.ID) < max(cl.Count, 1) {
			return false
		}
	}
	return len(clauses) > 0
}

// roles returns the roles of a person. Names and ids are two keys to the same
// person, so both are looked up. Whom the kernel did not name has no role.
func (d *Desk) roles(who Identity) []string {
	if who.PID == 0 {
		return nil
	}
	return d.rolesOf(who.UID, who.Name)
}

func (d *Desk) rolesOf(uid uint32, name string) []string {
	if uid == NoUID {
		return nil
	}
	r := slices.Clone(d.opts.Roles[strconv.FormatUint(uint64(uid), 10)])
	if name != "" {
		r = append(r, d.opts.Roles[name]...)
	}
	return r
}

// guest reports whether uid is one of a guest.
func (d *Desk) guest(uid uint32) bool {
	return slices.ContainsFunc(d.opts.People, func(p Person) bool { return p.Guest && p.UID == uid })
}

// counts reports whether a yes of somebody with these roles counts for cl.
func (cl *Clause) counts(roles []string, guest bool) bool {
	if cl.Role == "" {
		return !guest || cl.Count > 1 && len(roles) > 0
	}
	return slices.Contains(roles, cl.Role)
}

// Concerns reports whether q is shown to who: to a guest only if a yes of his counts.
func (d *Desk) Concerns(q Question, who Identity) bool {
	roles := d.roles(who)
	return !d.guest(who.UID) || slices.ContainsFunc(q.Clauses, func(cl Clause) bool { return cl.counts(roles, true) })
}

// reachable says what stands in the way of a quorum for cl: nil if enough people can
// answer.
func (d *Desk) reachable(cl Clause) error {
	if d.opts.People == nil {
		return nil
	}
	n := 0
	for _, p := range d.opts.People {
		if cl.counts(d.rolesOf(p.UID, p.Name), p.Guest) {
			n++
		}
	}
	if n >= max(cl.Count, 1) {
		return nil
	}
	return fmt.Errorf("%w: %s %s, and %s can", ErrQuorum, Visible(cl.ID, maxName), quorum(cl), counted(n, "such user"))
}

// List returns the open questions, oldest first.
func (d *Desk) List() []Question {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list()
}

func (d *Desk) list() []Question {
	byAge := slices.SortedFunc(maps.Values(d.open), func(a, b *entry) int {
		return cmp.Or(a.q.Asked.Compare(b.q.Asked), cmp.Compare(a.order, b.order)) // many ask at once
	})
	all := make([]Question, len(byAge))
	for i, e := range byAge {
		all[i] = e.shown()
	}
	return all
}

// Get returns the open question id, or ErrGone.
func (d *Desk) Get(id string) (Question, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.open[id]
	if !ok {
		return Question{}, d.gone(id)
	}
	return e.shown(), nil
}
