package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// metadataTime and artifactTime are how long a registry may take to begin its answer.
const (
	metadataTime = 30 * time.Second
	artifactTime = 60 * time.Second
)

// A trip is one request of a client on its way.
type trip struct {
	judge Judge
	place Place
	at    weburl.URL // what the client asks for
	path  string     // below the place; "" on a host of files
	w     http.ResponseWriter
	r     *http.Request
}

// Serve answers r, a request for u, which Serves said is one for a registry.
func (h *Handler) Serve(w http.ResponseWriter, r *http.Request, u weburl.URL, j Judge) {
	p, path, ok := h.find(u)
	t := trip{j, p, u, path, w, r}
	if !ok {
		t.refuse("no registry is there")
		return
	}
	a := h.ask(t)
	switch a.kind {
	case metadata:
		h.metadata(t, a)
	case artifact:
		h.artifact(t, a)
	case passed:
		h.pass(t)
	case settings:
		h.settings(t)
	case answered:
		t.answer(a.answer)
	default:
		t.refuse(a.why)
	}
}

// ask says what t is for.
func (h *Handler) ask(t trip) ask {
	_, upgrade := t.r.Header["Upgrade"]
	switch {
	case t.at.HasQuery && t.at.Query != "":
		return refuse("reads of packages have no query")
	case upgrade:
		return refuse("nothing is upgraded at a registry")
	}
	if v, ok := h.known(t.place, t.at.Request().String()); ok && t.reads() {
		return ask{kind: artifact, name: v.name, version: v.version, file: v.file}
	}
	if _, in := t.place.below(t.at); !in {
		return refuse("no metadata that was read names this file")
	}
	if t.place.Ecosystem != NPM && ambiguous(t.path) { // names of npm have a slash that is escaped
		return refuse("%q can be read as another path", t.path)
	}
	a := protocols[t.place.Ecosystem].read(t.r.Method, t.path)
	if !t.reads() && a.kind != answered && a.kind != refused {
		return refuse("only reads of packages pass: %s is none", t.r.Method)
	}
	return a
}

