package hooks

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act"
)

// Path is where agents in a box ask, with the name of the agent after it.
const Path = "/hook/"

// A Handler answers the hooks of agents in the box of one session. Who may ask was found out
// before.
type Handler struct {
	decider act.Decider
	servers []string

	mu     sync.Mutex
	listed bool
}

// NewHandler returns a handler that has uses decided by d, which has [Server]. servers are
// those whose tools decide by themselves.
func NewHandler(d act.Decider, servers []string) *Handler {
	return &Handler{decider: d, servers: servers}
}

// patience is less than agents in a box wait for their hooks: one that is late may count as
// permission.
const patience = 55 * time.Minute

// ServeHTTP answers a POST of what an agent says with what it reads; a status other than 200
// is no permission.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	agent, ok := strings.CutPrefix(r.URL.Path, Path)
	if r.Method != http.MethodPost || !ok {
		http.Error(w, "hooks are posted to "+Path+"AGENT", http.StatusNotFound)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxInput))
	if err != nil {
		http.Error(w, "it is too large", http.StatusRequestEntityTooLarge)
		return
	}
	answer, err := h.answer(r.Context(), agent, body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // who has gone uses no tool
}

func (h *Handler) answer(ctx context.Context, agent string, body []byte) ([]byte, error) {
	if err := h.list(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return Decide(ctx, h.decider, agent, body, h.servers)
}

// list tells the session of the tools, once.
func (h *Handler) list(ctx context.Context) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.listed {
		return nil
	}
	err := List(ctx, h.decider)
	h.listed = err == nil
	return err
}

// Decide reads what agent says, has it decided, and returns what agent reads; nothing for what
// is no use of a tool, or of one that decides by itself.
func Decide(ctx context.Context, d act.Decider, agent string, body []byte, servers []string) ([]byte, error) {
	u, err := Parse(agent, body)
	if errors.Is(err, ErrNoTool) || err == nil && (u.Own || u.By(servers)) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	allowed, reason, err := Ask(ctx, d, u)
	if err != nil {
		return nil, err
	}
	return Answer(agent, u, allowed, reason), nil
}
