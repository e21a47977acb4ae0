package desk

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// Answer takes one person's choice on the question id.
//
// A no ends the question for every call that waits on it; it only tightens, so
// anyone who can reach the desk may say it. A yes counts for every clause shown
// whose role the person holds, on the calls that [Choice.Mark] names. A call is
// approved when each clause has its quorum.
//
// A no with a message is taken only from whom a yes would not be refused as that of the
// asker: a message passes for the person's word, and nobody may give it to himself.
//
// Errors: ErrGone, ErrSelf, ErrRole, ErrTwice, ErrMessage, ErrScope. With an error nothing was
// counted.
func (d *Desk) Answer(id string, who Identity, choice Choice) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	e, ok := d.open[id]
	if !ok {
		return fmt.Errorf("answering: %w", d.gone(id))
	}
	if !d.Concerns(e.q, who) {
		return fmt.Errorf("answering: %w: %q", ErrGone, Visible(id, 64)) // as if it were not there
	}
	now := d.opts.Now()
	if err := choice.bounded(); err != nil {
		return fmt.Errorf("answering %s: %w", id, err)
	}
	if n := len(e.q.Scopes); choice.Scope < 0 || choice.Scope > n || choice.Scope > 0 && !choice.Yes {
		return fmt.Errorf("answering %s: %w: %d; a yes can be for the session in %s, see \"ringfence approvals show\"", id, ErrScope, choice.Scope, counted(n, "scope"))
	}
	if !choice.Yes {
		v := Vote{By: who, At: now}
		if choice.Message != "" {
			unsure, err := e.apart(who)
			if err != nil {
				return fmt.Errorf("answering %s with a message: %w", id, err)
			}
			v.SelfNotExcluded, v.Message = unsure, Visible(choice.Message, 4*MaxMessage)
		}
		d.refuse(e, v)
		return nil
	}
	if err := d.approve(e, who, choice, now); err != nil {
		return fmt.Errorf("answering %s: %w", id, err)
	}
	return nil
}

// bounded says what is wrong with the message of a choice.
func (c Choice) bounded() error {
	switch {
	case c.Message == "":
		return nil
	case c.Yes:
		return fmt.Errorf("%w: only a no has one", ErrMessage)
	case len(c.Message) > MaxMessage:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrMessage, len(c.Message), MaxMessage)
	case !utf8.ValidString(c.Message):
		return fmt.Errorf("%w: not UTF-8", ErrMessage)
	}
	return nil
}

// apart returns ErrSelf if who waits on e himself, and whether that is unsure. The lock
// is held.
func (e *entry) apart(who Identity) (unsure bool, err error) {
	for _, c := range e.calls {
		self, doubt := isSelf(c, who)
		if self {
			return false, ErrSelf
		}
		unsure = unsure || doubt
	}
	return unsure, nil
}

// refuse ends e with a no for every call. The lock is held.
func (d *Desk) refuse(e *entry, v Vote) {
	for _, c := range e.calls {
		c.votes = append(c.votes, v)
		c.done <- Answer{Question: e.q.ID, Votes: c.votes}
	}
	e.calls = nil
	d.settle(e, Refused)
}

// approve counts a yes. The lock is held.
func (d *Desk) approve(e *entry, who Identity, choice Choice, now time.Time) error {
	mark := choice.Mark
	if mark >= e.next {
		return fmt.Errorf("mark %d names calls that were never shown (the newest is %d)", mark, e.next-1)
	}
	covered := e.covered(mark, now)
	if len(covered) == 0 {
		return ErrGone
	}
	v := Vote{By: who, Yes: true, At: now, Scope: choice.Scope}
	for _, c := range covered {
		self, unsure := isSelf(c, who)
		if self {
			return ErrSelf
		}
		v.SelfNotExcluded = v.SelfNotExcluded || unsure
	}
	roles, guest := d.roles(who), d.guest(who.UID)
	for _, cl := range e.q.Clauses {
		if cl.counts(roles, guest) {
			v.Clauses = append(v.Clauses, cl.ID)
		}
	}
	if len(v.Clauses) == 0 {
		return fmt.Errorf("%w: %s", ErrRole, strings.Join(e.wanted(), ", "))
	}
	if !tally(covered, v) {
		return ErrTwice
	}
	for _, c := range covered {
		if c.satisfied(e.q.Clauses) {
			c.done <- e.approved(c)
			e.calls = slices.DeleteFunc(e.calls, func(o *call) bool { return o == c })
		}
	}
	d.settle(e, Approved)
	return nil
}

// covered returns the calls that a yes with this mark is about. A call whose
// deadline has passed is none of them, even while its waiter has not woken.
func (e *entry) covered(mark uint64, now time.Time) []*call {
	if mark == 0 {
		mark = e.calls[0].mark
	}
	var cs []*call
	for _, c := range e.calls {
		if c.mark <= mark && now.Before(c.deadline) {
			cs = append(cs, c)
		}
	}
	return cs
}

// tally adds v to the calls that have no yes of this person, and reports
// whether there was one.
func tally(calls []*call, v Vote) bool {
	counted := false
	for _, c := range calls {
		if slices.ContainsFunc(c.votes, func(o Vote) bool { return o.By.UID == v.By.UID }) {
			continue
		}
		c.votes = append(c.votes, v)
		counted = true
	}
	return counted
}

// isSelf reports whether who is, by process, session or terminal, the asker of
// c, and whether that could not be established.
//
// A process can leave its session and terminal (setsid), so an approver without
// a terminal is never excluded for certain.
func isSelf(c *call, who Identity) (self, unsure bool) {
	a := c.asker
	if a.PID != 0 && a.PID == who.PID {
		return !c.own, true
	}
	if !a.Known || !who.Known || a.SID == 0 || who.SID == 0 {
		return false, true
	}
	if a.SID == who.SID || a.TTY != "" && a.TTY == who.TTY {
		return true, false
	}
	return false, who.TTY == ""
}

// approved makes the answer of a call that has all its quorums.
func (e *entry) approved(c *call) Answer {
	a := Answer{Question: e.q.ID, Approved: true, Votes: c.votes}
	for _, cl := range e.q.Clauses {
		a.Clauses = append(a.Clauses, cl.ID)
	}
	for _, v := range c.votes {
		a.Scope = v.Scope // of the last: what several people must approve has no scope
		a.SelfNotExcluded = a.SelfNotExcluded || v.SelfNotExcluded
	}
	return a
}

// wanted lists the roles of the clauses shown, for people.
func (e *entry) wanted() []string {
	var roles []string
	for _, cl := range e.q.Clauses {
		if !slices.Contains(roles, cl.Role) {
			roles = append(roles, cl.Role)
		}
	}
	return roles
}

// gone says that id is not open and names what is. The lock is held.
func (d *Desk) gone(id string) error {
	if len(d.open) == 0 {
		return fmt.Errorf("%w: %q (none is open)", ErrGone, Visible(id, 64))
	}
	ids := make([]string, 0, len(d.open))
	for o := range d.open {
		ids = append(ids, o)
	}
	slices.Sort(ids)
	more := ""
	if len(ids) > 8 {
		ids, more = ids[:8], " …"
	}
	return fmt.Errorf("%w: %q (open: %s%s)", ErrGone, Visible(id, 64), strings.Join(ids, " "), more)
}
