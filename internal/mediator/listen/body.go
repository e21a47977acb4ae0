package listen

import (
	"errors"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// step is in what pieces a body reserves memory. The first is not counted: there is room
// for one of every request that there may be.
const step = 64 << 10

// body reads the body of a request, or returns the status that refuses it. It reserves
// memory as bytes arrive, not as they are announced.
func (h *Handler) body(w http.ResponseWriter, r *http.Request, who string) (body []byte, status int) {
	if r.ContentLength > maxBody {
		return nil, http.StatusRequestEntityTooLarge
	}
	control := http.NewResponseController(w)
	in := &intake{h: h, who: who, in: http.MaxBytesReader(w, r.Body, maxBody), control: control, end: time.Now().Add(bodyTime)}
	defer in.release()
	body, err := io.ReadAll(in)
	if err == nil {
		_ = control.SetReadDeadline(time.Time{})
	} else {
		w.Header().Set("Connection", "close") // what is left of the body is not waited for
	}
	var long *http.MaxBytesError
	switch {
	case errors.As(err, &long):
		return nil, http.StatusRequestEntityTooLarge
	case errors.Is(err, errBodies):
		return nil, http.StatusServiceUnavailable
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, http.StatusRequestTimeout
	case err != nil: // its pieces are none, or it broke off
		return nil, http.StatusBadRequest
	case len(strings.TrimSpace(string(body[:min(len(body), 64)]))) == 0:
		return nil, http.StatusBadRequest
	}
	return body, 0
}

// errBodies says that bodies being read leave no room for more of this one.
var errBodies = errors.New("too many long messages at once")

// An intake reads one body.
type intake struct {
	h       *Handler
	who     string
	in      io.Reader
	control *http.ResponseController
	end     time.Time // of the whole body

	came     int64 // bytes
	steps    int64 // that were begun
	reserved int64 // bytes
}

// Read implements [io.Reader]. It reads no further than a step that is reserved, and each
// step must come within stepTime.
func (i *intake) Read(p []byte) (int, error) {
	if i.came == i.steps*step {
		if i.steps > 0 && !i.h.reserve(i.who, step) {
			return 0, errBodies
		}
		if i.steps > 0 {
			i.reserved += step
		}
		i.steps++
		due := time.Now().Add(stepTime)
		if due.After(i.end) {
			due = i.end
		}
		_ = i.control.SetReadDeadline(due) // where there are none, ReadHeaderTimeout has ended
	}
	n, err := i.in.Read(p[:min(int64(len(p)), i.steps*step-i.came)])
	i.came += int64(n)
	return n, err
}

func (i *intake) release() { i.h.unreserve(i.who, i.reserved) }

// reserve counts n bytes of the body of a client in, if there is room for them and they
// are within its share.
func (h *Handler) reserve(who string, n int64) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.bodies+n > maxBodies || h.shares[who]+n > maxBodiesEach {
		return false
	}
	h.bodies += n
	h.shares[who] += n
	return true
}

func (h *Handler) unreserve(who string, n int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.bodies -= n
	if h.shares[who] -= n; h.shares[who] == 0 {
		delete(h.shares, who)
	}
}
