package listen

import (
	"context"
	"io"
	"mime"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/mediator"
)

// Headers of the transport.
const (
	headerVersion = "MCP-Protocol-Version"
	headerSession = "Mcp-Session-Id"
	headerMethod  = "Mcp-Method"
	headerName    = "Mcp-Name"
	headerParam   = "Mcp-Param-"
	headerLast    = "Last-Event-ID"
)

// The codes of JSON-RPC and MCP that this package answers with.
const (
	codeParse    = -32700
	codeRequest  = -32600
	codeMethod   = -32601
	codeParams   = -32602
	codeMismatch = -32020 // HeaderMismatch of 2026-07-28
	codeMissing  = -32021 // MissingRequiredClientCapability
	codeVersion  = -32022 // UnsupportedProtocolVersion
)

// firstStateless is the revision from which on every request stands alone.
const firstStateless = "2026-07-28"

var revision = regexp.MustCompile(`^\d{4}-\d{2}-\d{2}$`)

// statuses are the HTTP statuses of errors that a whole answer consists of.
var statuses = map[int]int{
	codeParse: http.StatusBadRequest, codeRequest: http.StatusBadRequest, codeMethod: http.StatusNotFound,
	codeMismatch: http.StatusBadRequest, codeMissing: http.StatusBadRequest, codeVersion: http.StatusBadRequest,
}

// refuse answers with a status and a text for people, which is never a client's.
func refuse(w http.ResponseWriter, status int, text string) {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(stepTime)) // of a body that nobody reads
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text+"\n")
}

func strconvUint(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// post takes in one message.
func (h *Handler) post(w http.ResponseWriter, r *http.Request, who string) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		refuse(w, http.StatusUnsupportedMediaType, "Content-Type must be application/json")
		return
	}
	if !accepts(r, "application/json") || !accepts(r, "text/event-stream") {
		refuse(w, http.StatusNotAcceptable, "Accept must have both application/json and text/event-stream")
		return
	}
	body, status := h.body(w, r, who)
	if status != 0 {
		refuse(w, status, http.StatusText(status))
		return
	}
	m := mediator.Read(body)
	version, ok := only(r.Header, headerVersion)
	if !ok {
		h.refuseMessage(w, m, codeRequest, "there is more than one "+headerVersion)
		return
	}
	switch {
	case m.Err() != nil:
		h.refuseMessage(w, m, codeOf(m.Err()), "refused: "+m.Err().Error())
	case revision.MatchString(version) && version >= firstStateless, m.Stateless() && !m.Response():
		h.single(w, r, who, m, version)
	default:
		h.inSession(w, r, who, m, version)
	}
}

// codeOf is the code for what could not be read.
func codeOf(err error) int {
	if mediator.NotJSON(err) {
		return codeParse
	}
	return codeRequest
}

// only returns the value of a header that is there at most once.
func only(header http.Header, name string) (string, bool) {
	values := header.Values(name)
	if len(values) == 0 {
		return "", true
	}
	return strings.Trim(values[0], " \t"), len(values) == 1
}

// accepts reports whether the client takes in a kind of body.
func accepts(r *http.Request, kind string) bool {
	main, _, _ := strings.Cut(kind, "/")
	for _, header := range r.Header.Values("Accept") {
		for part := range strings.SplitSeq(header, ",") {
			got, _, err := mime.ParseMediaType(part)
			if err == nil && (got == kind || got == "*/*" || got == main+"/*") {
				return true
			}
		}
	}
	return false
}

// refuseMessage answers m, which goes no further, with an error.
func (h *Handler) refuseMessage(w http.ResponseWriter, m mediator.Message, code int, text string) {
	status := statuses[code]
	if status == 0 {
		status = http.StatusBadRequest
	}
	h.writeJSON(w, status, m.Refusal(code, text))
}

// single serves a request that stands alone. The end of its connection cancels it.
func (h *Handler) single(w http.ResponseWriter, r *http.Request, who string, m mediator.Message, version string) {
	if m.Response() {
		refuse(w, http.StatusBadRequest, "a client of this revision sends no responses")
		return
	}
	if text := h.mismatch(r.Header, m, version); text != "" {
		h.refuseMessage(w, m, codeMismatch, text)
		return
	}
	if !m.Request() {
		w.WriteHeader(http.StatusAccepted) // none of them says anything to a server that keeps nothing
		return
	}
	c, err := h.m.Connect(who, nil)
	if err != nil {
		refuse(w, http.StatusServiceUnavailable, "too many connections at once")
		return
	}
	defer c.Close()
	s := newStream(nil, 0)
	defer s.end()
	ctx, stop := context.WithCancel(r.Context())
	defer stop()
	gone := context.AfterFunc(ctx, c.Cancel)
	defer gone()
	s.take(ctx, stop, false)
	c.Take(m, true, s)
	h.send(ctx, w, s, cursor{}, true)
}
