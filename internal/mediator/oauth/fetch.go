package oauth

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

// A document is a JSON object of a stranger. Members of other types than are asked for
// count as missing; nothing of it is in an error.
type document map[string]any

// text returns a string, "" if there is none. It is at most maxText bytes long.
func (d document) text(name string) string {
	s, _ := d[name].(string)
	if len(s) > maxText {
		return ""
	}
	return s
}

// long is text for what may be as long as a token.
func (d document) long(name string) string {
	s, _ := d[name].(string)
	if len(s) > maxToken {
		return ""
	}
	return s
}

// list returns the strings of a list, nil if it is no list of strings or too long.
func (d document) list(name string) []string {
	items, _ := d[name].([]any)
	if len(items) > maxItems {
		return nil
	}
	var all []string
	for _, item := range items {
		s, ok := item.(string)
		if !ok || len(s) > maxText {
			return nil
		}
		all = append(all, s)
	}
	return all
}

func (d document) is(name string) bool { b, _ := d[name].(bool); return b }

func (d document) has(name string) bool { _, ok := d[name]; return ok }

// number returns a whole number, 0 if there is none.
func (d document) number(name string) int64 {
	text, ok := d[name].(strictjson.Number)
	if !ok {
		// Some servers send figures as strings.
		s, _ := d[name].(string)
		text = strictjson.Number(s)
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || f < 0 || f > maxLifetime {
			return 0
		}
		return int64(f)
	}
	return n
}

// An answered is an answer of an authorization server, read whole.
type answered struct {
	status int
	header http.Header
	doc    document // nil if the body is no JSON object
}

// ask sends a request to a place that [Client.place] has let through, and reads its answer.
func (c *Client) ask(ctx context.Context, r *http.Request) (answered, error) {
	ctx, cancel := context.WithTimeout(ctx, c.o.Wait)
	defer cancel()
	r.Header.Set("Accept", "application/json")
	r.Header.Set("Accept-Encoding", "identity")
	r.Header.Set("User-Agent", "ringfence")
	resp, err := c.http.Do(r.WithContext(ctx))
	if err != nil {
		if u, ok := errors.AsType[*url.Error](err); ok {
			err = u.Err // the URL around it may hold what nobody is to read
		}
		return answered{}, fmt.Errorf("reaching %q: %w", origin(r.URL), err)
	}
	defer resp.Body.Close()
	a := answered{status: resp.StatusCode, header: resp.Header}
	if a.status/100 == 3 {
		return a, fmt.Errorf("%q redirects, which is not followed", origin(r.URL))
	}
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxBody+1))
	if err != nil {
		return a, fmt.Errorf("reading the answer of %q: the connection broke", origin(r.URL))
	}
	if len(body) > maxBody {
		return a, fmt.Errorf("%q answers with more than %d bytes", origin(r.URL), maxBody)
	}
	kind, _, err := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if err != nil || kind != "application/json" && !strings.HasSuffix(kind, "+json") || resp.Header.Get("Content-Encoding") != "" {
		return a, nil
	}
	v, err := strictjson.DecodeLimits(body, strictjson.Limits{Size: maxBody, Depth: 16})
	if err == nil {
		a.doc, _ = v.(map[string]any)
	}
	return a, nil
}

// metadata fetches a document. It is nil, without an error, if there is none at at.
func (c *Client) metadata(ctx context.Context, at *url.URL) (document, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%q is no URL that can be used", clip(at.String()))
	}
	a, err := c.ask(ctx, r)
	switch {
	case err != nil:
		return nil, err
	case a.status/100 == 4:
		return nil, nil
	case a.status != http.StatusOK:
		return nil, fmt.Errorf("%q answers with HTTP %d", clip(at.String()), a.status)
	case a.doc == nil:
		return nil, fmt.Errorf("%q is no JSON object", clip(at.String()))
	}
	return a.doc, nil
}
