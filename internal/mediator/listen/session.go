package listen

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/mediator"
)

// maxStreams is how many streams of one session may be kept for a client that comes
// back.
const maxStreams = 64

// A session is a client of revisions up to 2025-11-25, from initialize on.
type session struct {
	id    string
	who   string
	polls bool // it speaks a revision in which streams may be closed for a while
	c     *mediator.Client
	loose *stream // what belongs to no request

	mu      sync.Mutex
	busy    int // requests of HTTP in flight
	used    time.Time
	streams map[int]*stream // of requests
	last    int
}

// inSession serves a message of a client that has, or opens, a session.
func (h *Handler) inSession(w http.ResponseWriter, r *http.Request, who string, m mediator.Message, version string) {
	if version != "" && !slices.Contains(mediator.SessionVersions(), version) {
		h.refuseMessage(w, m, codeRequest, "this protocol version is not supported")
		return
	}
	id, ok := only(r.Header, headerSession)
	opens := m.Method() == "initialize" && m.Request()
	switch {
	case !ok || id == "" && !opens:
		h.refuseMessage(w, m, codeRequest, headerSession+" must be there once: it is in the answer to initialize")
		return
	case id == "":
		h.open(w, r, who, m)
		return
	}
	s := h.enterSession(id, who)
	if s == nil {
		h.writeJSON(w, http.StatusNotFound, m.Refusal(codeRequest, "there is no such session: initialize again"))
		return
	}
	defer s.leave()
	h.serve(w, r, s, m)
}

// serve takes in a message of a session.
func (h *Handler) serve(w http.ResponseWriter, r *http.Request, s *session, m mediator.Message) {
	if !m.Request() {
		s.c.Take(m, false, s.loose)
		w.WriteHeader(http.StatusAccepted)
		return
	}
	out := s.newStream()
	if out == nil {
		refuse(w, http.StatusTooManyRequests, "too many requests of one session at once")
		return
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	out.take(ctx, stop, false)
	s.c.Take(m, false, out)
	out.giveBack(h.send(ctx, w, out, cursor{}, true))
	s.tidy()
}

// open opens a session with the message that initializes it.
func (h *Handler) open(w http.ResponseWriter, r *http.Request, who string, m mediator.Message) {
	s := &session{who: who, used: time.Now(), busy: 1, streams: map[int]*stream{}}
	s.loose = newStream(s, 0)
	version, _ := m.Param("protocolVersion")
	s.polls = version >= "2025-11-25"
	var name [16]byte
	_, _ = rand.Read(name[:]) // it never fails
	s.id = hex.EncodeToString(name[:])
	if !h.keep(s) {
		refuse(w, http.StatusTooManyRequests, "too many sessions at once")
		return
	}
	c, err := h.m.Connect(who, s.loose)
	if err != nil {
		h.forget(s.id)
		refuse(w, http.StatusServiceUnavailable, "too many connections at once")
		return
	}
	s.c = c
	defer s.leave()
	w.Header().Set(headerSession, s.id)
	h.serve(w, r, s, m)
}

// keep counts a session in. If there are as many as there may be, the one that was not
// used for longest ends.
func (h *Handler) keep(s *session) bool {
	h.mu.Lock()
	var oldest *session
	count := 0
	for _, other := range h.sessions {
		if other.who != s.who {
			continue
		}
		count++
		if since, idle := other.idle(); idle && (oldest == nil || since.Before(oldest.used)) {
			oldest = other
		}
	}
	full := count >= maxSessions
	if h.ended || full && oldest == nil {
		h.mu.Unlock()
		return false
	}
	if full {
		delete(h.sessions, oldest.id)
	}
	h.sessions[s.id] = s
	h.mu.Unlock()
	if full {
		oldest.end()
	}
	return true
}

// enterSession returns the session of a client, and counts a request of it in; nil if
// it has no such session (L2).
func (h *Handler) enterSession(id, who string) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[id]
	if s == nil || s.who != who || s.c == nil {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy++
	return s
}

func (s *session) leave() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy--
	s.used = time.Now()
}

// idle returns since when nobody has used the session, if nobody does.
func (s *session) idle() (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.used, s.busy == 0
}

func (h *Handler) forget(id string) *session {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.sessions[id]
	delete(h.sessions, id)
	return s
}

