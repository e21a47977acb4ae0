package cli

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/desk"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/oauth"
	"ringfence/internal/mediator/remote"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// loginWait is how long a person has to agree.
const loginWait = 10 * time.Minute

// loginFlags are the flags of both verbs.
type loginFlags struct {
	file, policy string
	asks         execFlags // of which only how a person is asked
	open         bool
}

func (f *loginFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.file, "servers", "", "`FILE` that lists the servers (default: those that \"mcp add\" has added)")
	f.addAsking(flags)
}

// addAsking adds those that say who decides.
func (f *loginFlags) addAsking(flags *pflag.FlagSet) {
	flags.StringVar(&f.asks.ask, "ask", "", "terminal, desk or never: how you are asked where the policy wants that (default: terminal, if there is one)")
	flags.StringVar(&f.policy, "policy", "", "compiled constitution that decides what is reached on other machines, a `DIR`; without it the default one applies")
}

func newServersLogin(s *streams) *cobra.Command {
	var f loginFlags
	c := &cobra.Command{
		Use:   "login NAME",
		Short: "Log in to a server that is reached over HTTP",
		Long: "Find out who gives tokens for a server, print the URL at which you agree, wait\n" +
			"until your browser comes back to this machine, and keep the tokens in the vault.\n" +
			"The server gets them from ringfence; agents do not.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "there is no token"}),
		RunE: func(c *cobra.Command, args []string) error {
			srv, err := loginServer(s, f.file, args[0])
			if err != nil {
				return err
			}
			return login(c.Context(), s, srv, f)
		},
	}
	f.add(c.Flags())
	c.Flags().BoolVar(&f.open, "open", false, "open the URL in your browser too")
	return c
}

func newServersLogout(s *streams) *cobra.Command {
	var f loginFlags
	c := &cobra.Command{
		Use:   "logout NAME",
		Short: "Forget the tokens of a server, and have them ended",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			srv, err := loginServer(s, f.file, args[0])
			if err != nil {
				return err
			}
			return logout(c.Context(), s, srv, f)
		},
	}
	f.add(c.Flags())
	return c
}

// loginServer returns the server called name of a list, if it is one to log in to.
func loginServer(s *streams, file, name string) (mediator.Server, error) {
	log := slog.New(slog.NewTextHandler(s.err, &slog.HandlerOptions{Level: slog.LevelError}))
	if err := ownList(&file); err != nil {
		return mediator.Server{}, err
	}
	servers, err := agreedServers(file, log)
	if err != nil {
		return mediator.Server{}, err
	}
	found, err := only(servers, name)
	if err != nil {
		return mediator.Server{}, err
	}
	srv := found[0]
	if why := noLogin(srv); why != "" {
		return srv, &exitError{code: codeUsage, err: fmt.Errorf("server %s is not logged in to: %s", name, why)}
	}
	return srv, nil
}

// noLogin is why a server is not one to log in to, "" if it is.
func noLogin(srv mediator.Server) string {
	switch {
	case !srv.Remote():
		return "it is started by us, and not reached over HTTP"
	case srv.Ringfence.Socket != "":
		return "it is reached by a Unix socket"
	case srv.Headers["Authorization"] != "":
		return "its entry has an Authorization header, which is what it is shown"
	}
	return ""
}

// A personSession is the session in which a person's own verb reaches other machines. It
// is opened when it is needed.
type personSession struct {
	s       *streams
	verb    string // of which it is, for people
	f       loginFlags
	client  *api.Client
	session *api.Session
	quiet   func()           // ends what tells of questions
	servers []api.ServerInfo // whose boxes have a way out by it
	known   services

	denials atomic.Int64 // requests that were denied
}

// wasDenied hears of a request that was denied.
func (p *personSession) wasDenied() { p.denials.Add(1) }

func (p *personSession) open(ctx context.Context) (act.Decider, error) {
	if p.session != nil {
		return p.session, nil
	}
	client, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	p.client = client
	conf, _, err := settings()
	if err != nil {
		return nil, err
	}
	own, err := p.f.asks.asksHere(p.s)
	if err != nil {
		return nil, err
	}
	r := api.OpenRequest{Principal: "default/" + p.verb, Verb: p.verb, Ask: api.AskDesk, OwnTerminal: own, Servers: p.servers, Reads: p.known.reads()}
	never := conf.AskNever || p.f.asks.ask == api.AskNever
	if never {
		r.Ask = api.AskNever
	}
	if r.Workspace, err = os.Getwd(); err != nil {
		return nil, fmt.Errorf("finding the workspace: %w", err)
	}
	if p.f.policy != "" {
		if r.PolicyDir, err = filepath.Abs(p.f.policy); err != nil {
			return nil, fmt.Errorf("finding the policy: %w", err)
		}
	}
	if p.session, err = client.OpenSession(ctx, r); err != nil {
		return nil, sessionError(err)
	}
	// Both last as long as the session, and not as the request that came first.
	telling := context.WithoutCancel(ctx)
	switch {
	case never:
	case own:
		p.quiet = p.s.answerHere(telling, client, p.session.Opened().Session)
	default:
		p.quiet = p.s.tellWait(telling, client, p.session.Opened().Session)
	}
	return p.session, nil
}

