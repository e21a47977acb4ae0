package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/daemon/api"
	"ringfence/internal/mediator"
	"ringfence/internal/sandbox"
)

// held reports whether the network of a server's box is held host by host.
func held(server mediator.Server) bool {
	r := server.Ringfence
	return len(r.Hosts) > 0 && r.Network == "" && r.Builtin == "" && !r.Unboxed && !server.Remote()
}

// anyHeld reports whether that of one of servers is.
func anyHeld(servers []mediator.Server) bool { return slices.ContainsFunc(servers, held) }

// serverServices are what boxes of servers may ask as what it is; none without one that has
// a way out.
func serverServices(ctx context.Context, s *streams, servers []mediator.Server) (services, error) {
	conf, _, err := settings()
	if err != nil || !anyHeld(servers) {
		return services{conf: conf}, err
	}
	return servicesOf(ctx, s, conf), nil
}

// A serverWay opens the ways out of the boxes of servers, each by itself. What goes out is
// decided as of the server that the box is of.
type serverWay struct {
	tier    sandbox.Tier
	known   func(ctx context.Context) (services, error)
	session func(ctx context.Context) (*api.Client, *api.Session, error)
	denied  func(server string, t act.Ticket) // hears of each request that was; may be nil
}

// open is [mediator.Boxes.Way].
func (w serverWay) open(ctx context.Context, server mediator.Server, spec sandbox.Spec) (sandbox.Spec, func() error, error) {
	client, session, err := w.session(ctx)
	if err != nil {
		return spec, nil, err
	}
	known, err := w.known(ctx)
	if err != nil {
		return spec, nil, err
	}
	network, err := networkOf(known.conf)
	if err != nil {
		return spec, nil, err
	}
	env, sentinels, err := lentTo(ctx, session, known, spec.Env)
	if err != nil {
		return spec, nil, err
	}
	way, err := beginWay(ctx, client, w.tier)()
	if err != nil {
		return spec, nil, err
	}
	of := ofServer{session, server.Name, w.denied}
	if err := way.serve(ctx, session, of, sentinels, network, known); err != nil {
		return spec, nil, errors.Join(err, way.close())
	}
	spec.Env = env
	return way.through(spec), way.close, nil
}

// lentTo is env with what stands for the secrets that it names in their places, and what
// stands for any. Those that it does not name may go nowhere: the server was not given them.
func lentTo(ctx context.Context, session *api.Session, known services, env []string) ([]string, []loan.Sentinel, error) {
	own, err := ownSecrets(known.conf.Models.Keyed(), "")
	if err != nil {
		return nil, nil, err
	}
	sentinels, err := session.Sentinels(ctx, own)
	if err != nil {
		return nil, nil, err
	}
	given := map[string]bool{}
	env = slices.Clone(env)
	for i, kv := range env {
		variable, value, _ := strings.Cut(kv, "=")
		name, ok := mediator.SecretOf(value)
		if !ok {
			continue
		}
		at := slices.IndexFunc(sentinels, func(s loan.Sentinel) bool { return s.Name == name })
		if at < 0 {
			return nil, nil, fmt.Errorf("its variable %s is the secret %q, which is not kept: \"ringfence secret set %[2]s --host HOST\" keeps it", variable, name)
		}
		env[i], given[name] = variable+"="+sentinels[at].Text, true
	}
	for i := range sentinels {
		if !given[sentinels[i].Name] {
			sentinels[i].Bindings = nil
		}
	}
	return env, sentinels, nil
}

// An ofServer decides what the box of a server sends.
type ofServer struct {
	act.Decider
	server string
	denied func(server string, t act.Ticket)
}

// Decide implements [act.Decider].
func (o ofServer) Decide(ctx context.Context, r act.Request) (act.Ticket, error) {
	if r.Verb == act.VerbEffect {
		r.Tool = o.server
	}
	t, err := o.Decider.Decide(ctx, r)
	if err == nil && t.Verdict != act.Allow && o.denied != nil {
		o.denied(o.server, t)
	}
	return t, err
}

// ways has the servers that a person looks at reach their hosts by p, and the person told
// where else they wanted to go.
func (p *personSession) ways(ctx context.Context, boxes *mediator.Boxes, servers []mediator.Server) error {
	known, err := serverServices(ctx, p.s, servers)
	if err != nil {
		return err
	}
	p.known = known
	for _, server := range servers {
		if !held(server) {
			continue
		}
		argv, err := boxes.Argv(server)
		if err != nil {
			continue // starting it says so
		}
		p.servers = append(p.servers, api.ServerInfo{
			Name: server.Name, Report: json.RawMessage(api.BoxFollows), Argv: boxes.Shown(server, argv), Launch: launchOf(argv),
			Dir: boxes.Dir(server), Hosts: server.Ringfence.Hosts,
		})
	}
	var mu sync.Mutex
	told := map[string]bool{}
	boxes.Way = serverWay{
		tier:  boxes.Tier,
		known: func(context.Context) (services, error) { return known, nil },
		session: func(ctx context.Context) (*api.Client, *api.Session, error) {
			_, err := p.open(ctx)
			return p.client, p.session, err
		},
		denied: func(_ string, t act.Ticket) {
			p.wasDenied()
			mu.Lock()
			defer mu.Unlock()
			if len(told) < maxToldDenials && !told[t.Reason] {
				told[t.Reason] = true
				p.s.say("%s", t.Reason)
			}
		},
	}.open
	return nil
}

// maxToldDenials bounds of how many different denials a person is told.
const maxToldDenials = 32
