package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/launch"
	"ringfence/internal/policy"
	"ringfence/internal/sandbox"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
)

// execFlags are the flags of "ringfence exec" and "ringfence run".
type execFlags struct {
	verb                             string
	profile, tier, workspace, policy string
	readOnly, readWrite              []string
	env                              named
	net, report, ask, envFile        string
	wait, timeout                    span
	memory, output                   amount
	processes, descriptors           number
	tokens, dollars                  number
	providerProfile                  string
	review                           bool

	resumes string // the session that this one goes on with

	explain bool // say how the policy is held, and start nothing

	image string // that the box is made of; "" is that of the configuration
	guest *guest // an agent that is known; nil for any other command
}

// netPolicy is the network of a box that reaches what the policy allows.
const netPolicy = "policy"

// newExec is "ringfence exec".
func newExec(s *streams) *cobra.Command {
	f := execFlags{verb: "exec"}
	c := &cobra.Command{
		Use:   "exec [flags] -- CMD…",
		Short: "Run one command in a box",
		Long: "Run one command in a box, after the gate has allowed it and the box is on record.\n" +
			"The command sees the workspace, the programs of the system, a private /tmp and\n" +
			"nothing else; it has no network, but with --net policy. A box that cannot be built is an error, and then\n" +
			"the command did not run.",
		Example: "  ringfence exec -- make test\n  ringfence exec --profile agent --rw ~/.cache/go-build -- go build ./...\n" +
			"  ringfence exec --net policy --profile agent --policy ./coding -- npm ci",
		Args:        cobra.MinimumNArgs(1),
		Annotations: exits(boxStatuses()...),
		RunE:        func(c *cobra.Command, args []string) error { return runBoxed(c.Context(), s, f, args) },
	}
	f.flags(c, sandbox.ProfileCommand)
	return c
}

func boxStatuses() []status {
	return []status{
		{codeDeadline, "its time was over"},
		{codeNotBuilt, "the box could not be built; nothing was run"},
		{codeNotRun, "denied; nothing was run"},
		{codeNotFound, "the program is not there"},
	}
}

func (f *execFlags) flags(c *cobra.Command, profile sandbox.Profile) {
	fl := c.Flags()
	fl.StringVar(&f.profile, "profile", string(profile), "what the box is for: command, agent, server or code")
	fl.StringVar(&f.tier, "tier", "", "how it is confined: native, container, or none (default: as configured)")
	fl.StringVarP(&f.workspace, "workspace", "w", "", "`DIR` to work in (default: the working directory)")
	fl.StringVar(&f.policy, "policy", "", "compiled constitution, a `DIR`; without it the default one applies")
	fl.StringArrayVar(&f.readOnly, "ro", nil, "`PATH` that may be read; may be repeated")
	fl.StringArrayVar(&f.readWrite, "rw", nil, "`PATH` that may be changed; may be repeated")
	fl.Var(&f.env, "env", "`NAME` of a variable to hand on, or NAME=VALUE; may be repeated")
	fl.StringVar(&f.net, "net", "none", "none, or policy: hosts that the policy allows")
	fl.StringVar(&f.envFile, "env-file", "", "`FILE` of NAME=VALUE lines with keys of model providers, for --net policy (default: .env in the home of ringfence)")
	fl.StringVar(&f.report, "report", "", "write what confines the command to `FILE`, as JSON")
	fl.StringVar(&f.ask, "ask", "", "terminal, desk or never (default: terminal, if there is one)")
	fl.Var(&f.wait, "ask-wait", "`TIME` that a person is waited for, such as 90s (default: as configured)")
	fl.Var(&f.timeout, "timeout", "`TIME` after which everything in the box is killed, such as 5m (default: of the profile)")
	fl.Var(&f.memory, "memory", "`BYTES` that the box may use together, such as 512M or 2G (default: of the profile)")
	fl.Var(&f.output, "output", "`BYTES` that it may write to each of its streams, such as 1M; more is dropped (default: no limit)")
	fl.BoolVar(&f.review, "review", false, "keep what it changes apart from the workspace, for \"ringfence review\"")
	fl.Var(&f.processes, "processes", "`NUMBER` of processes in the box (default: of the profile)")
	fl.Var(&f.tokens, "budget-tokens", "`NUMBER` of tokens that models may use in this session (default: as configured)")
	fl.Var(&f.dollars, "budget-usd", "`NUMBER` of dollars, a whole one, that models may cost in this session (default: as configured)")
	fl.StringVar(&f.providerProfile, "provider-profile", "", "`NAME` of a profile of the configuration: another provider answers, with its key and its models")
	fl.Var(&f.descriptors, "descriptors", "`NUMBER` of files that each process may have open (default: of the profile)")
}

