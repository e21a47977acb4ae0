package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
)

// A passing answers requests of HTTP with what the server answers.
type passing struct {
	to     string
	client http.Client

	mu          sync.Mutex // of the mills, which take one at a time
	there, back *mill
}

// overHTTP listens, prints its URL, and passes on until it is killed.
func overHTTP(socket, to string) error {
	there, err := newMill(socket, decide)
	if err != nil {
		return err
	}
	back, err := newMill(socket, finish)
	if err != nil {
		return errors.Join(err, there.nc.Close())
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("http://%s/mcp\n", l.Addr())
	return http.Serve(l, &passing{to: to, client: http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 32}}, there: there, back: back})
}

func (p *passing) turn(m *mill, body []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return m.turn(body)
}

func (p *passing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := p.pass(w, r); err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
	}
}

func (p *passing) pass(w http.ResponseWriter, r *http.Request) error {
	body, err := io.ReadAll(r.Body)
	if err == nil {
		body, err = p.turn(p.there, body)
	}
	if err != nil {
		return err
	}
	out, err := http.NewRequestWithContext(r.Context(), http.MethodPost, p.to, bytes.NewReader(body))
	if err != nil {
		return err
	}
	out.Header = r.Header.Clone()
	resp, err := p.client.Do(out)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err == nil {
		body, err = p.turn(p.back, body)
	}
	if err != nil {
		return err
	}
	for _, name := range []string{"Content-Type", "Mcp-Session-Id"} {
		if v := resp.Header.Get(name); v != "" {
			w.Header().Set(name, v)
		}
	}
	w.WriteHeader(resp.StatusCode)
	_, err = w.Write(body)
	return err
}