// ambiguous reports whether a server could read path as another one, by undoing escapes that
// we do not.
func ambiguous(path string) bool {
	path = strings.ToLower(path)
	for _, odd := range []string{"%2f", "%5c", "%25", "%2e", "%00", `\`, "//"} {
		if strings.Contains(path, odd) {
			return true
		}
	}
	return false
}

func (t trip) reads() bool { return t.r.Method == http.MethodGet || t.r.Method == http.MethodHead }

// metadata answers a read of what versions there are.
func (h *Handler) metadata(t trip, a ask) {
	page, err := h.load(t, a)
	if err != nil {
		t.fail(err)
		return
	}
	all := page.versions()
	offers := make([]act.Resource, len(all))
	for i, v := range all {
		offers[i] = v.resource(t.place.Ecosystem, h.o.Now())
	}
	withheld, err := t.judge.Offered(t.r.Context(), t.at.String(), offers)
	if err != nil {
		t.fail(err)
		return
	}
	gone := map[int]bool{}
	for _, i := range withheld {
		if i >= 0 && i < len(all) {
			gone[all[i].place] = true
		}
	}
	body, media, err := page.write(func(place int) bool { return gone[place] }, t.r.Header.Get("Accept"))
	if err != nil {
		t.fail(err)
		return
	}
	t.send(body, media)
}

// load asks the registry for the metadata of a package, and remembers what it says.
func (h *Handler) load(t trip, a ask) (page, error) {
	if err := h.named(t, a.name); err != nil {
		return nil, err
	}
	at := t.at.Request().String()
	body, header, err := h.get(t.r.Context(), at, acceptOf(t.place.Ecosystem))
	if err != nil {
		return nil, err
	}
	page, err := protocols[t.place.Ecosystem].versions(h, t, a, header, body)
	if err != nil {
		return nil, fmt.Errorf("reading the metadata of %s:%s: %w", t.place.Ecosystem, a.name, err)
	}
	h.remember(t.place, page.versions())
	return page, nil
}

// named decides whether anything of that name may be installed at all, before the name
// goes upstream.
func (h *Handler) named(t trip, name string) error {
	first := []act.Resource{version{name: name}.resource(t.place.Ecosystem, h.o.Now())}
	withheld, err := t.judge.Offered(t.r.Context(), t.at.Request().String(), first)
	if err == nil && len(withheld) > 0 {
		err = &DeniedError{"nothing of the name " + first[0].Text + " may be installed"}
	}
	return err
}

// A statusError is an answer that is no success.
type statusError struct{ status int }

func (e *statusError) Error() string { return fmt.Sprintf("the registry answered %d", e.status) }

// get reads one text of the registry.
func (h *Handler) get(ctx context.Context, at, accept string) ([]byte, http.Header, error) {
	ctx, cancel := context.WithTimeout(ctx, metadataTime)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at, http.NoBody)
	if err != nil {
		return nil, nil, fmt.Errorf("asking for %s: %w", at, err)
	}
	req.Header.Set("Accept", accept)
	resp, err := h.o.Upstream.RoundTrip(req)
	if err != nil {
		return nil, nil, fmt.Errorf("asking for %s: %w", at, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, nil, &statusError{resp.StatusCode}
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, MaxMetadata+1))
	if err != nil {
		return nil, nil, fmt.Errorf("reading %s: %w", at, err)
	}
	if len(body) > MaxMetadata {
		return nil, nil, fmt.Errorf("reading %s: more than %d bytes", at, MaxMetadata)
	}
	return body, resp.Header, nil
}

// artifact answers a read of one file.
func (h *Handler) artifact(t trip, a ask) {
	v, ok := h.known(t.place, a.file)
	if !ok {
		var err error
		if v, err = h.backstop(t, a); err != nil {
			t.fail(err)
			return
		}
	}
	done, err := t.judge.Install(t.r.Context(), t.at.String(), v.resource(t.place.Ecosystem, h.o.Now()))
	if err != nil {
		t.fail(err)
		return
	}
	done(h.hand(t, v.hash))
}

// backstop finds out what a file is that no metadata was read of.
func (h *Handler) backstop(t trip, a ask) (version, error) {
	bare := version{name: a.name, version: a.version}
	if t.place.Ecosystem == Debian { // the client checks what it gets against lists that are signed
		return bare, nil
	}
	if t.place.Ecosystem == Go {
		if err := h.named(t, a.name); err != nil {
			return version{}, err
		}
		bare.published = h.dated(t, a.name, a.version)
		return bare, nil
	}
	t.at = metadataOf(t.place, a.name)
	if _, err := h.load(t, a); err != nil {
		return version{}, err
	}
	if v, ok := h.known(t.place, a.file); ok {
		return v, nil
	}
	return version{}, &DeniedError{fmt.Sprintf("the registry has no such file of %s:%s", t.place.Ecosystem, a.name)}
}

// pass answers a read of what names no package.
func (h *Handler) pass(t trip) {
	done, err := t.judge.Pass(t.r.Context(), t.at.String())
	if err != nil {
		t.fail(err)
		return
	}
	done(h.hand(t, hash{}))
}

// asked are the headers of a client that go upstream with a read of a file, and answer
// those that come back. With a hash nothing is read in part.
var (
	asked  = []string{"If-None-Match", "If-Modified-Since", "Range", "If-Range", "Cache-Control"}
	answer = []string{"Content-Type", "Content-Length", "Content-Range", "Accept-Ranges", "Etag", "Last-Modified", "Cache-Control", "Date"}
)

// maxRedirects is how often a registry may send us on for a file, whose hash is known.
const maxRedirects = 3

// hand gives the client the file that t asks for.
func (h *Handler) hand(t trip, want hash) Outcome {
	ctx, cancel := context.WithCancel(t.r.Context())
	defer cancel()
	late := time.AfterFunc(artifactTime, cancel)
	resp, err := h.follow(ctx, t, want)
	if !late.Stop() && err == nil {
		err = context.DeadlineExceeded
	}
	if err != nil {
		t.fail(err)
		return Outcome{Error: err.Error()}
	}
	defer resp.Body.Close()
	for _, name := range answer {
		if v := resp.Header.Values(name); len(v) > 0 {
			t.w.Header()[name] = slices.Clone(v)
		}
	}
	whole := resp.StatusCode == http.StatusOK
	if !whole {
		want = hash{}
	}
	t.w.WriteHeader(resp.StatusCode)
	n, err := copyChecked(t.w, resp.Body, want)
	if t.r.Method == http.MethodHead && errors.Is(err, errHash) {
		err = nil
	}
	o := Outcome{Status: resp.StatusCode, Bytes: n}
	if err != nil {
		o.Error = err.Error()
		abort(t.w)
	}
	return o
}

// follow asks upstream for the file of t. It goes where the registry sends it only for a
// file whose hash is known, and only by https.
func (h *Handler) follow(ctx context.Context, t trip, want hash) (*http.Response, error) {
	at := t.at.Request().String()
	for range maxRedirects + 1 {
		req, err := http.NewRequestWithContext(ctx, t.r.Method, at, http.NoBody)
		if err != nil {
			return nil, fmt.Errorf("asking for %s: %w", at, err)
		}
		req.Header.Set("Accept-Encoding", "identity")
		if want.kind == "" {
			for _, name := range asked {
				if v := t.r.Header.Get(name); v != "" && len(v) < 1024 {
					req.Header.Set(name, v)
				}
			}
		}
		resp, err := h.o.Upstream.RoundTrip(req)
		if err != nil {
			return nil, fmt.Errorf("asking for %s: %w", at, err)
		}
		if resp.StatusCode/100 != 3 || resp.StatusCode == http.StatusNotModified {
			return resp, nil
		}
		next, err := resp.Location()
		resp.Body.Close()
		if err != nil {
			return nil, fmt.Errorf("asking for %s: it was moved: %w", at, err)
		}
		u, err := weburl.Parse(next.String())
		if err != nil || u.Scheme != "https" || want.kind == "" {
			return nil, &DeniedError{"the registry sends on to another address, and nothing says what the file must be"}
		}
		at = u.Request().String()
	}
	return nil, &DeniedError{"the registry sends on too often"}
}

// send gives the client a text of ours, or says that it has it already.
func (t trip) send(body []byte, media string) {
	sum := sha256.Sum256(body)
	tag := `"` + base64.RawURLEncoding.EncodeToString(sum[:18]) + `"`
	head := t.w.Header()
	head.Set("Content-Type", media)
	head.Set("Etag", tag)
	head.Set("Vary", "Accept")
	head.Set("Cache-Control", "max-age=60")
	if slices.Contains(strings.Split(strings.ReplaceAll(t.r.Header.Get("If-None-Match"), " ", ""), ","), tag) {
		t.w.WriteHeader(http.StatusNotModified)
		return
	}
	head.Set("Content-Length", strconv.Itoa(len(body)))
	t.w.WriteHeader(http.StatusOK)
	if t.r.Method != http.MethodHead {
		_, _ = io.Copy(t.w, bytes.NewReader(body)) // a client that has gone misses it
	}
}

func (t trip) answer(text string) {
	t.w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(t.w, text) // a client that has gone misses it
}

func (t trip) refuse(why string) {
	t.judge.Refuse(t.r.Context(), t.at.Plain().String(), why)
	t.say(http.StatusForbidden, why)
}

// fail answers with what went wrong.
func (t trip) fail(err error) {
	var denied *DeniedError
	var status *statusError
	switch {
	case errors.As(err, &denied):
		t.say(http.StatusForbidden, denied.Reason)
	case errors.As(err, &status) && status.status/100 == 4:
		t.say(status.status, status.Error())
	case errors.Is(err, context.DeadlineExceeded):
		t.say(http.StatusGatewayTimeout, "the registry did not answer in time")
	default:
		t.say(http.StatusBadGateway, err.Error())
	}
}

// say answers with one sentence, where each client shows it: npm shows the member
// "error", pip and cargo the body.
func (t trip) say(status int, why string) {
	body, err := json.Marshal(map[string]any{"error": why, "denied": map[string]any{"object": t.at.String(), "reason": why}})
	if err != nil {
		body = []byte(`{"error":"denied"}`)
	}
	t.w.Header().Set("Content-Type", "application/json")
	t.w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	t.w.WriteHeader(status)
	_, _ = t.w.Write(body) // a client that has gone misses it
}

// abort ends the connection of w, so that its client does not take what it got for the
// whole file.
func abort(w http.ResponseWriter) {
	// Without deadlines the length that was announced and is not reached says the same.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Unix(1, 0))
}
