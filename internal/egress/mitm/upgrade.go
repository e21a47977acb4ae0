package mitm

import (
	"bufio"
	"context"
	"crypto/sha1"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/textproto"
	"slices"
	"strings"
	"time"
)

// acceptKey is appended to a client's key before it is hashed (RFC 6455 §1.3).
const acceptKey = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"

// closeWait is how long the other side may take to close after one has.
const closeWait = 10 * time.Second

// tellWait is how long a side may take to take a close frame of ours.
const tellWait = time.Second

// An upgrade is what a client asked for.
type upgrade struct {
	accept    string   // that upstream must answer
	protocols []string // that it may choose from
}

// checkUpgrade reads the handshake of a WebSocket; nil if r is an ordinary request. An
// offer to go on in another protocol is not passed on, and so refused.
func checkUpgrade(r *http.Request) (*upgrade, error) {
	if r.ProtoMajor != 1 || !accepts(r.Header, "Upgrade", "websocket") || !accepts(r.Header, "Connection", "upgrade") {
		return nil, nil
	}
	keys := r.Header["Sec-Websocket-Key"]
	switch {
	case r.Method != http.MethodGet || r.ProtoMinor != 1 || r.ContentLength != 0:
		return nil, refusal("upgrade", "only a GET of HTTP/1.1 without a body is upgraded")
	case !slices.Equal(r.Header["Sec-Websocket-Version"], []string{"13"}):
		return nil, refusal("upgrade", "only version 13 of WebSocket is known")
	case len(keys) != 1:
		return nil, refusal("upgrade", "a handshake has one key")
	}
	if key, err := base64.StdEncoding.Strict().DecodeString(keys[0]); err != nil || len(key) != 16 {
		return nil, refusal("upgrade", "the key of a handshake is not 16 bytes in base64")
	}
	sum := sha1.Sum([]byte(keys[0] + acceptKey))
	up := &upgrade{accept: base64.StdEncoding.EncodeToString(sum[:])}
	for _, v := range r.Header["Sec-Websocket-Protocol"] {
		for p := range strings.SplitSeq(v, ",") {
			up.protocols = append(up.protocols, textproto.TrimString(p))
		}
	}
	return up, nil
}

// ask makes h that of the handshake as it goes out: without extensions, whose frames
// could not be read.
func (up *upgrade) ask(h http.Header) {
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
	h.Del("Sec-Websocket-Extensions")
}

// agreed checks what upstream answered.
func (up *upgrade) agreed(h http.Header) error {
	protocol := h["Sec-Websocket-Protocol"]
	switch {
	case up == nil:
		return refusal("upgrade", "the server switched protocols without being asked to")
	case !accepts(h, "Upgrade", "websocket") || !slices.Equal(h["Sec-Websocket-Accept"], []string{up.accept}):
		return refusal("upgrade", "the server did not agree to this handshake")
	case len(h["Sec-Websocket-Extensions"]) > 0:
		return refusal("upgrade", "the server uses extensions that nobody offered")
	case len(protocol) > 1 || len(protocol) == 1 && !slices.Contains(up.protocols, protocol[0]):
		return refusal("upgrade", "the server chose a protocol that nobody offered")
	}
	return nil
}

// switched carries a WebSocket until it is closed.
func (f *Forwarder) switched(ctx context.Context, w http.ResponseWriter, r *http.Request, up *upgrade, res *http.Response) (Carried, error) {
	server, ok := res.Body.(io.ReadWriteCloser)
	err := up.agreed(res.Header)
	if err == nil && !ok {
		err = errors.New("the transport gives no connection after an upgrade")
	}
	if err != nil {
		return f.refuse(w, r, Carried{}, http.StatusBadGateway, err)
	}
	conn, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return f.refuse(w, r, Carried{}, http.StatusInternalServerError, fmt.Errorf("taking the connection over: %w", err))
	}
	defer conn.Close()
	if strict, ok := conn.(interface{ Raw() }); ok {
		strict.Raw()
	}
	got := Carried{Status: http.StatusSwitchingProtocols}
	if err := grant(conn, res.Header); err != nil {
		return got, fmt.Errorf("granting an upgrade: %w", err)
	}
	out := f.direction(buffered.Reader, &wire{to: server, masked: true}, f.Request, r.Header)
	out.fromClient = true
	in := f.direction(bufio.NewReader(server), &wire{to: conn}, f.Reply, res.Header)
	if sent := out.filter; sent != nil {
		out.filter = func() Filter {
			if by := sent(); by != nil {
				return &unchanged{filter: by}
			}
			return nil
		}
	}
	err = both(ctx, out, in, conn, server)
	got.Sent, got.Received = out.passed, in.passed
	return got, err
}

// grant tells the client that it may go on with frames.
func grant(conn net.Conn, h http.Header) error {
	dropConnectionHeaders(h)
	h.Set("Connection", "Upgrade")
	h.Set("Upgrade", "websocket")
	var head strings.Builder
	head.WriteString("HTTP/1.1 101 Switching Protocols\r\n")
	if err := h.Write(&head); err != nil {
		return err
	}
	head.WriteString("\r\n")
	if err := conn.SetDeadline(time.Time{}); err != nil {
		return err
	}
	_, err := io.WriteString(conn, head.String())
	return err
}

func (f *Forwarder) direction(from *bufio.Reader, to *wire, filter func(http.Header) Filter, h http.Header) *frames {
	d := &frames{from: from, to: to, limits: f.Limits.withDefaults(), begins: f.Message}
	if filter != nil {
		d.filter = func() Filter { return filter(h) }
	}
	return d
}

// both relays out and in until both are closed, one fails, or ctx ends, and returns why
// it was not both that closed. It closes the two connections.
func both(ctx context.Context, out, in *frames, client, server io.Closer) error {
	end := func() { client.Close(); server.Close() }
	stop := context.AfterFunc(ctx, end)
	defer stop()
	type ended struct {
		err error
		of  *frames
	}
	done := make(chan ended, 2)
	for _, d := range []*frames{out, in} {
		go func() { done <- ended{d.relay(), d} }()
	}
	first := <-done
	if first.err != nil {
		tellBoth(first.err, first.of, out, in, end)
		end()
	}
	timer := time.AfterFunc(closeWait, end)
	defer timer.Stop()
	second := <-done
	if first.err == nil && second.err != nil {
		tellBoth(second.err, second.of, out, in, end)
		first = second
	}
	end()
	return first.err
}

// tellBoth has both sides told why one direction, of, was not let go on. Who does not listen is
// not waited for.
func tellBoth(err error, of, out, in *frames, end func()) {
	client, ok1 := in.to.(*wire)
	server, ok2 := out.to.(*wire)
	if !ok1 || !ok2 {
		return
	}
	timer := time.AfterFunc(tellWait, end)
	defer timer.Stop()
	if ends(err, of.fromClient, client, server) {
		_, _ = io.Copy(io.Discard, of.from) // closed with something unread, it would be reset, and the frame lost
	}
}
