package mediator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A serverEra opens a connection to a server of its era.
type serverEra interface {
	// open makes l ready for requests and says what the server offers.
	open(ctx context.Context, l *link, version string) (offer, error)
}

// An offer is what a server says of itself when it is opened.
type offer struct {
	protocol     string
	tools        bool
	capabilities []byte // the JSON object; nil if it has none
	instructions []byte // a JSON string; nil if it has none
}

// open declares to the server what it may ask of clients: l.declares.
func (sessions) open(ctx context.Context, l *link, version string) (offer, error) {
	declares := l.declares
	if declares == nil {
		declares = []byte(`{}`)
	}
	params := append([]byte(`{"protocolVersion":`), quote(sessionVersions[0])...)
	params = append(append(append(params, `,"capabilities":`...), declares...), `,"clientInfo":{"name":"ringfence","version":`...)
	params = append(append(params, quote(version)...), "}}"...)
	a, err := l.ask(ctx, "initialize", params)
	if err != nil {
		return offer{}, fmt.Errorf("opening: %w", plainly(err))
	}
	v, ok, err := strictjson.Find(a.body, "/protocolVersion")
	if err != nil {
		return offer{}, fmt.Errorf("opening: reading its answer: %w", err)
	}
	if !ok {
		return offer{}, errors.New("opening: its answer names no protocol version")
	}
	o := offer{}
	if o.protocol, err = v.Text(); err != nil || !slices.Contains(sessionVersions, o.protocol) {
		return offer{}, fmt.Errorf("opening: it speaks %s, which is none of %s", clip(string(v.Raw)), strings.Join(sessionVersions, ", "))
	}
	if err := o.read(a.body); err != nil {
		return offer{}, fmt.Errorf("opening: %w", err)
	}
	if err := l.tell(ctx, notification("notifications/initialized", nil)); err != nil {
		return offer{}, fmt.Errorf("opening: %w", err)
	}
	return o, nil
}

// read takes from the answer of a server what both eras have in it.
func (o *offer) read(body []byte) error {
	v, ok, err := strictjson.Find(body, "/capabilities")
	if err != nil {
		return err
	}
	if ok && v.Raw[0] == '{' {
		o.capabilities = v.Raw
		if _, o.tools, err = strictjson.Find(v.Raw, "/tools"); err != nil {
			return err
		}
	}
	if v, ok, err := strictjson.Find(body, "/instructions"); err == nil && ok && v.Kind == strictjson.String {
		o.instructions = v.Raw
	}
	return nil
}
