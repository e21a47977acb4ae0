package container

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/entrance"
)

// ways are where the init listens, for programs to come to the way out.
type ways struct {
	Proxy, Resolver int
	Tools           int `json:",omitempty"`
	Ports           []int
}

func waysOf(s sandbox.Spec) *ways {
	if !s.Ways.Any() || s.Ways.Take == nil {
		return nil
	}
	w := &ways{Proxy: int(s.Ways.Proxy), Resolver: int(s.Ways.Resolver), Tools: int(s.Ways.Tools)}
	for _, p := range s.Ways.Ports {
		w.Ports = append(w.Ports, int(p))
	}
	return w
}

// giveWays listens, in the container, and hands the sockets out: in one message, of which
// each byte is the kind of one.
func giveWays(c *net.UnixConn, w ways) error {
	kinds, fds, err := entrance.Open(w.Proxy, w.Resolver, w.Tools, w.Ports)
	if err != nil {
		return err
	}
	text := make([]byte, len(kinds))
	for i, k := range kinds {
		text[i] = byte(k)
	}
	_, _, err = c.WriteMsgUnix(text, unix.UnixRights(fds...), nil)
	for _, fd := range fds {
		unix.Close(fd)
	}
	return err
}

// takeWays receives them.
func takeWays(c *net.UnixConn) (l sandbox.Listening, err error) {
	text := make([]byte, maxDescriptors)
	oob := make([]byte, unix.CmsgSpace(4*maxDescriptors))
	n, oobn, _, _, err := c.ReadMsgUnix(text, oob)
	if err != nil {
		return l, fmt.Errorf("taking its ways: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return l, fmt.Errorf("taking its ways: %w", err)
	}
	var fds []int
	for _, m := range messages {
		got, err := unix.ParseUnixRights(&m)
		if err != nil {
			return l, fmt.Errorf("taking its ways: %w", err)
		}
		fds = append(fds, got...)
	}
	if len(fds) != n {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return l, fmt.Errorf("taking its ways: %d sockets, of %d kinds", len(fds), n)
	}
	for i, fd := range fds {
		unix.CloseOnExec(fd)
		l.Add(int(text[i]), os.NewFile(uintptr(fd), "way"))
	}
	if len(l.Proxy) == 0 || len(l.Packets) == 0 {
		return l, errors.Join(errors.New("taking its ways: the proxy or the resolver is missing"), l.Close())
	}
	return l, nil
}

// handOut gives what listens to who asked for it.
func (st *stage) handOut(s sandbox.Spec) error {
	if waysOf(s) == nil {
		return nil
	}
	l := st.listening
	st.listening = sandbox.Listening{}
	return s.Ways.Take(l)
}
