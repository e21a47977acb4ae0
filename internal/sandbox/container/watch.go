package container

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A watcher is a process of ours that outlives us. An engine keeps what its client leaves
// behind when that is killed, and lets it run on where the init is not ours. So before the
// first container there is a watcher, which removes all of them when its standard input
// ends: by our end, whatever that was.
//
//	we → it   a line: what it watches
//	we → it   a byte for each container: '+' before it is made, '-' when it is gone
//
// It hears nothing else, answers nothing, and needs no signal of a terminal. It also sweeps,
// once, what others have left.
type watcher struct {
	mark    string // the label of what it removes; a process may have several tiers
	mu      sync.Mutex
	process *os.Process
	ended   chan struct{} // closed when it has
	input   *os.File      // nil if there is no process
	boxes   int
}

// A watched says whose containers a watcher is to remove, and at which engine.
type watched struct {
	Runtime Runtime
	Socket  string
	Home    string
	Dir     string
	Mark    string
}

// What a watcher hears.
const (
	boxComes = '+'
	boxGoes  = '-'
)

// watcher returns that of an engine.
func (t *Tier) watcher(e *engine) *watcher {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers == nil {
		t.watchers = map[string]*watcher{}
	}
	if t.watchers[e.socket] == nil {
		t.watchers[e.socket] = &watcher{mark: rand.Text()}
	}
	return t.watchers[e.socket]
}

// come says that a container is about to be made. One that nobody would remove is not.
func (w *watcher) come(o watched) error {
	o.Mark = w.mark
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.input != nil {
		if _, err := w.input.Write([]byte{boxComes}); err == nil {
			w.boxes++
			return nil
		}
		w.leave() // it was killed
	}
	if err := w.start(o); err != nil {
		w.leave()
		return fmt.Errorf("starting what removes containers when this process is killed: %w", err)
	}
	w.boxes++
	return nil
}

// start starts the process and tells it of all containers there are, and of one more.
func (w *watcher) start(o watched) error {
	program, err := ownProgram()
	if err != nil {
		return err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	theirs, ours, err := os.Pipe()
	if err != nil {
		return err
	}
	defer shut(theirs)
	w.input = ours
	cmd := exec.Command(program, watchVerb)
	cmd.Args[0] = "ringfence"
	cmd.Env, cmd.Dir, cmd.Stdin, cmd.SysProcAttr = []string{}, rootDir, theirs, ownSession()
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	w.process, w.ended = cmd.Process, ended
	go func() {
		defer close(ended)
		_ = cmd.Wait() // that it has ended, the next container finds out
	}()
	text = append(text, '\n')
	for range w.boxes + 1 {
		text = append(text, boxComes)
	}
	_, err = ours.Write(text)
	return err
}

// leave gives a process up that does not hear any more.
func (w *watcher) leave() {
	if w.input != nil {
		shut(w.input)
	}
	w.input = nil
}

// gone says that a container is gone.
func (w *watcher) gone() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.boxes--
	if w.input != nil {
		_, _ = w.input.Write([]byte{boxGoes}) // one that does not hear it is replaced with the next container
	}
}

// maxWatched bounds the line that says what is watched.
const maxWatched = 64 << 10

// runWatch is the process.
func runWatch(in io.Reader) int {
	r := bufio.NewReaderSize(in, maxWatched)
	line, err := r.ReadSlice('\n')
	var o watched
	if err == nil {
		err = json.Unmarshal(line, &o)
	}
	if err != nil || o.Mark == "" {
		return notInContainer
	}
	t := New(Options{Runtime: o.Runtime, Socket: o.Socket, Home: o.Home, Dir: o.Dir})
	ctx := context.Background()
	_, _ = t.Sweep(ctx) // nobody hears of it; who sweeps for a person says so
	boxes := 0
	for {
		b, err := r.ReadByte()
		switch {
		case err != nil && boxes == 0:
			return 0
		case err != nil:
			return status(t.bury(ctx, o.Mark))
		case b == boxComes:
			boxes++
		case b == boxGoes:
			boxes--
		}
	}
}

func status(err error) int {
	if err != nil {
		return 1
	}
	return 0
}

// A creation that was on its way when its client was killed may still come to be. So there
// must be nothing to see several times in a row.
const (
	buryRounds = 60
	buryClean  = 4
	buryPause  = 500 * time.Millisecond
)

// bury removes the containers with a mark, whose owner is gone.
func (t *Tier) bury(ctx context.Context, mark string) (err error) {
	for round, clean := 0, 0; round < buryRounds && clean < buryClean; round++ {
		if round > 0 {
			time.Sleep(buryPause)
		}
		var n int
		if n, err = t.removeMarked(ctx, mark); n == 0 && err == nil {
			clean++
		} else {
			clean = 0
		}
	}
	return errors.Join(err, t.o.sweepDirs())
}

func (t *Tier) removeMarked(ctx context.Context, mark string) (n int, err error) {
	ctx, cancel := context.WithTimeout(ctx, setUpTime)
	defer cancel()
	e, err := t.connect(ctx)
	if err != nil {
		return 0, err
	}
	list, err := e.labelled(ctx, labelMark+"="+mark)
	if err != nil {
		t.forget()
		return 0, err
	}
	for _, c := range list {
		err = errors.Join(err, e.remove(ctx, c.ID))
	}
	return len(list), err
}
