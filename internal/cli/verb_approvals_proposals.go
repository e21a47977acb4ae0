package cli

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/constitution"
	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/keychain"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/pty"
)

// newProposals is "ringfence approvals proposals".
func newProposals(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "proposals",
		Short: "See the clauses that were proposed instead of asking again, and accept them",
		Long: "A yes can be for good (\"ringfence approvals approve ID --for good --scope N\"): then a\n" +
			"clause is proposed for the constitution. It is in force when a person has accepted it,\n" +
			"for sessions that begin after that.",
	}
	c.AddCommand(newProposalsList(s), newProposalsShow(s), newProposalsAccept(s), newProposalsDrop(s))
	return c
}

func newProposalsList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the clauses that are proposed",
		RunE: func(*cobra.Command, []string) error {
			dir, err := proposalsDir()
			if err != nil {
				return err
			}
			names, err := os.ReadDir(dir)
			if err != nil {
				return err
			}
			all := []proposal{}
			for _, n := range names {
				p, _, err := aProposal(strings.TrimSuffix(n.Name(), ".json"))
				if err != nil {
					return err
				}
				all = append(all, p)
			}
			return s.value(all, func() string {
				if len(all) == 0 {
					return "Nothing is proposed.\n"
				}
				var b strings.Builder
				for _, p := range all {
					fmt.Fprintf(&b, "%s  %s  %s\n", p.ID, p.Made.Local().Format(time.DateTime), p.Sentence)
				}
				return b.String()
			})
		},
	}
}

// shownProposal is a proposal with what it would change.
type shownProposal struct {
	proposal
	Diff string `json:"diff"`
}

func newProposalsShow(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "show ID",
		Short: "Show what one would change in the constitution",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, _, err := aProposal(args[0])
			if err != nil {
				return err
			}
			a, err := amend(p)
			if err != nil {
				return err
			}
			return s.value(shownProposal{p, a.diff()}, func() string { return proposalText(p, a) })
		},
	}
}

func proposalText(p proposal, a amended) string {
	return fmt.Sprintf("%s, asked by %s in session %s\nyou chose   %s\npolicy      %s\n\n%s\n", p.ID, p.Agent, p.Session, p.Scope, p.Policy, a.diff())
}

func newProposalsDrop(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "drop ID",
		Short: "Forget one",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			p, file, err := aProposal(args[0])
			if err == nil {
				err = os.Remove(file)
			}
			if err != nil {
				return err
			}
			return s.value(p, func() string { return "Dropped.\n" })
		},
	}
}

func newProposalsAccept(s *streams) *cobra.Command {
	var source string
	c := &cobra.Command{
		Use:   "accept ID",
		Short: "Add one to the constitution, after a yes at this terminal",
		Long: "Shows the change, and asks at the terminal of this process. Then the constitution of the\n" +
			"bundle gets the clause, is compiled, and its scenarios are run; if anything is wrong the\n" +
			"bundle stays as it was. With --file the file that it was compiled from gets it too.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeDenied, "it was not accepted, or changes no answer"}),
		RunE: func(c *cobra.Command, args []string) error {
			p, file, err := aProposal(args[0])
			if err != nil {
				return err
			}
			a, err := amend(p)
			if err != nil {
				return err
			}
			if err := sameSource(source, a); err != nil {
				return err
			}
			fmt.Fprint(s.err, printable(proposalText(p, a)))
			if err := s.agreed(c.Context()); err != nil {
				return err
			}
			if err := accept(c.Context(), p, a, source); err != nil {
				return err
			}
			if err := os.Remove(file); err != nil {
				return err
			}
			return s.value(p, func() string { return "Accepted: it is in force for sessions that begin from now on.\n" })
		},
	}
	c.Flags().StringVar(&source, "file", "", "the `FILE` that the bundle was compiled from, to get the clause as well")
	return c
}

// sameSource reports what is wrong with the file that is to get a clause as well.
func sameSource(name string, a amended) error {
	if name == "" {
		return nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("reading the constitution: %w", err)
	}
	if !bytes.Equal(text, []byte(a.was)) {
		return &exitError{code: codeFailed, err: fmt.Errorf("%s is not what the bundle was compiled from", name), hint: "compile it first, and look at the proposal again"}
	}
	return nil
}

// agreed asks the person for a yes at the terminal of this process.
func (s *streams) agreed(ctx context.Context) error {
	t, err := pty.Controlling()
	if err != nil {
		return &exitError{code: codeDenied, err: errors.New("a clause is accepted by a person at a terminal, and here is none")}
	}
	defer t.Close()
	fmt.Fprint(s.err, "Type \"yes\" to add it to the constitution. Anything else is a no: ")
	if err := t.Discard(); err != nil {
		return err
	}
	line, err := typedLine(ctx, t)
	if err != nil {
		return err
	}
	if strings.TrimSpace(line) != "yes" {
		return &exitError{code: codeDenied, err: errors.New("it was not accepted")}
	}
	return nil
}

// typedLine reads a line that a person types.
func typedLine(ctx context.Context, t pty.Terminal) (string, error) {
	stop := context.AfterFunc(ctx, func() { _ = t.SetReadDeadline(time.Now()) })
	defer stop()
	var line []byte
	one := make([]byte, 1)
	for len(line) < 256 {
		n, err := t.Read(one)
		if err != nil || n == 0 || one[0] == '\n' {
			return string(line), err
		}
		line = append(line, one[0])
	}
	return "", errors.New("that is no answer")
}

// accept adds a clause to its constitution: on record first, and then all of it or nothing.
func accept(ctx context.Context, p proposal, a amended, source string) error {
	home, err := paths.EnsureHome()
	if err != nil {
		return err
	}
	key, err := keychain.LoadOrCreate(daemon.PolicyKey(home))
	if err != nil {
		return err
	}
	sum := sha256.Sum256([]byte(a.is))
	err = with(ctx, connect, func(e *api.Client) error {
		return e.AcceptClause(ctx, api.AcceptedClause{Proposal: p.ID, Text: p.Sentence, Constitution: hex.EncodeToString(sum[:])})
	})
	if err != nil {
		return answerError(err)
	}
	if err := constitution.Write(p.Policy, a.compiled, version, key); err != nil {
		return err
	}
	if source == "" {
		return nil
	}
	if source, err = filepath.Abs(source); err != nil {
		return err
	}
	if err := atomicfile.Write(source, []byte(a.is), 0o600); err != nil {
		return fmt.Errorf("the bundle has the clause, and the file it was compiled from has not: %w", err)
	}
	return nil
}
