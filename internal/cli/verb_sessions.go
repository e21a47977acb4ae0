package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/session"
	"ringfence/internal/session/attach"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// newSessions is "ringfence sessions".
func newSessions(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "sessions",
		Short: "See what \"ringfence run\" runs and has run, come back to it, and go on with it",
		Long: "See what \"ringfence run\" runs and has run. What was begun at a terminal, or with\n" +
			"--detach, runs on when the terminal is gone: come back with attach. What has ended,\n" +
			"or was interrupted, goes on with resume: in the same workspace, with the same home,\n" +
			"and an agent with its last conversation there.",
	}
	c.AddCommand(newSessionsList(s), newSessionsShow(s), newSessionsAttach(s), newSessionsLogs(s), newSessionsStop(), newSessionsResume(s), newSessionsRm(s))
	return c
}

// A shownRun is a run as people see it.
type shownRun struct {
	State string `json:"state"`
	session.Run
}

func runsDir() (string, error) {
	home, err := paths.EnsureHome()
	if err != nil {
		return "", err
	}
	return paths.Runs(home), nil
}

// aRun is the run that a person names: by its id, or what that begins with.
func aRun(name string) (session.Run, error) {
	dir, err := runsDir()
	if err != nil {
		return session.Run{}, err
	}
	all, err := session.Runs(dir)
	if err != nil {
		return session.Run{}, err
	}
	var found []session.Run
	for _, r := range all {
		if r.ID == name {
			return r, nil
		}
		if strings.HasPrefix(r.ID, name) && name != "" {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return session.Run{}, &exitError{code: codeFailed, err: fmt.Errorf("there is no session %q", name), hint: "\"ringfence sessions list\" names them"}
	}
	return session.Run{}, &exitError{code: codeUsage, err: fmt.Errorf("%d sessions begin with %q", len(found), name), hint: "\"ringfence sessions list\" names them"}
}

func newSessionsList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List them, the latest first",
		RunE: func(*cobra.Command, []string) error {
			dir, err := runsDir()
			if err != nil {
				return err
			}
			all, err := session.Runs(dir)
			if err != nil {
				return err
			}
			shown := make([]shownRun, 0, len(all))
			for _, r := range all {
				shown = append(shown, shownRun{r.State(), r})
			}
			return s.value(shown, func() string {
				if len(shown) == 0 {
					return "Nothing was run.\n"
				}
				var b strings.Builder
				for _, r := range shown {
					fmt.Fprintf(&b, "%s  %-11s  %s  %s\n", r.ID, r.State, r.Began.Local().Format(time.DateTime), r.Title)
				}
				return b.String()
			})
		},
	}
}

func newSessionsShow(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "show SESSION",
		Short: "Show one",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := aRun(args[0])
			if err != nil {
				return err
			}
			return s.value(shownRun{r.State(), r}, func() string { return runText(r) })
		},
	}
}

func runText(r session.Run) string {
	var b strings.Builder
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-10s %s\n", what, value)
		}
	}
	line("session", r.ID)
	line("state", r.State())
	line("what", r.Title)
	line("workspace", r.Workspace)
	line("policy", r.Policy)
	line("tier", r.Tier)
	line("began", r.Began.Local().Format(time.DateTime))
	if !r.Ended.IsZero() {
		line("ended", fmt.Sprintf("%s, status %d", r.Ended.Local().Format(time.DateTime), r.Status))
	}
	line("because", r.Cause)
	line("goes on as", r.Resumed)
	line("record", "ringfence ledger show "+r.ID)
	return b.String()
}

// comeTo connects to the holder of a run.
func comeTo(ctx context.Context, r session.Run) (net.Conn, error) {
	if r.State() != session.Running {
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("session %s does not run: it is %s", r.ID, r.State()), hint: "\"ringfence sessions resume " + r.ID + "\" goes on with it"}
	}
	if r.Socket == "" {
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("session %s was not begun at a terminal: nobody can come to it", r.ID), hint: "what is begun with --detach can be come to"}
	}
	return ipc.Dial(ctx, r.Socket)
}

func newSessionsAttach(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "attach SESSION",
		Short: "Come to one that runs; Ctrl-\\ then d leaves it",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := aRun(args[0])
			if err != nil {
				return err
			}
			if !s.atTerminal() {
				return &exitError{code: codeUsage, err: errors.New("there is no terminal to show it at"), hint: "\"ringfence sessions logs\" prints what was shown"}
			}
			conn, err := comeTo(c.Context(), r)
			if err != nil {
				return err
			}
			_, err = s.look(c.Context(), conn)
			return err
		},
	}
}

func newSessionsLogs(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "logs SESSION",
		Short: "Print the last of what it showed, as it was written to its terminal",
		Args:  cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			r, err := aRun(args[0])
			if err != nil {
				return err
			}
			dir, err := runsDir()
			if err != nil {
				return err
			}
			text, err := os.ReadFile(filepath.Join(dir, r.ID, screenLog))
			if errors.Is(err, fs.ErrNotExist) {
				return &exitError{code: codeFailed, err: fmt.Errorf("nothing is kept of what %s showed", r.ID), hint: "it is written every few seconds; \"ringfence sessions attach\" shows one that runs"}
			}
			if err != nil {
				return fmt.Errorf("reading what it showed: %w", err)
			}
			shown := string(text)
			if s.out.onTerminal() {
				shown = printable(shown) // whatever it did to its terminal, it does nothing to this one
			}
			return s.value(map[string]string{"session": r.ID, "screen": string(text)}, func() string { return shown })
		},
	}
}

func newSessionsStop() *cobra.Command {
	return &cobra.Command{
		Use:   "stop SESSION",
		Short: "End one that runs: it hears so, and is ended five seconds later if it does not",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := aRun(args[0])
			if err != nil {
				return err
			}
			conn, err := comeTo(c.Context(), r)
			if err != nil {
				return err
			}
			return errors.Join(attach.End(c.Context(), conn), closed(conn))
		},
	}
}

// closed closes what may be closed by now.
func closed(c io.Closer) error {
	if err := c.Close(); !errors.Is(err, net.ErrClosed) {
		return err
	}
	return nil
}

func newSessionsResume(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "resume SESSION",
		Short: "Go on with one that has ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			r, err := aRun(args[0])
			if err != nil {
				return err
			}
			if r.State() == session.Running {
				return &exitError{code: codeFailed, err: fmt.Errorf("session %s still runs", r.ID), hint: "\"ringfence sessions attach " + r.ID + "\" comes to it"}
			}
			if fi, err := os.Stat(r.Workspace); err != nil || !fi.IsDir() {
				return &exitError{code: codeFailed, err: fmt.Errorf("its workspace %s is no directory any more", r.Workspace)}
			}
			return s.hold(c.Context(), r.Dir, again(r), !s.atTerminal())
		},
	}
}

func newSessionsRm(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "rm SESSION…",
		Short: "Forget some that have ended; the ledger keeps what they did",
		Args:  cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			dir, err := runsDir()
			if err != nil {
				return err
			}
			for _, name := range args {
				r, err := aRun(name)
				if err != nil {
					return err
				}
				if r.State() == session.Running {
					return &exitError{code: codeFailed, err: fmt.Errorf("session %s runs", r.ID), hint: "\"ringfence sessions stop " + r.ID + "\" ends it"}
				}
				if err := session.RemoveRun(dir, r.ID); err != nil {
					return err
				}
				s.say("forgot %s", r.ID)
			}
			return nil
		},
	}
}
