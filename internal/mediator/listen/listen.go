// Package listen is how MCP clients reach a mediator over HTTP: the transport
// "streamable HTTP" of both eras at one URL. Clients of revisions up to 2025-11-25
// open sessions with initialize, those of 2026-07-28 send requests that stand alone.
// Which one a request is shows in its header MCP-Protocol-Version and in its body.
//
// It is no policy and reads of a message no more than where it goes: the mediator
// answers. It opens no sockets; it is given a listener.
//
// Invariants:
//
//	L1  Nothing of a request is read beyond its header, and nothing answered, until
//	    Host and Origin are ours and the client has shown the token, or the kernel has
//	    said which user it runs as. What is not right is refused with a status only.
//	L2  A session belongs to the client that opened it. For anybody else it does not
//	    exist. Its name has 128 random bits.
//	L3  What belongs to a request goes to the stream of that request, to no other.
//	L4  Of a request of 2026-07-28, the headers say what the body says, or it is
//	    refused and nothing happens.
//	L5  Everything is bounded: headers, bodies and their sum, time to send and to take
//	    in, requests at once, connections, sessions, streams, kept events. A client that
//	    does not read loses its connection, and no one waits for it.
//	L6  A connection is a stranger's until its first good request. Strangers take no place
//	    of clients: they have a few of their own, for a short time, and are refused once.
//	L7  Memory for bodies is reserved as they come in, and no client has all of it. There
//	    is always room for a message of 64 KiB.
package listen

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/ipc"
)

// Path is where the clients find us.
const Path = "/mcp"

// Bounds that no option changes.
const (
	maxHeader     = 64 << 10           // bytes
	maxBody       = strictjson.MaxSize // bytes of one message
	maxBodies     = 8 * maxBody        // bytes of bodies being read at once, but for the first step of each
	maxBodiesEach = maxBodies / 2      // of them of one client
	maxConns      = 1024               // of clients
	maxStrangers  = 256                // connections without a good request yet
	maxRequests   = 512                // at once of one client
	maxSessions   = 1024
	headerTime    = 10 * time.Second
	strangerTime  = 5 * time.Second // until the first good request of a connection
	bodyTime      = 60 * time.Second
	stepTime      = 10 * time.Second // for 64 KiB of a body
	writeTime     = 30 * time.Second // for 64 KiB
	idleConnTime  = 2 * time.Minute
)

// Options configure a [Handler]. The zero value lets nobody in.
type Options struct {
	// Token is what a client shows as "Authorization: Bearer". Without one, only users
	// of this machine get in whom the kernel names, over a Unix socket.
	Token string
	// Users are those who may connect over a Unix socket.
	Users []uint32
	// Hosts are what the header Host may be, in lower case, with the port where it is
	// not the usual one; Origin may be "http://" or "https://" before one of them. With
	// a Unix socket Host is not looked at, and no Origin is right.
	Hosts []string

	// Beside answers clients at every other path than [Path], after the same checks; nil for
	// nobody.
	Beside http.Handler

	Log *slog.Logger // for people; nil drops it

	Idle  time.Duration // until a session ends that nobody uses: 30 min
	Quiet time.Duration // between signs of life on a stream without messages: 15 s
	Poll  time.Duration // until a client of 2025-11-25 is asked to come back for the rest of a stream: 5 min
}

func (o Options) withDefaults() Options {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&o.Idle, 30 * time.Minute}, {&o.Quiet, 15 * time.Second}, {&o.Poll, 5 * time.Minute}} {
		if *d.field <= 0 {
			*d.field = d.value
		}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o
}

// A Handler serves the clients of one mediator. Make one with [New].
type Handler struct {
	o        Options
	m        *mediator.Mediator
	token    [sha256.Size]byte
	patience time.Duration // for a client that takes in a piece of an answer

	mu       sync.Mutex
	sessions map[string]*session
	requests map[string]int   // in flight, by client
	bodies   int64            // bytes reserved for bodies
	shares   map[string]int64 // of them, by client
	ended    bool
}

// New returns a handler for clients of m, which must be serving.
func New(m *mediator.Mediator, o Options) *Handler {
	h := &Handler{o: o.withDefaults(), m: m, sessions: map[string]*session{}, requests: map[string]int{}, shares: map[string]int64{}, patience: writeTime}
	h.token = sha256.Sum256([]byte(o.Token))
	return h
}

