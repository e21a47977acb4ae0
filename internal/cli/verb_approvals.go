package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/pty"
	"ringfence/internal/ui/tui"
)

// newApprovals is "ringfence approvals".
func newApprovals(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "approvals",
		Short: "See what waits for a person, and answer",
		Long: "Calls that need a person wait here. An answer is for exactly the call that is\n" +
			"shown, once. Whoever waits cannot approve: answer from another terminal.",
	}
	d := &desks{s: s}
	c.PersistentFlags().StringVar(&d.socket, "at", "", "answer at `SOCKET`, where another user lets approvers answer (approvals.socket in that user's config.json)")
	c.AddCommand(newApprovalsList(s, d), newApprovalsShow(s, d), newAnswer(s, d, true), newAnswer(s, d, false), newApprovalsWatch(s, d), newApprovalsPick(s, d), newProposals(s))
	return c
}

// desks is where questions are answered: at the engine of this home, or at a socket.
type desks struct {
	s      *streams
	socket string
}

func (d *desks) connect(ctx context.Context) (*api.Client, error) {
	if d.socket == "" {
		return connect(ctx)
	}
	return connectTo(d.s, d.socket)(ctx)
}

func newApprovalsList(s *streams, d *desks) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the questions that wait",
		RunE: func(c *cobra.Command, _ []string) error {
			return with(c.Context(), d.connect, func(e *api.Client) error {
				qs, err := e.Questions(c.Context())
				if err != nil {
					return err
				}
				if qs == nil {
					qs = []api.Question{}
				}
				return s.value(qs, func() string {
					if len(qs) == 0 {
						return "Nothing waits.\n"
					}
					var b strings.Builder
					for _, q := range qs {
						b.WriteString(q.Text + "\n")
					}
					return b.String()
				})
			})
		},
	}
}

func newApprovalsShow(s *streams, d *desks) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show one question whole",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			return with(c.Context(), d.connect, func(e *api.Client) error {
				q, err := e.Question(c.Context(), args[0])
				if err != nil {
					return err
				}
				return s.value(q, func() string { return q.Text + q.ScopesText })
			})
		},
	}
}

// newAnswer is "approve" and "deny".
func newAnswer(s *streams, d *desks, yes bool) *cobra.Command {
	use, short, past := "deny ID", "Say no", "Denied.\n"
	if yes {
		use, short, past = "approve ID", "Say yes to exactly what is shown, once or for the session", "Approved.\n"
	}
	var all bool
	var message, span, bundle string
	var scope int
	c := &cobra.Command{
		Use:         use,
		Short:       short,
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeDenied, "this person may not answer that question"}),
		RunE: func(c *cobra.Command, args []string) error {
			last, err := lasting(span, scope)
			if err != nil {
				return err
			}
			good := span == forGood
			return with(c.Context(), d.connect, func(e *api.Client) error {
				q, err := e.Question(c.Context(), args[0])
				if err != nil {
					return err
				}
				if !s.json {
					fmt.Fprint(s.err, printable(q.Text))
				}
				choice := api.Choice{Yes: yes, Message: message, Scope: last} // the oldest call alone: more may have come since the person looked
				if all {
					choice.Mark = q.Mark
				}
				said := ""
				if good {
					choice.Scope = 0
					p, err := propose(q, last, bundle)
					if err != nil {
						return err
					}
					said = fmt.Sprintf("Allowed once, and proposed for good: %s\n\"ringfence approvals proposals show %s\" shows the change.\n", p.Sentence, p.ID)
				}
				if err := e.Answer(c.Context(), q.ID, choice); err != nil {
					return answerError(err)
				}
				wants := ""
				if yes {
					wants = stillWanted(c.Context(), e, q.ID, choice.Mark)
				}
				return s.value(map[string]any{"id": q.ID, "approved": yes && wants == "", "counted": true}, func() string {
					if wants != "" {
						return wants
					}
					if yes && !all && q.Calls > 1 {
						return fmt.Sprintf("Approved, one of %d identical calls; \"--all\" is for all that wait.\n", q.Calls)
					}
					if good {
						return said
					}
					if last > 0 && last <= len(q.Scopes) {
						return fmt.Sprintf("Approved for the session: %s. \"ringfence grants\" lists it, and takes it back.\n", q.Scopes[last-1].Text)
					}
					return past
				})
			})
		},
	}
	if yes {
		c.Flags().BoolVar(&all, "all", false, "approve every identical call that waits now, not the oldest alone")
		c.Flags().StringVar(&span, "for", "once", "`once`, or session: until the session ends, within a scope; or good: once, and a clause is proposed")
		c.Flags().StringVar(&bundle, "policy", "", "with --for good: the bundle `DIR` whose constitution it is, if that is not on record")
		c.Flags().IntVar(&scope, "scope", 1, "with --for session or good: which scope, `N` as \"approvals show\" numbers them")
	} else {
		c.Flags().StringVarP(&message, "message", "m", "", "tell the agent `TEXT`, such as what to do instead (at most 1000 bytes)")
	}
	return c
}

