package mediator

import (
	"context"
	"io"
)

// A Starter starts the processes of servers, each in the box that its entry and
// its policy call for.
type Starter interface {
	// Start starts s. ctx bounds the start only. A box that cannot be built is
	// an error, never a weaker box.
	Start(ctx context.Context, s Server) (*Process, error)
}

// A Process is a started server. All of its fields up to Wait are set.
type Process struct {
	Stdin  io.WriteCloser
	Stdout io.ReadCloser
	Stderr io.ReadCloser
	// Terminate asks the whole tree of processes to end, Kill ends it. Both may
	// be called at any time, also after the end.
	Terminate func()
	Kill      func()
	// Wait returns when the process has ended, soon after Kill in any case. It
	// is called once, at once, and must leave Stdout and Stderr open: what was
	// written before the end is still read from them.
	Wait   func() error
	Report string // what confines the process, as the kernel confirmed it
	// Channel is where the server "exec" asks for commands; nil with all others.
	Channel io.ReadWriteCloser
	// About returns the id of the request of ours in whose answer the server made
	// the request id, 0 if in none. It is nil where streams do not tell, as with
	// standard output, and set where each answer has a stream of its own.
	About func(id []byte) int64
	// Within returns the id of the request of ours in whose answer the nth line of Stdout
	// came, 0 if in none; lines count from 1, and are asked for in their order. It is nil where
	// About is.
	Within func(n uint64) int64
	// Sessions says that the server has only the era of sessions: nobody asks it
	// for the other one.
	Sessions bool
}
