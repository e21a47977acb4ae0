// Command relay is what a call through the program is measured beside: the same
// processes with the same hops between them, and nothing done in any of them.
//
//	relay engine SOCKET            stands in for the engine
//	relay pass SOCKET COMMAND …    stands in for the mediator of the server COMMAND
//	relay deny SOCKET              stands in for a mediator whose calls are all denied
//	relay http SOCKET URL          stands in for one that listens, of the server at URL
//
// It finds the ends of lines, the lengths of frames and, to deny, the id of a
// request. It is no proxy: it bounds little and checks nothing.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"syscall"

	"ringfence/internal/sys/ipc"
)

const most = 1 << 20 // bytes of a header, and of a body

// A frame of ours has a header that says how long the header of the reply is to
// be, and the whole line for a body. Theirs have more header and less body; what
// matters is that so many bytes go each way. They are those of a call of
// read_text_file of a file of one line, and of its denial.
type sizes struct{ ask, reply uint32 }

var (
	decide = sizes{29, 203} // frames of 182 and 356 bytes about a line of 145
	finish = sizes{67, 4}   // 220 and 157 (ours: 139)
	refuse = sizes{28, 367} // 179 and 518 about a line of 143
)

const denial = 367 // bytes of the line that says so

func main() {
	var err error
	switch args := os.Args[1:]; {
	case len(args) == 2 && args[0] == "engine":
		err = engine(args[1])
	case len(args) == 2 && args[0] == "deny":
		err = deny(args[1])
	case len(args) == 3 && args[0] == "http":
		err = overHTTP(args[1], args[2])
	case len(args) > 2 && args[0] == "pass":
		err = pass(args[1], args[2:])
	default:
		err = errors.New("engine SOCKET, pass SOCKET COMMAND …, deny SOCKET, or http SOCKET URL")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(1)
	}
}

// engine answers every frame on every connection, until its input ends.
func engine(socket string) error {
	l, err := ipc.Listen(socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			go answer(nc)
		}
	}()
	fmt.Println("ready")
	_, err = io.Copy(io.Discard, os.Stdin)
	return errors.Join(err, l.Close())
}

func answer(nc net.Conn) {
	defer nc.Close()
	r := bufio.NewReaderSize(nc, 16<<10)
	for {
		header, body, err := ipc.ReadFrame(r, most, most)
		if err != nil || len(header) < 4 {
			return
		}
		n := min(binary.BigEndian.Uint32(header), most)
		if ipc.WriteFrame(nc, make([]byte, n), body) != nil {
			return
		}
	}
}

// A mill sends lines to the stand-in engine and has them back.
type mill struct {
	nc     net.Conn
	r      *bufio.Reader
	header []byte
}

func newMill(socket string, s sizes) (*mill, error) {
	nc, err := ipc.Dial(context.Background(), socket)
	if err != nil {
		return nil, err
	}
	header := make([]byte, s.ask)
	binary.BigEndian.PutUint32(header, s.reply)
	return &mill{nc, bufio.NewReaderSize(nc, 16<<10), header}, nil
}

func (m *mill) turn(line []byte) ([]byte, error) {
	if err := ipc.WriteFrame(m.nc, m.header, line); err != nil {
		return nil, err
	}
	_, body, err := ipc.ReadFrame(m.r, most, most)
	return body, err
}

// input is the standard input, as a stream that the poller of the runtime waits
// for. Where a thread waits in read(2) instead, and the rest of the program for
// the network, nobody looks at the network until the runtime's watcher does, up
// to 10 ms later.
func input() *os.File {
	if err := syscall.SetNonblock(syscall.Stdin, true); err != nil {
		return os.Stdin
	}
	return os.NewFile(uintptr(syscall.Stdin), "standard input")
}

// pump passes lines on until there are no more. What each becomes is up to each;
// nothing is written for nil.
func pump(from io.Reader, to io.Writer, each func(line []byte) ([]byte, error)) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			line, err = each(line)
		}
		if err == nil && line != nil {
			_, err = to.Write(line)
		}
		if err != nil {
			return err
		}
	}
}

func pass(socket string, argv []string) error {
	there, err := newMill(socket, decide)
	if err != nil {
		return err
	}
	defer there.nc.Close()
	back, err := newMill(socket, finish)
	if err != nil {
		return err
	}
	defer back.nc.Close()
	cmd := exec.CommandContext(context.Background(), argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return err
	}
	up := make(chan error, 1)
	go func() { up <- errors.Join(pump(input(), in, there.turn), in.Close()) }()
	err = pump(out, os.Stdout, back.turn) // ends with the server, which ends with its input
	return errors.Join(err, <-up, cmd.Wait())
}

func deny(socket string) error {
	m, err := newMill(socket, refuse)
	if err != nil {
		return err
	}
	defer m.nc.Close()
	return pump(input(), os.Stdout, func(line []byte) ([]byte, error) {
		line, err := m.turn(line)
		if err != nil {
			return nil, err
		}
		_, rest, ok := bytes.Cut(line, []byte(`"id":`))
		id, _, _ := bytes.Cut(rest, []byte(","))
		if !ok {
			return nil, nil // a notification
		}
		return no(id), nil
	})
}

// no is the line that denies the request id.
func no(id []byte) []byte {
	const form = `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":"%s"}],"isError":true,` +
		`"_meta":{"ringfence":{"code":"relay","rules":[],"ticket":""}}}}` + "\n"
	text := strings.Repeat("x", max(0, denial-len(form)+len("%s%s")-len(id)))
	return fmt.Appendf(nil, form, id, text)
}
