package egress

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"ringfence/internal/act/loan"
	"ringfence/internal/act/weburl"
	"ringfence/internal/egress/provider"
)

var (
	errOnlyModels = errors.New("another provider answers in this session, by the profile that it was begun with: only its models can be asked")
	errNoModel    = errors.New("the profile of this session has no model that stands for the one that is asked for")
	errNoWire     = errors.New("the profile of this session cannot translate what is asked")
	errNoSecret   = errors.New("the secret of the profile of this session is not lent to it, or not for the provider that answers")
)

// A turned is a request that another provider answers than the one it was for.
type turned struct {
	provider.Translation
	model     string // that was asked for
	misplaced string // the name of a secret whose sentinel was where it must not be
}

// profiled reports whether another provider answers what i asks.
func (i *inference) profiled() bool {
	return i.way.o.Profile.From != "" && i.way.o.Profile.From == i.p.Name
}

// turn makes of r, which was read, the request that the profile has in its place: to
// another address, for another model, with another key. Of the head of r nothing goes out
// that could be a credential.
func (i *inference) turn(r *http.Request) (*http.Request, error) {
	p := i.way.o.Profile
	head, err := i.withoutKeys(r)
	if err != nil {
		return nil, err
	}
	t := &turned{model: i.p.Model(i.clean.Model)}
	rest := *r
	rest.Header = head
	found, wrong := i.way.borrow(&rest, i.u)
	if t.misplaced = wrong; len(found) > 0 {
		t.misplaced = found[0].sentinel.Name
	}
	model, ok := p.Model(i.clean.Model)
	if !ok {
		return nil, errNoModel
	}
	to, ok := i.way.o.Models.Named(p.To)
	if !ok {
		return nil, errNoWire
	}
	e, u, ok := to.Answers(i.e.Wire)
	if !ok {
		return nil, errNoWire
	}
	t.Translation = provider.Translation{
		From: i.e.Wire, To: e.Wire, Said: i.clean.Model, Model: model, Hide: i.clean.HideLast, Created: i.way.o.Now().Unix(),
	}
	body, left, err := t.Request(i.clean.Body)
	if err != nil {
		return nil, err
	}
	// What goes out is held to the same as what a client sends to that provider.
	clean, err := e.Clean(u, body)
	if err != nil {
		return nil, err
	}
	clean.Left = slices.Concat(i.clean.Left, left, clean.Left)
	clean.HideLast = t.From == t.To && i.clean.HideLast
	out, err := i.asked(r, e, u, clean.Body)
	if err != nil {
		return nil, err
	}
	i.p, i.e, i.u, i.clean, i.turned = to, e, u, clean, t
	return out, nil
}

// withoutKeys is the head of r without the keys of its provider, each of which must be one
// on loan, or what stands for one.
func (i *inference) withoutKeys(r *http.Request) (http.Header, error) {
	head := r.Header.Clone()
	for _, key := range i.p.Keys {
		for _, v := range r.Header.Values(key) {
			word := strings.Fields(v)
			if len(word) == 0 {
				continue
			}
			if len(word) == 2 && strings.EqualFold(word[0], "Bearer") {
				word = word[1:]
			}
			ours := func(s loan.Sentinel) bool { return s.Text == word[0] }
			if len(word) != 1 || word[0] != provider.StandIn && !slices.ContainsFunc(i.way.o.Sentinels, ours) {
				return nil, errKey
			}
		}
		head.Del(key)
	}
	return head, nil
}

// kept are the fields of a request that go to whoever answers it; those of the second list
// only if he is spoken to as the client does.
var (
	kept     = []string{"Accept", "User-Agent"}
	keptAlso = []string{"Anthropic-Version", "Anthropic-Beta"}
)

// anthropicVersion is that of the form of Anthropic that requests are translated into.
const anthropicVersion = "2023-06-01"

// asked is the request to e at u, with what stands for the key.
func (i *inference) asked(r *http.Request, e provider.Endpoint, u weburl.URL, body []byte) (*http.Request, error) {
	out := r.WithContext(r.Context())
	out.Method, out.Header = e.Method, http.Header{}
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	names := kept
	if i.e.Wire == e.Wire {
		names = slices.Concat(kept, keptAlso)
	} else if e.Wire == provider.Messages {
		out.Header.Set("Anthropic-Version", anthropicVersion)
	}
	for _, name := range names {
		if v := r.Header.Values(name); len(v) > 0 {
			out.Header[name] = slices.Clone(v)
		}
	}
	secret := i.way.o.Profile.Secret
	for _, s := range i.way.o.Sentinels {
		if secret != "" && s.Name != secret {
			continue
		}
		for _, b := range s.Bindings {
			if b.Query == "" && b.Covers(e.Method, u) {
				out.Header.Set(b.Header, b.Write("", s.Text))
				return out, nil
			}
		}
	}
	if secret != "" {
		return nil, fmt.Errorf("%w: %s", errNoSecret, secret)
	}
	return out, nil // he may need none
}

// maxFailed is how much of an answer that says what went wrong is read, in bytes.
const maxFailed = 1 << 20

// failed is an answer that is none, as the client reads it.
func (i *inference) failed(res *http.Response) (*http.Response, error) {
	if i.turned == nil || i.turned.From == i.turned.To || res.Header.Get(deniedHeader) != "" {
		return res, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, maxFailed))
	if cerr := res.Body.Close(); err != nil || cerr != nil {
		body = nil
	}
	res.Header.Del("Location")
	replace(res, i.turned.Failure(res.StatusCode, body))
	return res, nil
}

// answered is res, whose body is metered, as the client reads it.
func (i *inference) answered(res *http.Response, streams bool) (*http.Response, error) {
	if i.turned == nil || i.turned.From == i.turned.To {
		return res, nil
	}
	if streams {
		body := &turnedBody{from: res.Body}
		body.stream = i.turned.Stream(&body.ready)
		res.Body = body
		return res, nil
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, provider.MaxRequest))
	if err = errors.Join(err, res.Body.Close()); err != nil {
		return nil, err
	}
	if body, err = i.turned.Reply(body); err != nil {
		return nil, err
	}
	replace(res, body)
	return res, nil
}

// replace puts body in the place of that of res.
func replace(res *http.Response, body []byte) {
	res.Body, res.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	res.Header.Set("Content-Type", "application/json")
	res.Header.Set("Content-Length", strconv.Itoa(len(body)))
	res.Header.Del("Content-Encoding")
	res.Trailer = nil
}

// A turnedBody is a stream of events in the form of the client.
type turnedBody struct {
	from   io.ReadCloser
	stream *provider.Stream
	ready  bytes.Buffer
	piece  [16 << 10]byte
	over   error
}

// Read implements io.Reader. A stream that cannot be translated to its end has an error
// there, so that nobody takes it for a whole one.
func (b *turnedBody) Read(p []byte) (int, error) {
	for b.ready.Len() == 0 {
		if b.over != nil {
			return 0, b.over
		}
		n, err := b.from.Read(b.piece[:])
		if _, werr := b.stream.Write(b.piece[:n]); werr != nil {
			_ = b.from.Close() // nothing more is taken from it
			b.over = werr
			continue
		}
		if errors.Is(err, io.EOF) {
			if cerr := b.stream.Close(); cerr != nil {
				err = cerr
			}
		}
		b.over = err
	}
	return b.ready.Read(p)
}

// Close implements io.Closer.
func (b *turnedBody) Close() error { return b.from.Close() }
