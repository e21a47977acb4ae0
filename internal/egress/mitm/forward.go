package mitm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// copyPiece is how much of a body is in memory at once, in each direction.
const (
	copyPiece  = 32 << 10
	smallPiece = 512
)

// A Forwarder passes requests on and their replies back, as they come (M4). Transport
// must be set. Its methods may be called concurrently.
type Forwarder struct {
	// Transport sends a request; it takes the address of URL.Host. It follows no
	// redirects and speaks to the host of the URL only: see [NewTransport].
	Transport http.RoundTripper
	Limits    Limits
	// Request and Reply return what the body of a message with that header is piped
	// through; nil, or a nil Filter, is nothing. A message of a WebSocket is asked
	// about with the header of its handshake. Where the filter of a message that goes out
	// would change it the WebSocket is closed.
	Request, Reply func(h http.Header) Filter
	// Message is asked about each message of a WebSocket, before its first frame passes;
	// nil: none is. An error of it, and of filters, closes the WebSocket, with a
	// *RefusedError telling its sender why. It is called by two goroutines.
	Message func(Message) error

	pieces sync.Pool
}

// A Carried is what was passed on.
type Carried struct {
	Status   int   // that the client was told; 101 after an upgrade
	Sent     int64 // bytes of the body, or of the frames of a WebSocket, to upstream
	Received int64 // and from upstream
}

