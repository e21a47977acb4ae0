package egress

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"

	"ringfence/internal/act"
)

// What a name leads to is known only after it was decided on. Where that is refused, a
// program is told in the same way as by a denial, and the record of what was allowed says
// that it came to nothing.

// addressDenial is err as a denial, nil if it is none: something that did not work.
func addressDenial(object string, effect act.Kind, err error) *DeniedError {
	d := &DeniedError{Object: object, Effect: effect, Code: act.CodeTripwire}
	if no, ok := errors.AsType[*addressError](err); ok {
		d.Rules, d.Reason, d.Ask = []string{"address"}, "denied: "+no.Error(), asks[act.CodeTripwire]
		return d
	}
	if no, ok := errors.AsType[*tellingError](err); ok {
		d.Rules, d.Reason, d.Ask = []string{"names"}, "denied: "+no.Error(), "use names that were used before"
		return d
	}
	return nil
}

// whyKey is the key of where an outward notes what it refused: an *error.
type whyKey struct{}

// An outward is a transport that answers with a denial where an address is refused.
type outward struct{ http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (o outward) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := o.RoundTripper.RoundTrip(r)
	if err == nil {
		return res, nil
	}
	no := addressDenial(r.URL.Scheme+"://"+r.URL.Host+r.URL.RequestURI(), act.Connect, err)
	if no == nil {
		return nil, err
	}
	if why, ok := r.Context().Value(whyKey{}).(*error); ok {
		*why = no
	}
	text := no.Body()
	return &http.Response{
		StatusCode: no.status(), ProtoMajor: 1, ProtoMinor: 1, Request: r, ContentLength: int64(len(text)),
		Header: http.Header{"Content-Type": {"application/json"}, "Content-Length": {strconv.Itoa(len(text))}, deniedHeader: {string(no.Code)}},
		Body:   io.NopCloser(bytes.NewReader(text)),
	}, nil
}

// deniedHeader is in each reply that is a denial, with its code.
const deniedHeader = "X-Ringfence-Denied"

// noting returns ctx with a place for what an outward refuses.
func noting(ctx context.Context, why *error) context.Context {
	return context.WithValue(ctx, whyKey{}, why)
}