// expire ends the sessions that nobody has used for long.
func (h *Handler) expire(now time.Time) {
	h.mu.Lock()
	var old []*session
	for id, s := range h.sessions {
		if since, idle := s.idle(); idle && now.Sub(since) >= h.o.Idle {
			old = append(old, s)
			delete(h.sessions, id)
		}
	}
	h.mu.Unlock()
	for _, s := range old {
		s.end()
	}
}

// endAll ends every session, and lets no more in.
func (h *Handler) endAll() {
	h.mu.Lock()
	h.ended = true
	var all []*session
	for _, s := range h.sessions {
		all = append(all, s)
	}
	clear(h.sessions)
	h.mu.Unlock()
	for _, s := range all {
		s.end()
	}
}

// end ends a session that is kept no more. It waits until that is on record.
func (s *session) end() {
	if s.c != nil {
		s.c.Cancel()
	}
	s.mu.Lock()
	streams := s.streams
	s.streams = nil
	s.mu.Unlock()
	for _, each := range streams {
		each.end()
	}
	s.loose.end()
	if s.c != nil {
		s.c.Close()
	}
}

// newStream returns the stream of one more request, nil if there are too many.
func (s *session) newStream() *stream {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.streams == nil || len(s.streams) >= 4*maxStreams {
		return nil
	}
	s.last++
	out := newStream(s, s.last)
	s.streams[s.last] = out
	return out
}

// tidy forgets streams that nobody reads, the oldest first, beyond what is kept.
func (s *session) tidy() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, each := range s.streams {
		if each.empty() {
			delete(s.streams, id)
		}
	}
	if len(s.streams) <= maxStreams {
		return
	}
	ids := make([]int, 0, len(s.streams))
	for id, each := range s.streams {
		if each.left() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	for _, id := range ids[:min(len(ids), len(s.streams)-maxStreams)] {
		s.streams[id].end()
		delete(s.streams, id)
	}
}

// eventID names the nth event of a stream.
func (s *stream) eventID(n int) string { return strconv.Itoa(s.id) + "-" + strconv.Itoa(n) }

// at returns the stream and the event that an id names.
func (s *session) at(eventID string) (*stream, cursor, bool) {
	left, right, ok := strings.Cut(eventID, "-")
	id, err1 := strconv.Atoi(left)
	n, err2 := strconv.Atoi(right)
	if !ok || err1 != nil || err2 != nil || id < 0 || n < 0 {
		return nil, cursor{}, false
	}
	if id == 0 {
		return s.loose, cursor{n}, true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	each := s.streams[id]
	return each, cursor{n}, each != nil
}

// get opens a stream for what belongs to no request, or goes on with one that broke.
func (h *Handler) get(w http.ResponseWriter, r *http.Request, who string) {
	id, ok := only(r.Header, headerSession)
	last, once := only(r.Header, headerLast)
	switch {
	case !ok || !once:
		refuse(w, http.StatusBadRequest, "a header is there twice")
		return
	case id == "":
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "GET needs "+headerSession)
		return
	case !accepts(r, "text/event-stream"):
		refuse(w, http.StatusNotAcceptable, "Accept must have text/event-stream")
		return
	}
	s := h.enterSession(id, who)
	if s == nil {
		refuse(w, http.StatusNotFound, "there is no such session")
		return
	}
	defer s.leave()
	out, from := s.loose, s.loose.unsent()
	if last != "" {
		if out, from, ok = s.at(last); !ok {
			refuse(w, http.StatusNotFound, "there is no such event any more")
			return
		}
	}
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	if !out.take(ctx, stop, last != "") {
		refuse(w, http.StatusConflict, "this stream is open already")
		return
	}
	defer out.giveBack(true)
	h.send(ctx, w, out, from, false)
}

// unsent is where a client begins that has not come back.
func (s *stream) unsent() cursor {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := cursor{s.first - 1}
	for _, e := range s.events {
		if !e.sent {
			break
		}
		c.seen++
	}
	return c
}

// delete ends a session.
func (h *Handler) delete(w http.ResponseWriter, r *http.Request, who string) {
	id, ok := only(r.Header, headerSession)
	if !ok || id == "" {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "DELETE needs "+headerSession)
		return
	}
	s := h.enterSession(id, who)
	if s == nil {
		refuse(w, http.StatusNotFound, "there is no such session")
		return
	}
	s.leave()
	if h.forget(id) == s {
		s.end()
	}
	w.WriteHeader(http.StatusNoContent)
}
