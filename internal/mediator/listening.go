package mediator

import (
	"context"
	"fmt"
	"slices"

	"ringfence/internal/act/strictjson"
)

// Bounds of subscriptions.
const maxListens = 16 // of one connection

// A listening is one request subscriptions/listen, for as long as it is open.
type listening struct {
	id     []byte // of the request
	stream Stream
	lists  []string // of tools, prompts and resources
	uris   []string // of resources
}

// lists that can change, and what a client that listens calls that.
var listened = []struct{ list, member string }{
	{"tools", "toolsListChanged"}, {"prompts", "promptsListChanged"}, {"resources", "resourcesListChanged"},
}

// listen opens a stream of notices that lasts until the client ends it.
func (f *front) listen(ctx context.Context, m message, s Stream) {
	params := m.params.of(m.raw)
	if v, ok, err := strictjson.Find(params, "/notifications"); err != nil || !ok || v.Kind != strictjson.Object {
		f.refuse(ctx, s, m.id(), codeParams, "params have no object notifications")
		return
	}
	l := &listening{id: m.id(), stream: s}
	for _, each := range listened {
		v, ok, err := strictjson.Find(params, "/notifications/"+each.member)
		if err == nil && ok && v.Kind == strictjson.True {
			l.lists = append(l.lists, each.list)
		}
	}
	uris, err := strictjson.Values(params, "/notifications/resourceSubscriptions/*")
	if err != nil || len(uris) > maxUpdates {
		f.refuse(ctx, s, m.id(), codeParams, fmt.Sprintf("resourceSubscriptions are not at most %d URIs", maxUpdates))
		return
	}
	f.begin(ctx, m, s, func(ctx context.Context, m message) parcel {
		if !f.hears(l) {
			return parcel{line: fault(m.id(), codeBusy, "too many subscriptions of one connection")}
		}
		defer f.deaf(l)
		f.listenTo(ctx, m, l, uris)
		if l.acknowledge(ctx) == nil {
			select {
			case <-ctx.Done():
			case <-f.hung:
			}
		}
		return parcel{line: response(m.id(), "result", l.stamp([]byte(`{"resultType":"complete"`)))}
	})
}

// hears counts l in, if there is room.
func (f *front) hears(l *listening) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.listens) >= maxListens {
		return false
	}
	f.listens[l] = struct{}{}
	return true
}

func (f *front) deaf(l *listening) {
	f.mu.Lock()
	delete(f.listens, l)
	f.mu.Unlock()
	for _, uri := range l.uris {
		if len(f.watching(uri)) == 0 {
			for _, s := range f.m.servers {
				s.watch(f, uri, false)
			}
		}
	}
}

// listenTo subscribes l to those of uris that it may hear of.
func (f *front) listenTo(ctx context.Context, m message, l *listening, uris []strictjson.Value) {
	var granted []string
	for _, v := range uris {
		uri, err := v.Text()
		if err != nil {
			continue
		}
		s, err := f.ofURI(ctx, uri)
		if err == nil && codeOf(m.id(), f.watch(ctx, m, s, uri, true)) == 0 {
			granted = append(granted, uri)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	l.uris = granted
}

// watching returns who listens for changes of a resource.
func (f *front) watching(uri string) []*listening {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*listening
	for l := range f.listens {
		if slices.Contains(l.uris, uri) {
			all = append(all, l)
		}
	}
	return all
}

// listeners returns who listens for changes of a list.
func (f *front) listeners(list string) []*listening {
	f.mu.Lock()
	defer f.mu.Unlock()
	var all []*listening
	for l := range f.listens {
		if slices.Contains(l.lists, list) {
			all = append(all, l)
		}
	}
	return all
}

// acknowledge says what is listened for: the first line of the stream.
func (l *listening) acknowledge(ctx context.Context) error {
	b := []byte(`{"notifications":{`)
	for _, each := range listened {
		if slices.Contains(l.lists, each.list) {
			if b[len(b)-1] != '{' {
				b = append(b, ',')
			}
			b = append(append(append(b, '"'), each.member...), `":true`...)
		}
	}
	if len(l.uris) > 0 {
		if b[len(b)-1] != '{' {
			b = append(b, ',')
		}
		b = append(b, `"resourceSubscriptions":[`...)
		for i, uri := range l.uris {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(b, quote(uri)...)
		}
		b = append(b, ']')
	}
	return l.stream.Ask(ctx, notification("notifications/subscriptions/acknowledged", l.stamp(append(b, '}'))))
}

// stamp closes an object that is open, with the subscription that it belongs to.
func (l *listening) stamp(open []byte) []byte {
	if open[len(open)-1] != '{' {
		open = append(open, ',')
	}
	open = append(append(open, `"_meta":{"`+metaSubscription+`":`...), l.id...)
	return append(open, "}}"...)
}

// tell sends a notification; params is an open object.
func (l *listening) tell(method string, params []byte) {
	l.stream.Tell(notification(method, l.stamp(params)))
}