// runBoxed runs args as f says and returns its exit status as an error.
func runBoxed(ctx context.Context, s *streams, f execFlags, args []string) (err error) {
	conf, from, err := settings()
	if err != nil {
		return err
	}
	if err := f.inImage(ctx, &conf.Box, from); err != nil {
		return err
	}
	tier, err := tierOf(s, conf.Box, f.tier)
	if err != nil {
		return err
	}
	spec, err := f.spec(args)
	if err != nil {
		return err
	}
	if spec, err = f.guest.moveIn(spec, f.env); err != nil {
		return err
	}
	s.sayEach("--env %s: it is not set here, so the box does not have it", f.env.unset())
	if f.explain {
		return f.explained(ctx, s, conf, tier.Name(), spec)
	}
	sweep(ctx, s, tier)
	var image imageOfEngine
	tier = image.in(tier)
	if !f.review { // an overlay is named by the session
		var discard func() error
		tier, discard = launch.Ahead(tier, spec)
		defer func() { err = errors.Join(err, discard()) }()
	}
	defer image.is(0) // before a box that was begun is given up
	client, err := connectAs(ctx, image.is)
	if err != nil {
		return err
	}
	defer client.Close() //nolint:errcheck // what is to be recorded was, or the verb has failed
	own, err := f.asksHere(s)
	if err != nil {
		return err
	}
	begun, discardWay := f.begin(ctx, client, tier)
	defer func() { err = errors.Join(err, discardWay()) }()
	known, err := f.services(ctx, s, conf)
	if err != nil {
		return err
	}
	open, err := f.guest.opens(s, f, f.open(spec, own, conf.AskNever, known), tier)
	if err != nil {
		return err
	}
	session, err := client.OpenSession(ctx, open)
	if err != nil {
		return f.guest.placed(sessionError(err))
	}
	kept, err := f.keepRun(s, session.Opened(), spec, tier.Name())
	if err != nil {
		return errors.Join(err, session.Close(ctx))
	}
	s.guard = kept.guard(ctx, client.Hello().PID, f.guest)
	defer func() { err = kept.ended(ctx, codeDone, err) }()
	s.sayEach("%s", session.Opened().Notes)
	spec, grips, err := f.grip(ctx, s, client, session.Opened().Session, conf, tier.Name(), spec)
	if err != nil {
		return err
	}
	spec.Held = heldIn(spec, session.Opened().Held)
	spec, way, err := f.wayOut(ctx, known, session, begun, spec)
	if err != nil {
		return err
	}
	spec, err = f.guest.settle(ctx, s, client, session, way, spec)
	if err != nil {
		return err
	}
	stop := func() {}
	defer func() { stop() }()
	switch {
	case own:
		stop = s.answerHere(ctx, client, session.Opened().Session)
	case s.held == nil && f.ask != api.AskNever && !conf.AskNever:
		stop = s.tellWait(ctx, client, session.Opened().Session)
	}
	status, settle, err := s.launchReviewed(ctx, launch.Options{Session: session, Tier: tier, Absent: grips.Absent, Fixed: grips.Fixed, Review: f.review && f.verb == "run", Confirmed: func(r sandbox.Report) error {
		stop() // all is decided, and the terminal is the program's from here on
		f.guest.introduce(s, r, session.Opened().Session, spec)
		return f.confirmed(s, r)
	}}, spec, f.review, session.Opened().Session)
	closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	err = errors.Join(f.boxError(ctx, err, conf.AskNever), f.guest.leave(), way.close(), session.Close(closing), settle())
	if err == nil && status != 0 {
		err = &exitError{code: status}
	}
	return err
}