func (p *personSession) close(ctx context.Context) error {
	if p.client == nil {
		return nil
	}
	if p.quiet != nil {
		p.quiet()
	}
	var err error
	if p.session != nil {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = p.session.Close(ctx)
	}
	return errors.Join(err, p.client.Close())
}

// loginClient returns what logs in to srv, over p to other machines.
func loginClient(p *personSession, srv mediator.Server, person func(context.Context, string) error) (*oauth.Client, error) {
	carrier, err := remote.Reach(&farWay{open: p.open})(srv)
	if err != nil {
		return nil, &exitError{code: codeFailed, err: fmt.Errorf("reaching server %s: %w", srv.Name, err)}
	}
	o := loginOptions(srv, carrier)
	o.Person, o.Note, o.Wait = person, func(text string) { p.s.say("%s", text) }, loginWait
	return oauth.New(o)
}

// show returns what tells the person where they log in to the server name.
func (p *personSession) show(name string) func(context.Context, string) error {
	return func(_ context.Context, at string) error {
		p.s.say("To log in to %s, open this URL in your browser:\n\n  %s\n\nIt comes back to this machine, which waits for %v.", name, at, loginWait)
		if !p.f.open {
			return nil
		}
		if err := openBrowser(at); err != nil {
			p.s.say("%v", err)
		}
		return nil
	}
}

// logInFirst has the person log in to a server that is about to be looked at, if it
// wants that and there is a terminal to say so at.
func (p *personSession) logInFirst(ctx context.Context, srv mediator.Server) error {
	if noLogin(srv) != "" || !p.s.atTerminal() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	c, err := loginClient(p, srv, p.show(srv.Name))
	if err != nil {
		return err
	}
	if wanted, err := c.Wanted(ctx); err != nil || !wanted {
		return nil // whoever looks at the server says why it cannot be reached
	}
	if _, err := c.Login(ctx); err != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("logging in to server %s: %w", srv.Name, err)}
	}
	return nil
}

// A loggedIn is what a login gave, without the tokens.
type loggedIn struct {
	Name    string    `json:"name"`
	Issuer  string    `json:"issuer"`
	Scopes  []string  `json:"scopes"`
	Expires time.Time `json:"expires,omitzero"`
	Renewed bool      `json:"renewed"` // by itself, when it expires
}

func login(ctx context.Context, s *streams, srv mediator.Server, f loginFlags) (err error) {
	ctx, cancel := context.WithTimeout(ctx, loginWait)
	defer cancel()
	p := &personSession{s: s, verb: "login", f: f}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	c, err := loginClient(p, srv, p.show(srv.Name))
	if err != nil {
		return err
	}
	g, err := c.Login(ctx)
	if err != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("logging in to server %s: %w", srv.Name, err)}
	}
	r := loggedIn{Name: srv.Name, Issuer: g.Issuer, Scopes: g.Scopes, Expires: g.Expiry, Renewed: g.Refresh != ""}
	if r.Scopes == nil {
		r.Scopes = []string{}
	}
	return s.value(r, func() string {
		text := fmt.Sprintf("%s: logged in at %s", r.Name, desk.Visible(r.Issuer, 200))
		if len(r.Scopes) > 0 {
			text += ", for " + strings.Join(r.Scopes, " ")
		}
		switch {
		case r.Renewed:
			text += "; renewed by itself"
		case !r.Expires.IsZero():
			text += "; until " + r.Expires.Format(time.DateTime)
		}
		return text + "\n"
	})
}

func logout(ctx context.Context, s *streams, srv mediator.Server, f loginFlags) (err error) {
	p := &personSession{s: s, verb: "logout", f: f}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	c, err := loginClient(p, srv, nil)
	if err != nil {
		return err
	}
	had, err := c.Logout(ctx)
	if err != nil {
		return &exitError{code: codeFailed, err: fmt.Errorf("logging out of server %s: %w", srv.Name, err)}
	}
	type loggedOut struct {
		Name string `json:"name"`
		Had  bool   `json:"had"` // something was stored
	}
	return s.value(loggedOut{srv.Name, had}, func() string {
		if !had {
			return srv.Name + ": nobody was logged in\n"
		}
		return srv.Name + ": logged out\n"
	})
}

// openBrowser has the system open a URL.
func openBrowser(at string) error {
	for _, name := range []string{"xdg-open", "open"} {
		for _, dir := range paths.SystemPath() {
			program := filepath.Join(dir, name)
			if info, err := os.Stat(program); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				continue
			}
			if _, err := proc.Detach(proc.Command{Argv: []string{program, at}, Env: append(os.Environ(), "PATH="+strings.Join(paths.SystemPath(), ":"))}); err != nil {
				return fmt.Errorf("opening the browser: %w", err)
			}
			return nil
		}
	}
	return errors.New("the browser is not opened: there is neither xdg-open nor open")
}
