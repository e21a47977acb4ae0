package fetch

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/net/html/charset"

	"ringfence/internal/act/weburl"
)

const (
	userAgent    = "ringfence-fetch/1.0"
	maxURL       = 8 << 10 // bytes
	maxHeader    = 1 << 10 // bytes of one value
	defaultTypes = "text/html, text/markdown, text/plain, application/json;q=0.9, */*;q=0.5"
)

// sendable are the headers that a call may set. Everything that could carry a
// credential, name another host or change the request line is not among them.
var sendable = []string{"Accept", "Accept-Language", "Cache-Control", "If-Modified-Since", "If-None-Match", "Range"}

// returned are the headers of a response that are shown.
var returned = []string{"Content-Type", "Content-Length", "Last-Modified", "Etag", "Retry-After"}

// A query is a call that was checked.
type query struct {
	url     weburl.URL
	header  http.Header
	length  int
	format  string
	timeout time.Duration
}

func (a arguments) query() (query, error) {
	q := query{length: lengthUnset, format: a.Format, timeout: timeUnset, header: http.Header{}}
	if len(a.URL) > maxURL {
		return q, fmt.Errorf("url has %d bytes, at most %d are possible", len(a.URL), maxURL)
	}
	u, err := weburl.Parse(a.URL)
	if err != nil {
		return q, fmt.Errorf("url %q %w", a.URL, err)
	}
	if u.Scheme != "http" && u.Scheme != "https" {
		return q, fmt.Errorf("url has the scheme %q, must be http or https", u.Scheme)
	}
	q.url = u.Request()
	if a.MaxLength != nil {
		if q.length = *a.MaxLength; q.length < 1 || q.length > maxLength {
			return q, fmt.Errorf("max_length is %d, must be between 1 and %d", q.length, maxLength)
		}
	}
	if a.Timeout != nil {
		if *a.Timeout < 1 || *a.Timeout > maxTime.Seconds() {
			return q, fmt.Errorf("timeout is %v, must be between 1 and %v seconds", *a.Timeout, maxTime.Seconds())
		}
		q.timeout = time.Duration(*a.Timeout * float64(time.Second))
	}
	switch q.format {
	case "":
		q.format = "markdown"
	case "markdown", "text", "html":
	default:
		return q, fmt.Errorf("format is %q, must be markdown, text or html", q.format)
	}
	return q, q.setHeaders(a.Headers)
}

func (q query) setHeaders(given map[string]string) error {
	q.header.Set("Accept", defaultTypes)
	for name, value := range given {
		canonical := http.CanonicalHeaderKey(name)
		switch {
		case !slices.Contains(sendable, canonical):
			return fmt.Errorf("header %q cannot be set; possible are %s", name, strings.Join(sendable, ", "))
		case len(value) > maxHeader || strings.ContainsFunc(value, func(c rune) bool { return c < ' ' || c > '~' }):
			return fmt.Errorf("header %q must have at most %d printable ASCII characters", name, maxHeader)
		}
		q.header.Set(canonical, value)
	}
	q.header.Set("User-Agent", userAgent)
	return nil
}

// get sends the request and reads the response.
func (q query) get(ctx context.Context, t http.RoundTripper) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, q.url.String(), nil)
	if err != nil {
		return reply{}, fmt.Errorf("making request: %w", err)
	}
	req.Header = q.header
	resp, err := t.RoundTrip(req)
	if err != nil {
		return reply{}, fmt.Errorf("fetching %s: %w", q.url, err)
	}
	defer resp.Body.Close()
	out := reply{Status: resp.StatusCode, Headers: map[string]string{}}
	for _, h := range returned {
		if v := resp.Header.Get(h); v != "" && len(v) <= maxHeader {
			out.Headers[strings.ToLower(h)] = strings.ToValidUTF8(v, "\uFFFD")
		}
	}
	if where := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && where != "" {
		return q.redirected(out, where)
	}
	body, cut, err := readBody(resp)
	if err != nil {
		return reply{}, fmt.Errorf("reading answer of %s: %w", q.url, err)
	}
	out.Body, out.Note = q.render(body, resp.Header.Get("Content-Type"))
	out.Truncated = cut
	if short, ok := firstChars(out.Body, q.length); ok {
		out.Body, out.Truncated = short, true
	}
	return out, nil
}

