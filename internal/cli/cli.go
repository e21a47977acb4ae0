// Package cli is the command line: it parses, fills the Options of one part,
// calls one function of it, and prints what came back.
//
// It is not a place for decisions or for state. What a verb does can be tested
// without it, and no other package may import it.
//
// Invariants:
//
//  1. Standard output carries the result and nothing else. Every message goes
//     to standard error with the prefix "ringfence: ".
//  2. With --json the result is one JSON value, or JSON Lines for a stream, and
//     an error is one JSON object on standard error.
//  3. Exit statuses are those of [statuses]; one switch, [exitCode], maps errors
//     to them. What fails before a verb has started is a usage error.
//  4. Nothing is printed twice: usage text appears only when asked for.
//
// A verb is one file, verb_<name>.go, with one constructor that takes the
// [streams] and returns its *cobra.Command. Its flags are local variables of the
// constructor. [newRoot] lists the constructors; nothing registers itself.
package cli

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/external"
)

// Main runs the command line args, without the program's name, and returns the
// exit status. It does not keep the streams after it has returned.
func Main(args []string, in io.Reader, out, err io.Writer) int {
	s := &streams{in: in, out: &sink{w: out}, err: &sink{w: err}, args: args}
	if len(args) == 1 && args[0] == "--version" {
		fmt.Fprintf(s.out, "ringfence %s\n", version)
		return s.report(nil)
	}
	ctx, stop := untilSignal(context.Background())
	defer stop()
	root := newRoot(s)
	// Cobra reads os.Args when it is given nil.
	root.SetArgs(append([]string{}, args...))
	c, failure := root.ExecuteContextC(ctx)
	if failure == nil {
		failure = s.noHelp
	}
	return s.report(s.usage(c, failure))
}

// A signalled is why the context of a verb has ended: this process got a signal. It
// is a context.Canceled.
type signalled struct{ signal os.Signal }

func (e *signalled) Error() string        { return e.signal.String() }
func (e *signalled) Is(target error) bool { return target == context.Canceled }

// untilSignal returns a context that ends, because of a [signalled], with the first
// signal that asks this process to end. A second one ends the process at once,
// whatever a verb is waiting for. stop gives the signals back.
func untilSignal(parent context.Context) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	got := make(chan os.Signal, 1)
	signal.Notify(got, os.Interrupt, syscall.SIGTERM)
	go func() {
		select {
		case s := <-got:
			signal.Stop(got)
			cancel(&signalled{s})
		case <-ctx.Done():
		}
	}()
	return ctx, func() {
		signal.Stop(got)
		cancel(nil)
	}
}

// streams is what a verb may read from and write to.
type streams struct {
	in  io.Reader
	out *sink // the result
	err *sink // messages to a person

	json   bool  // --json
	ran    bool  // a verb has started, so an error is no longer one of usage
	noHelp error // why there is no help, where a person asked for it

	args     []string                              // the whole command line
	steps    func(line []byte) []external.Step     // reads the transcript of an agent; nil if there is none
	held     *holding                              // this process holds what it runs; nil for no
	narrowed string                                // the workspace, if the policy lets a box change only some of it; "" else
	guard    func(kill func() error) (stop func()) // watches over a box; nil for nobody
}

// sink remembers the first error of writing the result, so that a verb need not
// check each line it prints and a full disk is still not taken for success.
type sink struct {
	w   io.Writer
	err error
}

func (s *sink) Write(p []byte) (int, error) {
	if s.err != nil {
		return 0, s.err
	}
	n, err := s.w.Write(p)
	s.err = err
	return n, err
}

func newRoot(s *streams) *cobra.Command {
	root := &cobra.Command{
		Use:   "ringfence",
		Short: "Run AI agents whose every effect is decided, confined and recorded",
		Long: "Run AI agents on their own work. Every effect that an agent has on the world is\n" +
			"decided by a policy written in plain English, and recorded before it happens.",
		Version:       version,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.SetVersionTemplate("ringfence {{.Version}}\n")
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.SetIn(s.in)
	root.SetHelpFunc(s.help)
	root.SetFlagErrorFunc(flagError)
	root.PersistentFlags().BoolVar(&s.json, "json", false, "print the result as JSON")
	root.Flags().Bool("version", false, "print the version")
	root.AddCommand(
		newGenerate(s),
		newVersion(s),
		newDemo(s),
		newInit(s),
		newMCP(s),
		newServers(s),
		newRun(s),
		newStart(s),
		newAgents(s),
		newImages(s),
		newSessions(s),
		newHold(),
		newHook(s),
		newExec(s),
		newReview(s),
		newDoctor(s),
		newAttack(s),
		newApprovals(s),
		newGrants(s),
		newConstitution(s),
		newCompile(s, "compile-policy FILE"),
		newPolicy(s),
		newTools(s),
		newAnnotate(s),
		newSecret(s),
		newLedger(s),
		newNet(s),
		newStatistics(s),
		newVerify(s),
		newEngine(s),
		newServer(s),
	)
	root.SetHelpCommand(newHelp(s))
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	seal(s, root)
	return root
}

// help prints the help of c. What a group was given that is none of its commands is
// a mistake, also when help is asked for: the help of the group would hide it.
func (s *streams) help(c *cobra.Command, _ []string) {
	if words := c.Flags().Args(); c.HasSubCommands() && len(words) > 0 {
		s.noHelp = unknownCommand(c, words)
		return
	}
	fmt.Fprint(s.out, helpText(c))
}

// seal gives every command below c what all have in common: a group says which
// commands it has when it is given none or a wrong one, and a command notes that
// it has started. A command without Args takes no arguments.
func seal(s *streams, c *cobra.Command) {
	for _, sub := range c.Commands() {
		seal(s, sub)
	}
	if !c.Runnable() {
		c.Args = cobra.ArbitraryArgs
		c.RunE = unknownCommand
		if c.Annotations == nil {
			c.Annotations = map[string]string{}
		}
		c.Annotations[groupOnly] = "" // that it runs says no more
		return
	}
	if c.Args == nil {
		c.Args = cobra.NoArgs
	}
	fits := c.Args
	c.Args = func(c *cobra.Command, args []string) error {
		if fits(c, args) != nil {
			return argumentError(c, args)
		}
		return nil
	}
	run, plain := c.RunE, c.Run
	c.RunE = func(c *cobra.Command, args []string) error {
		s.ran = true
		if run == nil {
			plain(c, args)
			return nil
		}
		return run(c, args)
	}
}
