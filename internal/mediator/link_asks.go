package mediator

import (
	"context"
	"errors"
	"slices"
	"time"

	"ringfence/internal/act/strictjson"
)

// asks are the requests that a server may make, beside ping.
var asks = []string{askSampling, askElicitation, askRoots}

// asked answers a request of the server: ping at once, what is for a client when that
// has answered, and nothing else.
func (l *link) asked(m message) {
	id := slices.Clone(m.id())
	switch {
	case m.method == "ping":
		l.out.offer(response(id, "result", []byte(`{}`))) // a server that does not read has no claim to answers
		return
	case !slices.Contains(asks, m.method) || !l.declared(m.method):
		l.out.offer(fault(id, codeMethod, "ringfence does not offer "+clip(m.method)))
		return
	}
	params := slices.Clone(m.params.of(m.raw))
	if params == nil {
		params = []byte(`{}`)
	}
	fl, err := l.tie(id)
	if err == nil {
		err = strictjson.Check(params)
	}
	if err != nil {
		l.out.offer(fault(id, codeMethod, m.method+" is refused: "+err.Error()))
		return
	}
	ctx, cancel := context.WithCancelCause(fl.ctx)
	a := &asking{cancel: cancel, client: clientOf(fl.asker), since: time.Now()}
	if !l.admitAsk(idKey(id), a) {
		cancel(nil)
		l.out.offer(fault(id, codeBusy, "too many requests of this server wait, or the id is in use"))
		return
	}
	l.replies.Go(func() { // ends with the request that it is about, and with the link
		defer cancel(nil)
		defer l.forgetAsk(idKey(id), a)
		result, err := fl.asker.asked(ctx, m.method, params)
		line := response(id, "result", oneLine(result))
		if err != nil {
			line = fault(id, codeMethod, m.method+" is refused: "+err.Error())
		}
		switch {
		case ctx.Err() == nil:
			_ = l.out.send(ctx, line)
		case errors.Is(context.Cause(ctx), errGaveWay):
			l.out.offer(fault(id, codeMethod, m.method+" is refused: "+errGaveWay.Error()))
		}
	})
}

// declared reports whether the server was told that it may ask for method.
func (l *link) declared(method string) bool {
	_, ok, err := strictjson.Find(l.declares, "/"+capabilityFor[method])
	return err == nil && ok
}

var (
	errNoAsker = errors.New("no request of a client that could be asked is under way")
	errLateAsk = errors.New("a request of another client has only just ended, and it is not said which it is for")
	errManyAsk = errors.New("requests of several clients are under way, and it is not said which it is for")
)

// tie returns the request that the server's request id is about: the one in whose
// answer it came or, where that is not known, the newest, if all that are under way
// were made by one connection. With none under way it is the one connection there is. It
// is none if a request of another client has only just ended.
func (l *link) tie(id []byte) (*flight, error) {
	in := int64(0)
	if l.proc.About != nil {
		in = l.proc.About(id)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if in > 0 {
		if fl := l.pending[in]; fl != nil && fl.asker != nil {
			return fl, nil
		}
		return nil, errNoAsker
	}
	var found *flight
	newest := int64(0)
	for n, fl := range l.pending {
		switch {
		case fl.asker == nil:
			continue
		case found != nil && found.asker.connection() != fl.asker.connection():
			return nil, errManyAsk
		}
		if n > newest {
			found, newest = fl, n
		}
	}
	if found == nil && l.lone != nil {
		found = l.lone()
	}
	if found == nil {
		return nil, errNoAsker
	}
	if c, ok := found.asker.(*call); ok && c.s.asked.unsure(c.client(), time.Now()) {
		return nil, errLateAsk
	}
	return found, nil
}

var errWithdrawn = errors.New("the server does not want it any more")

// withdrawn takes in that the server cancels a request of its own.
func (l *link) withdrawn(m message) {
	v, ok, err := strictjson.Find(m.params.of(m.raw), "/requestId")
	if err != nil || !ok {
		return
	}
	l.mu.Lock()
	a := l.asking[idKey(v.Raw)]
	l.mu.Unlock()
	if a != nil {
		a.cancel(errWithdrawn)
	}
}

// listenTo asks a server of the era of requests for the notifications that it offers,
// as long as the link is up.
func (l *link) listenTo(o offer) {
	want, tells := []byte(`{`), false
	for _, list := range []string{"tools", "prompts", "resources"} {
		v, ok, err := strictjson.Find(o.capabilities, "/"+list+"/listChanged")
		if len(o.capabilities) == 0 || err != nil || !ok || string(v.Raw) != "true" {
			continue
		}
		if len(want) > 1 {
			want = append(want, ',')
		}
		tells = tells || list == "tools"
		want = append(append(append(want, '"'), list...), `ListChanged":true`...)
	}
	l.mu.Lock()
	l.wants = want // without its end
	l.tells = tells
	l.mu.Unlock()
	if len(want) > 1 {
		l.listen()
	}
}

// listen opens the subscription for what is wanted, in place of the one before.
func (l *link) listen() {
	ctx, cancel := context.WithCancel(context.Background())
	l.mu.Lock()
	old := l.unlisten
	l.unlisten = cancel
	want := slices.Clone(l.wants)
	me := l.alone
	for i, uri := range l.watched {
		switch {
		case i > 0:
			want = append(want, ',')
		case len(want) > 1:
			want = append(want, `,"resourceSubscriptions":[`...)
		default:
			want = append(want, `"resourceSubscriptions":[`...)
		}
		want = append(want, quote(uri)...)
	}
	if len(l.watched) > 0 {
		want = append(want, ']')
	}
	l.mu.Unlock()
	if old != nil {
		old()
	}
	if len(want) == 1 {
		return // for nothing
	}
	go func() { // ends with the link
		defer cancel()
		for pause := time.Second; ; pause = min(2*pause, time.Minute) {
			a, err := l.send(ctx, errand{}, func(id int64) ([]byte, error) {
				line := plain(id, "subscriptions/listen", append(append([]byte(`{"notifications":`), want...), "}}"...))
				return me.dress(line, nil, nil)
			})
			if err == nil {
				a.free()
			}
			if !l.up() || !sleep(ctx, pause) {
				return
			}
			l.changed() // what was said meanwhile was not heard
		}
	}()
}