// forGood is an answer that also has a clause proposed.
const forGood = "good"

// lasting is the scope of an answer: 0 for one that is for the call alone.
func lasting(span string, scope int) (int, error) {
	switch {
	case span == "" || span == "once":
		return 0, nil
	case span != "session" && span != forGood:
		return 0, &exitError{code: codeUsage, err: fmt.Errorf("--for %q: a yes is for once, for session or for good", span)}
	case scope < 1:
		return 0, &exitError{code: codeUsage, err: fmt.Errorf("--scope %d: scopes are numbered from 1", scope)}
	}
	return scope, nil
}

// stillWanted says what a question needs besides a yes that was counted; "" if that was
// enough.
func stillWanted(ctx context.Context, e *api.Client, id string, mark uint64) string {
	q, err := e.Question(ctx, id)
	if err != nil || q.Mark != mark && mark != 0 {
		return ""
	}
	for _, cl := range q.Clauses {
		if cl.Have > 0 && cl.Have < cl.Count {
			return fmt.Sprintf("Counted, and not approved yet: %s needs %d different people, and %d of them said yes. People are users\nof this machine; one counts once, from whatever terminal.\n", cl.ID, cl.Count, cl.Have)
		}
	}
	return ""
}

func newApprovalsWatch(s *streams, d *desks) *cobra.Command {
	return &cobra.Command{
		Use:   "watch",
		Short: "Show questions as they come, until interrupted",
		RunE: func(c *cobra.Command, _ []string) error {
			err := with(c.Context(), d.connect, func(e *api.Client) error {
				return watch(c.Context(), s, e)
			})
			if interrupted(c.Context()) { // it has no other end
				return &exitError{code: codeInterrupted}
			}
			return err
		},
	}
}

func watch(ctx context.Context, s *streams, e *api.Client) error {
	lost := func() { s.say("the engine has ended; watching the next one") }
	return watchQuestions(ctx, e, lost, func(ev api.QuestionEvent) error {
		if s.json {
			return s.line(ev)
		}
		text := ev.Question.Text
		if ev.Kind != "asked" {
			text = fmt.Sprintf("%s: %s\n", ev.Question.ID, strings.Replace(ev.Kind, "refused", "denied", 1))
		}
		_, err := fmt.Fprintln(s.out, printable(text))
		return err
	})
}

func newApprovalsPick(s *streams, d *desks) *cobra.Command {
	return &cobra.Command{
		Use:   "pick",
		Short: "Answer on a page of this terminal, until you leave it",
		RunE: func(c *cobra.Command, _ []string) error {
			if !s.atTerminal() {
				return &exitError{code: codeUsage, err: errors.New("there is no terminal to show it at"), hint: "\"ringfence approvals list\" prints what waits"}
			}
			_, err := openPage(c.Context(), s, tui.Options{Desk: deskOf{connect: d.connect}, Propose: proposes}, nil)
			if errors.Is(err, pty.ErrNoTerminal) {
				return &exitError{code: codeUsage, err: err}
			}
			return err
		},
	}
}
