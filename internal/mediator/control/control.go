// Package control lets other processes of the same user look at the servers of a
// running mediator, and restart one: a Unix socket for each mediator, one question and
// one answer for each connection.
//
// It decides nothing and cannot call a tool. It is not the engine's protocol: what is
// asked here is known to the process that holds the servers, and to no other.
//
// Invariants:
//
//	C1  The socket is private to the user, and who asks is of that user, as the kernel says.
//	C2  A question is at most 4 KiB and an answer 1 MiB, and each takes 70 s at most.
package control

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/mediator"
	"ringfence/internal/sys/ipc"
)

// Bounds.
const (
	maxQuestion = 4 << 10
	maxAnswer   = 1 << 20
	maxAtOnce   = 8
	pingTime    = 3 * time.Second
	allTime     = 70 * time.Second // a restart included
)

// What is asked.
const (
	List    = "list"
	Log     = "log"
	Restart = "restart"
)

// A Question is what one process asks another.
type Question struct {
	What   string
	Server string `json:",omitempty"` // for all but List
}

// An Answer is what it hears.
type Answer struct {
	Session string
	Servers []mediator.State `json:",omitempty"` // of List
	Log     string           `json:",omitempty"` // of Log; the text of a stranger
	Error   string           `json:",omitempty"`
}

// prefix is what names of sockets begin with, before the process id.
const prefix = "m"

// Path returns where the mediator of process pid listens, beside the engine's socket.
func Path(engineSocket string, pid int) string {
	return filepath.Join(filepath.Dir(engineSocket), prefix+strconv.Itoa(pid))
}

// Serve answers for m at path until ctx ends.
func Serve(ctx context.Context, path, session string, m *mediator.Mediator) error {
	l, err := ipc.Listen(path)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = l.Close() })
	defer func() {
		if stop() {
			_ = l.Close()
		}
		_ = os.Remove(path + ".lock") // the process id may be another's next time
	}()
	slots := make(chan struct{}, maxAtOnce)
	for {
		conn, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accepting a question about servers: %w", err)
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		go func() { // ends with its time
			defer func() { <-slots }()
			defer conn.Close()
			serve(ctx, conn, session, m)
		}()
	}
}

func serve(parent context.Context, conn net.Conn, session string, m *mediator.Mediator) {
	peer, err := ipc.PeerOf(conn)
	if err != nil || peer.HasUID && peer.UID != uint32(os.Geteuid()) {
		return
	}
	ctx, cancel := context.WithTimeout(parent, allTime)
	defer cancel()
	if deadline, ok := ctx.Deadline(); ok && conn.SetDeadline(deadline) != nil {
		return
	}
	raw, err := io.ReadAll(io.LimitReader(conn, maxQuestion))
	if err != nil {
		return
	}
	var q Question
	a := Answer{Session: session}
	if err := strictjson.Unmarshal(raw, &q); err != nil {
		a.Error = err.Error()
	} else {
		a.fill(ctx, q, m)
	}
	if data, err := json.Marshal(a); err == nil {
		_, _ = conn.Write(data) // who asked may have gone
	}
}

func (a *Answer) fill(ctx context.Context, q Question, m *mediator.Mediator) {
	var err error
	switch q.What {
	case List:
		ctx, cancel := context.WithTimeout(ctx, pingTime)
		defer cancel()
		a.Servers = m.Check(ctx)
	case Log:
		a.Log, err = m.Log(q.Server)
	case Restart:
		err = m.Restart(ctx, q.Server)
	default:
		err = errors.New("nobody knows what is asked")
	}
	if err != nil {
		a.Error = err.Error()
	}
}

// Ask asks the mediator at path.
func Ask(ctx context.Context, path string, q Question) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, allTime)
	defer cancel()
	var a Answer
	conn, err := ipc.Dial(ctx, path)
	if err != nil {
		return a, err
	}
	defer conn.Close()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	data, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	if _, err = conn.Write(data); err == nil {
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			err = half.CloseWrite()
		}
	}
	if err != nil {
		return a, fmt.Errorf("asking about servers: %w", err)
	}
	data, err = io.ReadAll(io.LimitReader(conn, maxAnswer))
	if err == nil {
		err = json.Unmarshal(data, &a)
	}
	if err != nil {
		return a, fmt.Errorf("hearing about servers: %w", err)
	}
	return a, nil
}

// Running returns the sockets of mediators beside the engine's, by process id. Some may
// be of processes that have ended.
func Running(engineSocket string) (map[int]string, error) {
	entries, err := os.ReadDir(filepath.Dir(engineSocket))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("looking for mediators: %w", err)
	}
	all := map[int]string{}
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), prefix)
		pid, err := strconv.Atoi(number)
		if ok && err == nil && pid > 0 && e.Type() == fs.ModeSocket {
			all[pid] = Path(engineSocket, pid)
		}
	}
	return all, nil
}

// SweepAll removes what mediators that ended without notice have left beside the engine's
// socket.
func SweepAll(engineSocket string) error {
	all, err := Running(engineSocket)
	Sweep(slices.Collect(maps.Values(all)))
	return err
}

// Sweep removes the sockets of processes that have ended: nobody answers there.
func Sweep(paths []string) {
	for _, path := range slices.Compact(slices.Sorted(slices.Values(paths))) {
		lock, err := ipc.NewLock(path + ".lock")
		if err != nil {
			continue // somebody listens
		}
		_ = os.Remove(path)
		_ = os.Remove(path + ".lock")
		_ = lock.Unlock()
	}
}