// Forward sends r, which has been decided, to r.URL and writes what comes back to w.
// r.Header goes out but for what is about this connection alone. The error says why
// nothing, or not all, came back; w has then been answered, or its connection ends.
func (f *Forwarder) Forward(w http.ResponseWriter, r *http.Request) (Carried, error) {
	var got Carried
	up, err := checkUpgrade(r)
	if err != nil {
		return f.refuse(w, r, got, http.StatusBadRequest, err)
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	sent := &counted{}
	out, err := f.outgoing(ctx, r, up, sent)
	if err != nil {
		return f.refuse(w, r, got, http.StatusUnsupportedMediaType, err)
	}
	if r.ProtoMajor == 1 {
		// What upstream says before it has read the request is passed on at once.
		_ = http.NewResponseController(w).EnableFullDuplex()
	}
	res, err := f.Transport.RoundTrip(out)
	got.Sent = sent.n.Load()
	if err != nil {
		status, why := f.blame(sent, err)
		return f.refuse(w, r, got, status, why)
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusSwitchingProtocols {
		return f.switched(ctx, w, r, up, res)
	}
	err = f.reply(w, r, res, &got)
	got.Sent = sent.n.Load()
	if _, why := f.blame(sent, err); why != nil {
		err = why
	}
	return got, err
}

// refuse answers for upstream.
func (f *Forwarder) refuse(w http.ResponseWriter, r *http.Request, got Carried, status int, err error) (Carried, error) {
	got.Status = status
	if r.ProtoMajor == 1 {
		w.Header().Set("Connection", "close")
	}
	why, ok := errors.AsType[*RefusedError](err)
	if !ok {
		why = refusal("upstream", "%v", err)
	}
	http.Error(w, "ringfence: "+why.Detail, status)
	return got, err
}

// blame returns whose fault err is, and the status that says so: a request whose body
// could not be read, or upstream.
func (f *Forwarder) blame(sent *counted, err error) (int, error) {
	if why := sent.refused.Load(); why != nil {
		return http.StatusBadRequest, why
	}
	if err == nil {
		return 0, nil
	}
	return http.StatusBadGateway, err
}

// outgoing returns r as it is sent.
func (f *Forwarder) outgoing(ctx context.Context, r *http.Request, up *upgrade, sent *counted) (*http.Request, error) {
	out := r.WithContext(ctx)
	out.RequestURI, out.Close, out.TLS = "", false, nil
	out.Header = r.Header.Clone()
	dropConnectionHeaders(out.Header)
	if _, has := out.Header["User-Agent"]; !has {
		out.Header.Set("User-Agent", "") // none, rather than that of net/http
	}
	if up != nil {
		up.ask(out.Header)
		out.Body, out.ContentLength = nil, 0
		return out, nil
	}
	if accepts(r.Header, "TE", "trailers") {
		out.Header.Set("Te", "trailers")
	}
	if r.ContentLength == 0 || r.Body == nil {
		out.Body = nil
		return out, nil
	}
	body := io.Reader(r.Body)
	if f.Request != nil {
		if filter := f.Request(r.Header); filter != nil {
			watched, err := watch(r.Body, r.Header.Get("Content-Encoding"), filter)
			if err != nil {
				return nil, err
			}
			body = watched
		}
	}
	sent.from, sent.closer = body, r.Body
	out.Body = sent
	return out, nil
}

// reply passes res on.
func (f *Forwarder) reply(w http.ResponseWriter, r *http.Request, res *http.Response, got *Carried) error {
	got.Status = res.StatusCode
	dropConnectionHeaders(res.Header)
	// It would move the client to where nobody looks (HTTP/3, another host).
	res.Header.Del("Alt-Svc")
	body := io.Reader(res.Body)
	if f.Reply != nil && r.Method != http.MethodHead && bodied(res.StatusCode) {
		if filter := f.Reply(res.Header); filter != nil {
			plain, err := unpack(res.Body, res.Header.Get("Content-Encoding"))
			if err != nil {
				_, err = f.refuse(w, r, *got, http.StatusBadGateway, err)
				got.Status = http.StatusBadGateway
				return err
			}
			body = &filtered{from: plain, filter: filter}
			for _, h := range []string{"Content-Length", "Content-Encoding", "Accept-Ranges", "Content-Md5", "Digest", "Repr-Digest", "Content-Digest"} {
				res.Header.Del(h)
			}
		}
	}
	maps.Copy(w.Header(), res.Header)
	announced := map[string]bool{}
	for name := range res.Trailer {
		announced[name] = true
		w.Header().Add("Trailer", name)
	}
	if len(announced) > 0 && r.ProtoMajor == 1 {
		w.Header().Del("Content-Length") // only chunks have trailers
	}
	w.WriteHeader(res.StatusCode)
	if err := f.stream(w, body, res.ContentLength, &got.Received); err != nil {
		return err
	}
	for name, values := range res.Trailer {
		if !announced[name] {
			name = http.TrailerPrefix + name
		}
		w.Header()[name] = values
	}
	return nil
}

// bodied reports whether a reply with that status can have a body.
func bodied(status int) bool {
	return status >= 200 && status != http.StatusNoContent && status != http.StatusNotModified
}

// cut ends the stream or the connection of a reply that is not whole: a client must not
// take it for one that is.
func cut(control *http.ResponseController) error {
	return control.SetWriteDeadline(time.Unix(1, 0))
}

// stream writes what from gives to w, each piece at once, and the head at once where the
// length is not known.
func (f *Forwarder) stream(w http.ResponseWriter, from io.Reader, length int64, total *int64) error {
	early := length < 0
	piece := f.piece(length)
	defer f.pieces.Put(piece)
	control := http.NewResponseController(w)
	for n, err := 0, error(nil); ; n, err = from.Read(*piece) {
		*total += int64(n)
		if n > 0 {
			if _, werr := w.Write((*piece)[:n]); werr != nil {
				return fmt.Errorf("passing a reply on: %w", werr)
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading a reply: %w", errors.Join(err, cut(control)))
		case n > 0 || early:
			if err := control.Flush(); err != nil {
				return fmt.Errorf("passing a reply on: %w", err)
			}
			early = false
		}
	}
}

// piece returns a buffer for a body of that length, which is not known if negative.
func (f *Forwarder) piece(length int64) *[]byte {
	if p, _ := f.pieces.Get().(*[]byte); p != nil {
		return p
	}
	n := int64(copyPiece)
	if length >= 0 {
		n = min(n, length+smallPiece) // room to see its end
	}
	b := make([]byte, n)
	return &b
}

// counted is a request body that counts, and remembers why it could not be read.
type counted struct {
	from    io.Reader
	closer  io.Closer
	n       atomic.Int64
	refused atomic.Pointer[RefusedError]
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.n.Add(int64(n))
	if why, ok := errors.AsType[*RefusedError](err); ok {
		c.refused.Store(why)
	}
	return n, err
}

func (c *counted) Close() error { return c.closer.Close() }

// connectionHeaders are about one connection, whether or not Connection names them.
var connectionHeaders = []string{
	"Connection", "Proxy-Connection", "Keep-Alive", "Proxy-Authenticate", "Proxy-Authorization",
	"Te", "Trailer", "Transfer-Encoding", "Upgrade", "Http2-Settings",
}

// dropConnectionHeaders removes what is about one connection alone (RFC 9110 §7.6.1).
func dropConnectionHeaders(h http.Header) {
	for _, value := range h["Connection"] {
		for token := range strings.SplitSeq(value, ",") {
			if token = textproto.TrimString(token); token != "" {
				h.Del(token)
			}
		}
	}
	for _, name := range connectionHeaders {
		h.Del(name)
	}
}

// accepts reports whether a list header of h has the token.
func accepts(h http.Header, name, token string) bool {
	return slices.ContainsFunc(h.Values(name), func(v string) bool {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(textproto.TrimString(part), token) {
				return true
			}
		}
		return false
	})
}
