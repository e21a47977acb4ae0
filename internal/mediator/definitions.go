package mediator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
)

// Definitions starts s in a process of its own, reads what tools it lists, and
// stops it again. It returns all pages as one list, {"tools":[…]}, with each
// definition as the server sent it, and the report of what confined the process.
//
// The list is for a person who wants to know what a server offers. Nobody decided
// that it may be seen, so it must not reach an agent. Of o, Decider, Servers and
// what concerns calls are not used; StartTimeout bounds the whole. An error holds
// no word of the server but what it answered in place of its tools; what it wrote
// to standard error goes to o.Log.
func Definitions(ctx context.Context, o Options, s Server) (list []byte, report string, err error) {
	if o.Starter == nil {
		return nil, "", errors.New("reading tools: it needs a starter")
	}
	if err := CheckName(s.Name); err != nil {
		return nil, "", fmt.Errorf("reading tools: %w", err)
	}
	o = o.withDefaults()
	ctx, cancel := context.WithTimeoutCause(ctx, o.StartTimeout, errors.New("it took too long"))
	defer cancel()
	var told string
	list, report, told, err = o.definitions(ctx, s, unknown)
	if errors.Is(err, errProbed) {
		list, report, told, err = o.definitions(ctx, s, sessioned)
	}
	if told != "" && err != nil {
		o.Log.WarnContext(ctx, "server did not list its tools", slog.String("server", s.Name), slog.String("stderr", told))
	}
	return list, report, err
}

// definitions also returns the end of what the server wrote to standard error.
func (o Options) definitions(ctx context.Context, s Server, era known) (list []byte, report, told string, err error) {
	p, err := o.Starter.Start(ctx, s)
	if err != nil {
		return nil, "", "", err
	}
	// How it ends says nothing beside the error.
	l := newLink(s, nil, p, o.MaxResult, slog.New(slog.DiscardHandler), func() {}, nil, nil)
	list, _, err = definitionsOf(ctx, l, era, o.Version)
	l.stop(o.StopGrace)
	if err != nil {
		return nil, p.Report, l.told(), fmt.Errorf("asking server %s for its tools: %w", s.Name, err)
	}
	return list, p.Report, "", nil
}

// definitionsOf opens l and reads its tools; a server that offers none has an
// empty list.
func definitionsOf(ctx context.Context, l *link, era known, version string) ([]byte, offer, error) {
	o, err := l.open(ctx, era, version)
	if err != nil {
		return nil, o, err
	}
	if !o.tools {
		return emptyList, o, nil
	}
	raw, err := fetch(ctx, l, "tools/list", "tools")
	if err != nil {
		return nil, o, fmt.Errorf("reading its tools: %w", err)
	}
	return raw, o, nil
}
