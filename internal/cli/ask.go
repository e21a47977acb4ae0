package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/sys/pty"
)

// askHere asks the person at the terminal that this process owns. Whoever cannot
// be asked says no.
func askHere(ctx context.Context, out io.Writer, q api.Question) (bool, error) {
	t, err := pty.Controlling()
	if err != nil {
		return false, err
	}
	choice, err := desk.Prompt(ctx, t, out, deskQuestion(q))
	if errors.Is(err, io.EOF) { // a person who ends the input says no
		_, err = fmt.Fprintln(out)
	}
	if errors.Is(err, desk.ErrNoAnswer) {
		_, err = fmt.Fprintln(out, "No answer: denied.")
	}
	return choice.Yes, errors.Join(err, t.Close())
}

// deskQuestion is a question from the wire as the desk has it.
func deskQuestion(q api.Question) desk.Question {
	d := desk.Question{
		ID: q.ID, Session: q.Session, Principal: q.Principal, Tool: q.Tool, Effects: q.Effects, Args: q.Args,
		ArgsBytes: q.ArgsBytes, OwnTerminal: q.OwnTerminal, Asked: q.Asked, Deadline: q.Deadline, Calls: q.Calls, Mark: q.Mark,
		Asker: desk.Identity{UID: q.Asker.UID, PID: q.Asker.PID, SID: q.Asker.SID, TTY: q.Asker.TTY, Name: q.Asker.Name, Known: q.Asker.Known},
	}
	for _, c := range q.Clauses {
		d.Clauses = append(d.Clauses, desk.Clause(c))
	}
	return d
}
