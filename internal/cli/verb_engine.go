package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act/display"
	"ringfence/internal/daemon"
	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator/control"
	"ringfence/internal/sandbox/native"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// newEngine is "ringfence engine".
func newEngine(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "engine",
		Short: "The process that decides and records",
		Long: "The engine is the one process of a home that decides, asks and records. It is\n" +
			"started when a command needs it and ends some minutes after the last session.",
	}
	c.AddCommand(newEngineRun(), newEngineStatus(s), newEngineStop(s))
	return c
}

func newEngineRun() *cobra.Command {
	var started bool
	c := &cobra.Command{
		Use:    "run",
		Short:  "Be the engine of this home until idle",
		Hidden: true,
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			image, err := native.KeepImage()
			if err != nil {
				return err
			}
			if image != nil {
				defer image.Close()
			}
			if err := proc.NoCores(); err != nil { // it has the secrets of this person
				return err
			}
			if err := sweepMediators(home); err != nil {
				return err
			}
			err = daemon.Serve(c.Context(), daemon.Options{Home: home, Program: version, Sweep: native.Sweep}, started)
			if errors.Is(err, ipc.ErrLocked) {
				return nil
			}
			return err
		},
	}
	c.Flags().BoolVar(&started, daemon.FlagStarted, false, "say on the pipe that is descriptor 3 how it went")
	return c
}

// sweepMediators removes what mediators that were killed have left in home.
func sweepMediators(home string) error {
	socket, err := paths.EngineSocket(home)
	if err != nil {
		return err
	}
	return control.SweepAll(socket)
}

func newEngineStatus(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "status",
		Short: "Say whether the engine runs, and what it holds",
		RunE: func(c *cobra.Command, _ []string) error {
			err := with(c.Context(), connectRunning, func(e *api.Client) error {
				st, err := e.Status(c.Context())
				if err != nil {
					return err
				}
				return s.value(st, func() string { return statusText(st) })
			})
			if errors.Is(err, api.ErrNotRunning) {
				return &exitError{code: codeFailed, err: errors.New("no engine runs"), hint: "it is started by the first command that needs it"}
			}
			return err
		},
	}
}

func statusText(st api.Status) string {
	var b strings.Builder
	fmt.Fprintf(&b, "engine    pid %d, version %s, since %s\n", st.PID, st.Program, st.Started.Local().Format("2006-01-02 15:04:05"))
	fmt.Fprintf(&b, "home      %s\n", st.Home)
	fmt.Fprintf(&b, "sessions  %d open, %s waiting\n", st.Sessions, display.Count(st.Questions, "question", "questions"))
	for _, o := range st.Open {
		fmt.Fprintf(&b, "          %s\n", o)
	}
	fmt.Fprintf(&b, "ledger    %s, root %s\n", display.Count(st.Entries, "entry", "entries"), st.Root)
	fmt.Fprintf(&b, "memory    %.1f MB\n", float64(st.MemoryBytes)/1e6)
	return b.String()
}

func newEngineStop(s *streams) *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use:   "stop",
		Short: "End the engine",
		Long: "End the engine. While sessions are open it refuses, and says which: it would cut them\n" +
			"off. With --force what they have under way is on record as orphaned, and what waits\n" +
			"for a person is denied; clients go on with the next engine, which they start.",
		RunE: func(c *cobra.Command, _ []string) error {
			home, err := paths.EnsureHome()
			if err != nil {
				return err
			}
			cut := []api.OpenSession{}
			if force {
				// Who cannot be told what is cut off, by an engine of another version, can
				// still stop it.
				_ = with(c.Context(), connectRunning, func(e *api.Client) error {
					st, err := e.Status(c.Context())
					cut = append(cut, st.Open...)
					return err
				})
			}
			err = api.StopAny(c.Context(), api.Options{Home: home}, force)
			// An engine that ends may be gone before its answer has come.
			if errors.Is(err, api.ErrNotRunning) {
				return &exitError{code: codeFailed, err: errors.New("no engine runs")}
			}
			if err != nil && !errors.Is(err, api.ErrUnreachable) {
				return err
			}
			if err := awaitEnd(c.Context()); err != nil {
				return err
			}
			return s.value(map[string]any{"stopped": true, "cut_off": cut}, func() string { return stoppedText(cut) })
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also while sessions are open; they can be resumed")
	return c
}

func stoppedText(cut []api.OpenSession) string {
	var b strings.Builder
	b.WriteString("The engine has ended.\n")
	for _, o := range cut {
		fmt.Fprintf(&b, "cut off   %s\n", o)
	}
	return b.String()
}

// awaitEnd waits until no process is the engine of this home: the last checkpoint
// is then on disk.
func awaitEnd(ctx context.Context) error {
	home, err := paths.Home()
	if err != nil {
		return err
	}
	for {
		lock, err := ipc.NewLock(paths.EngineLock(home))
		if err == nil {
			return lock.Unlock()
		}
		if !errors.Is(err, ipc.ErrLocked) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(5 * time.Millisecond):
		}
	}
}