// asksHere reports whether this process asks at its own terminal.
func (f *execFlags) asksHere(s *streams) (bool, error) {
	switch {
	case f.ask != "" && f.ask != askTerminal, s.held != nil: // whoever looks at it asks
		return false, nil
	case !s.atTerminal() && f.ask == askTerminal:
		return false, &exitError{code: codeUsage, err: errors.New("there is no terminal to ask at"), hint: "use --ask desk or --ask never"}
	}
	return s.atTerminal(), nil
}

// boxError gives an error of launching its exit status, and the words that are for a
// person. With never nobody is asked, as
// the configuration has it.
func (f *execFlags) boxError(ctx context.Context, err error, never bool) error {
	var denied *launch.DeniedError
	switch {
	case err == nil:
		return nil
	case interrupted(ctx) && errors.Is(err, context.Cause(ctx)):
		return &exitError{code: codeInterrupted, err: errors.New("interrupted")}
	case errors.As(err, &denied) && denied.Ticket.Code == act.CodeNotFound:
		return &exitError{code: codeNotFound, err: err}
	case errors.As(err, &denied):
		// Whoever typed the command is no agent.
		plain := errors.New(strings.Replace(err.Error(), " "+policy.ForAgents, "", 1))
		return &exitError{code: codeNotRun, err: plain, hint: f.denialHint(denied.Ticket.Code, never, !strings.Contains(denied.Ticket.Reason, "Nobody was asked:"))}
	case errors.Is(err, api.ErrUndecided):
		return &exitError{code: codeNotRun, err: err, hint: "nothing was run; try again"}
	case errors.Is(err, sandbox.ErrNotFound):
		return &exitError{code: codeNotFound, err: err}
	case errors.Is(err, sandbox.ErrNotBuilt) && f.review:
		return &exitError{code: codeNotBuilt, err: err, hint: "nothing was run"} // the error says what --review needs
	case errors.Is(err, sandbox.ErrNotBuilt):
		return &exitError{code: codeNotBuilt, err: err, hint: "nothing was run; \"ringfence doctor\" says what this machine can enforce"}
	}
	return err
}

// denialHint says what the person who typed the command can do about a denial. waited
// says that somebody could have answered, or nobody may be asked.
func (f *execFlags) denialHint(code act.Code, never, waited bool) string {
	switch {
	case code == act.CodePolicy && f.policy == "":
		return "the default constitution applies: \"ringfence policy show\" prints it, --policy DIR names another"
	case code == act.CodePolicy:
		return fmt.Sprintf("\"ringfence policy show --policy %s\" prints what applies, clause by clause", f.policy)
	case code != act.CodeNoAnswer || !waited:
		return ""
	case never && f.ask != api.AskNever:
		return "the configuration says that nobody is asked (ask.never)"
	case f.ask == api.AskNever:
		return "without \"--ask never\" a person can say yes, here or with \"ringfence approvals\" in another terminal"
	}
	return "--ask-wait says how long a person is waited for"
}

// confirmed tells the person what his box does not hold, before anything runs in it, and
// writes the report where he wants it.
func (f execFlags) confirmed(s *streams, r sandbox.Report) error {
	if r.Tier == sandbox.TierNone {
		s.say("no box: the command runs as you do, and nothing holds it to what was decided")
	}
	for _, layer := range r.Missing {
		if !strings.HasPrefix(layer, sandbox.LayerCgroup) { // what of the profile's limits is held differs from machine to machine
			s.say("not held: %s: %s", layer, r.Evidence[layer])
		}
	}
	if f.report == "" {
		return nil
	}
	raw, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return atomicfile.WriteOutput(f.report, append(raw, '\n'), 0o644)
}

