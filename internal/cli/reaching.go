package cli

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"ringfence/internal/act"
	"ringfence/internal/daemon/api"
	"ringfence/internal/egress"
	"ringfence/internal/mediator"
	"ringfence/internal/mediator/remote"
	"ringfence/internal/sandbox"
)

// reaching starts servers in boxes, and reaches those that have a URL, with the tokens
// that there are for them; that nothing confines these is on record first.
func reaching(boxes mediator.Boxes, session *api.Session) mediator.Starter {
	return remote.New(remote.Options{
		Local: boxes, Authorize: authorizing,
		Reach: remote.Reach(&farWay{open: func(context.Context) (act.Decider, error) { return session, nil }}),
		Record: func(ctx context.Context, server, line string, r sandbox.Report) error {
			return session.RecordBox(ctx, server, "", line, r)
		},
	})
}

// reachingOnce is reaching for a verb with which a person looks at servers. There is no
// session but for what goes to other machines.
func reachingOnce(boxes mediator.Boxes, p *personSession) mediator.Starter {
	return remote.New(remote.Options{Local: boxes, Authorize: authorizing, Reach: remote.Reach(&farWay{open: p.open, denied: p.wasDenied})})
}

// lookAt has a person log in to a server, if it wants that, and returns its tools as JSON
// and what confines it.
func lookAt(ctx context.Context, p *personSession, boxes mediator.Boxes, log *slog.Logger, server mediator.Server) (list []byte, report string, err error) {
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	if err := p.ways(ctx, &boxes, []mediator.Server{server}); err != nil {
		return nil, "", err
	}
	if err := p.logInFirst(ctx, server); err != nil {
		return nil, "", err
	}
	return mediator.Definitions(ctx, mediator.Options{Starter: reachingOnce(boxes, p), Version: version, Log: log}, server)
}

// A farWay carries requests to other machines, each decided by the session that open
// gives when the first one comes.
type farWay struct {
	open   func(ctx context.Context) (act.Decider, error)
	denied func() // hears of each request that was; may be nil

	mu  sync.Mutex
	way http.RoundTripper
}

// RoundTrip implements [http.RoundTripper].
func (w *farWay) RoundTrip(r *http.Request) (*http.Response, error) {
	way, err := w.opened(r.Context())
	if err != nil {
		return nil, err
	}
	resp, err := way.RoundTrip(r)
	if no, ok := errors.AsType[*egress.DeniedError](err); ok {
		if w.denied != nil {
			w.denied()
		}
		return nil, &remote.NotAllowedError{Reason: no.Reason}
	}
	return resp, err
}

func (w *farWay) opened(ctx context.Context) (http.RoundTripper, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.way != nil {
		return w.way, nil
	}
	conf, _, err := settings()
	if err != nil {
		return nil, err
	}
	network, err := networkOf(conf)
	if err != nil {
		return nil, err
	}
	decider, err := w.open(ctx)
	if err != nil {
		return nil, err
	}
	w.way = egress.NewTransport(egress.Options{Decider: decider, Network: network})
	return w.way, nil
}

// CloseIdleConnections is what [http.Client] looks for.
func (w *farWay) CloseIdleConnections() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if idle, ok := w.way.(interface{ CloseIdleConnections() }); ok {
		idle.CloseIdleConnections()
	}
}