// redirected reports where a response points to, as an absolute URL.
func (q query) redirected(out reply, where string) (reply, error) {
	base, err := url.Parse(q.url.String())
	if err != nil {
		return out, fmt.Errorf("reading redirect: %w", err)
	}
	to, err := base.Parse(where)
	fetchable := err == nil && (to.Scheme == "http" || to.Scheme == "https") && to.User == nil && len(where) <= maxURL
	if !fetchable {
		out.Note = "Redirect to an address that cannot be fetched. Not followed."
		return out, nil
	}
	out.Headers["location"] = to.String()
	out.Note = "Redirect, not followed. Call http_fetch with the new address if it is wanted."
	return out, nil
}

// readBody returns at most maxBody bytes of a body, decompressed, and whether there
// were more.
func readBody(resp *http.Response) (body []byte, cut bool, err error) {
	var r io.Reader = resp.Body
	switch enc := strings.ToLower(resp.Header.Get("Content-Encoding")); enc {
	case "", "identity":
	case "gzip", "x-gzip":
		if r, err = gzip.NewReader(resp.Body); err != nil {
			return nil, false, err
		}
	default:
		return nil, false, fmt.Errorf("it is encoded as %q, which was not asked for", enc)
	}
	body, err = io.ReadAll(io.LimitReader(r, maxBody+1))
	if len(body) > maxBody {
		return body[:maxBody], true, nil
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && len(body) > 0 {
		return body, true, nil
	}
	return body, false, err
}

// render returns body as text, or a note that says why there is none.
func (q query) render(body []byte, contentType string) (text, note string) {
	if contentType == "" {
		contentType = http.DetectContentType(body)
	}
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		kind, _, _ = strings.Cut(strings.ToLower(contentType), ";")
		kind = strings.TrimSpace(kind)
	}
	isHTML := kind == "text/html" || kind == "application/xhtml+xml"
	if !isHTML && !isText(kind) {
		return "", fmt.Sprintf("The answer is %s, which has no text form here (%d bytes).", kind, len(body))
	}
	decoded := decode(body, contentType)
	if isHTML && q.format != "html" {
		return convert(decoded, q.url.String(), q.format == "markdown", q.length), ""
	}
	return decoded, ""
}

func isText(kind string) bool {
	switch kind {
	case "application/json", "application/xml", "application/javascript", "application/ecmascript", "application/yaml",
		"application/x-yaml", "application/toml", "application/x-sh", "application/sql", "application/x-ndjson", "image/svg+xml":
		return true
	}
	return strings.HasPrefix(kind, "text/") || strings.HasSuffix(kind, "+json") || strings.HasSuffix(kind, "+xml") || strings.HasSuffix(kind, "+yaml")
}

// decode returns body in UTF-8. The encoding is the one that the content type names,
// else the one that the page itself names in its first kilobyte, else it is guessed,
// as browsers do (https://html.spec.whatwg.org/#determining-the-character-encoding).
func decode(body []byte, contentType string) string {
	enc, name, certain := charset.DetermineEncoding(body[:min(len(body), 1024)], contentType)
	if name == "utf-8" || !certain && utf8.Valid(body) {
		return strings.ToValidUTF8(string(bytes.TrimPrefix(body, []byte("\xef\xbb\xbf"))), "\uFFFD")
	}
	out, err := enc.NewDecoder().Bytes(body)
	if err != nil {
		return strings.ToValidUTF8(string(body), "\uFFFD")
	}
	return strings.ToValidUTF8(string(out), "\uFFFD")
}

// firstChars returns the first n characters of s, and whether there are more.
func firstChars(s string, n int) (string, bool) {
	if len(s) <= n {
		return s, false
	}
	for i := range s {
		if n == 0 {
			return s[:i], true
		}
		n--
	}
	return s, false
}