// Serve answers what comes in on l until ctx ends; then it ends every session and
// every connection, and returns nil. It closes l.
func (h *Handler) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: h, ReadHeaderTimeout: headerTime, IdleTimeout: idleConnTime, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(h.o.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
		ConnContext: func(ctx context.Context, c net.Conn) context.Context {
			return context.WithValue(context.WithValue(ctx, peerKey{}, userOf(c)), connKey{}, c)
		},
	}
	ended := make(chan error, 1)
	go func() { ended <- srv.Serve(limit(l, maxConns, maxStrangers, strangerTime)) }()
	sweep := time.NewTicker(h.o.Idle / 8)
	defer sweep.Stop()
	for {
		select {
		case <-sweep.C:
			h.expire(time.Now())
		case err := <-ended:
			h.endAll()
			return err
		case <-ctx.Done():
			err := srv.Close()
			if e := <-ended; !errors.Is(e, http.ErrServerClosed) {
				err = errors.Join(err, e)
			}
			h.endAll()
			return err
		}
	}
}

// peerKey is the key of what the kernel says of the other end of a connection.
type peerKey struct{}

// connKey is the key of the connection that a request came on.
type connKey struct{}

// A user is who runs the process at the other end of a Unix socket.
type user struct {
	id    uint32
	known bool
	unix  bool
}

func userOf(c net.Conn) user {
	if _, ok := c.(*counted); ok {
		c = c.(*counted).Conn
	}
	peer, err := ipc.PeerOf(c)
	if err != nil {
		return user{}
	}
	return user{peer.UID, peer.HasUID, true}
}

// ServeHTTP answers one request of a client.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	who, status := h.check(r)
	if status != 0 {
		if status == http.StatusUnauthorized {
			w.Header().Set("WWW-Authenticate", `Bearer realm="ringfence"`)
		}
		turnAway(w, status, refusals[status])
		return
	}
	if c, ok := r.Context().Value(connKey{}).(*counted); ok && !c.admit() {
		turnAway(w, http.StatusServiceUnavailable, "too many connections at once")
		return
	}
	if r.URL.Path != Path && h.o.Beside == nil {
		refuse(w, http.StatusNotFound, "MCP is at "+Path)
		return
	}
	if !h.enter(who) {
		refuse(w, http.StatusTooManyRequests, "too many requests at once")
		return
	}
	defer h.leave(who)
	if r.URL.Path != Path {
		h.o.Beside.ServeHTTP(w, r)
		return
	}
	switch r.Method {
	case http.MethodPost:
		h.post(w, r, who)
	case http.MethodGet:
		h.get(w, r, who)
	case http.MethodDelete:
		h.delete(w, r, who)
	default:
		w.Header().Set("Allow", "POST, GET, DELETE")
		refuse(w, http.StatusMethodNotAllowed, "methods are POST, GET and DELETE")
	}
}

// refusals say what who is refused can do.
var refusals = map[int]string{
	http.StatusUnauthorized: "this needs the token that ringfence mcp named when it began to listen: Authorization: Bearer TOKEN",
	http.StatusForbidden:    "refused: Host or Origin is none of this address, or you are a user who may not come in here",
}

// turnAway refuses a request, and what else could come on its connection (L6).
func turnAway(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Connection", "close")
	refuse(w, status, text)
}

// check returns who sent a request, or the status that refuses it (L1).
func (h *Handler) check(r *http.Request) (who string, status int) {
	peer, _ := r.Context().Value(peerKey{}).(user)
	if !h.fromHere(r, peer.unix) {
		return "", http.StatusForbidden
	}
	if peer.unix {
		for _, id := range h.o.Users {
			if peer.known && peer.id == id {
				return "uid:" + strconvUint(id), 0
			}
		}
		return "", http.StatusForbidden
	}
	token, ok := bearer(r.Header.Values("Authorization"))
	sum := sha256.Sum256([]byte(token))
	if h.o.Token == "" || !ok || subtle.ConstantTimeCompare(sum[:], h.token[:]) != 1 {
		return "", http.StatusUnauthorized
	}
	return "token", 0
}

// bearer returns the token of exactly one Authorization header (RFC 6750).
func bearer(values []string) (string, bool) {
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// fromHere reports whether Host and Origin are ours, so that no page of the web speaks
// through the browser of a person, whatever name leads it to us.
func (h *Handler) fromHere(r *http.Request, unix bool) bool {
	origins := r.Header.Values("Origin")
	if unix {
		return len(origins) == 0
	}
	if !h.ours(r.Host) || len(origins) > 1 {
		return false
	}
	for _, o := range origins {
		host, ok := strings.CutPrefix(strings.ToLower(o), "http://")
		if !ok {
			host, ok = strings.CutPrefix(strings.ToLower(o), "https://")
		}
		if !ok || !h.ours(host) {
			return false
		}
	}
	return true
}

func (h *Handler) ours(host string) bool {
	for _, o := range h.o.Hosts {
		if strings.EqualFold(o, host) {
			return true
		}
	}
	return false
}

// enter counts a request of a client in, if it may have one more.
func (h *Handler) enter(who string) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.ended || h.requests[who] >= maxRequests {
		return false
	}
	h.requests[who]++
	return true
}

func (h *Handler) leave(who string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.requests[who]--; h.requests[who] == 0 {
		delete(h.requests, who)
	}
}