const askTerminal = "terminal"

func (f execFlags) open(spec sandbox.Spec, own, never bool, known services) api.OpenRequest {
	ask := f.ask
	if own || ask == "" {
		ask = api.AskDesk
	}
	if never {
		ask = api.AskNever
	}
	return api.OpenRequest{
		Principal: "default/exec", Verb: f.verb, Workspace: spec.Workspace.Path, PolicyDir: f.policy, Ask: ask, OwnTerminal: own,
		AskSeconds: f.wait.seconds(), Box: json.RawMessage(api.BoxFollows), Budget: budgetOf(f.tokens, f.dollars),
		Reads: known.reads(), Resumes: f.resumes,
	}
}

// spec is the box that f and args describe. Paths are made absolute here and
// resolved by the gate.
func (f *execFlags) spec(args []string) (s sandbox.Spec, err error) {
	absolute := func(p string) string {
		if err == nil {
			p, err = filepath.Abs(p)
		}
		return p
	}
	s = sandbox.Spec{
		Argv: args, Profile: sandbox.Profile(f.profile), Env: environment(f.env),
		Limits: sandbox.Limits{
			Wall: time.Duration(f.timeout), Memory: int64(f.memory), Output: orUnlimited(int64(f.output)),
			Processes: int(f.processes), Descriptors: int(f.descriptors),
		},
	}
	if f.workspace == "" {
		f.workspace = "."
	}
	s.Workspace.Path = absolute(f.workspace)
	if f.policy != "" {
		f.policy = absolute(f.policy)
	}
	s.Env = append(committer(s.Workspace.Path, s.Env), s.Env...)
	for _, p := range f.readOnly {
		s.ReadOnly = append(s.ReadOnly, absolute(p))
	}
	for _, p := range f.readWrite {
		s.ReadWrite = append(s.ReadWrite, absolute(p))
	}
	if err != nil {
		return s, fmt.Errorf("finding a path: %w", err)
	}
	switch s.Workspace.Mode = s.Profile.Workspace(); s.Profile {
	case sandbox.ProfileCommand, sandbox.ProfileAgent, sandbox.ProfileServer, sandbox.ProfileCode:
	default:
		return s, &exitError{code: codeUsage, err: fmt.Errorf("no profile %q; there are command, agent, server and code", f.profile)}
	}
	if asks := []string{"", askTerminal, api.AskDesk, api.AskNever}; !slices.Contains(asks, f.ask) {
		return s, &exitError{code: codeUsage, err: fmt.Errorf("--ask %q is none of terminal, desk, never", f.ask)}
	}
	switch f.net {
	case "none":
		return s, nil
	case netPolicy:
		s.Network = sandbox.NetworkPolicy
		return s, nil
	}
	return s, &exitError{code: codeUsage, err: fmt.Errorf("no network %q; there are none and policy", f.net)}
}

// environment is what a box gets: what says where and in which language, and what
// was named.
func environment(named []string) []string {
	env := paths.BoxEnvironment()
	for _, n := range named {
		name, value, given := strings.Cut(n, "=")
		if !given {
			v, ok := paths.Variable(name)
			if !ok {
				continue
			}
			value = v
		}
		env = slices.DeleteFunc(env, func(kv string) bool { return strings.HasPrefix(kv, name+"=") })
		env = append(env, name+"="+value)
	}
	return env
}

// orUnlimited returns limit, or that there is none: what a person sees as it is written
// need not be bounded, as what an agent gets is.
func orUnlimited(limit int64) int64 {
	if limit == 0 {
		return sandbox.Unlimited
	}
	return limit
}
