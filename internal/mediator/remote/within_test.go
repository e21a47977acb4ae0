package remote

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestSaidIn: a notification belongs to the call in whose answer it came, whatever came
// before it; one that comes outside of answers belongs to none.
func TestSaidIn(t *testing.T) {
	p := connect(t, "", func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		note := "data: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/message\"}\n\n"
		switch {
		case r.Method == http.MethodGet:
			sse(w, note)
			<-r.Context().Done()
		case strings.Contains(string(body), `initialized"`):
			w.WriteHeader(http.StatusAccepted)
		default:
			sse(w, note+note+"data: {\"jsonrpc\":\"2.0\",\"id\":7,\"result\":{}}\n\n"+note)
		}
	})
	p.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	p.receive()
	p.ask(aCall, "notifications/message")
	p.receive()
	if p.receive() != `{"jsonrpc":"2.0","id":7,"result":{}}` {
		t.Error("no answer")
	}
	for _, each := range []struct {
		line uint64
		want int64
	}{{1, 0}, {3, 7}, {3, 0}, {4, 0}} { // nobody asks for the second
		if in := p.p.Within(each.line); in != each.want {
			t.Errorf("line %d belongs to %d, want %d", each.line, in, each.want)
		}
	}
}
