// Package proc starts and ends trusted child processes of our own, such as the
// engine.
//
// It is not a box. What it starts is our own program with our own rights; code
// that is not ours runs in a box (package sandbox). Its second half, ending a
// process with everything that descends from it, is used by boxes too.
//
// Invariants:
//
//	P1  A child sees exactly the environment, directory and descriptors that
//	    its [Command] names: nothing is inherited by accident.
//	P2  A detached child leads a session of its own. No signal to our terminal
//	    or group reaches it, and it lives on when we end.
//	P3  Nothing here signals process 1, our own process, or a process whose
//	    number was given out again since we looked.
package proc

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
)

// A Command is what [Detach] starts. The zero value of every member but Argv is
// the most closed choice.
type Command struct {
	Argv []string // Argv[0] is the absolute path of the program
	Env  []string // "KEY=value", the whole environment
	Dir  string   // absolute; "" is "/"
	// Log is the absolute path of a file that receives standard output and
	// error, made with mode 0600 and appended to. "" discards both. Standard
	// input is always empty.
	Log string
	// Files are handed down as descriptors 3, 4, … They stay open here.
	Files []*os.File
}

// A Child is a process that Detach started.
type Child struct {
	process *os.Process
	done    chan struct{}
	err     error // set before done is closed

	mu     sync.Mutex
	reaped bool // the number of the process may be somebody else's by now
}

// Executable returns the absolute real path of the running program. It is an
// error if that file was replaced or removed since the program started: a child
// started from it would be another version.
func Executable() (string, error) {
	p, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	if was, ok := strings.CutSuffix(p, " (deleted)"); ok {
		return "", fmt.Errorf("finding our own program: %s was replaced while it ran; start it again", was)
	}
	real, err := filepath.EvalSymlinks(p)
	if err != nil {
		return "", fmt.Errorf("finding our own program: %w", err)
	}
	return real, nil
}

// Detach starts c in a session of its own and returns at once. The child is not
// ended when we end. If it ends first, [Child.Done] says so.
func Detach(c Command) (*Child, error) {
	if len(c.Argv) == 0 || !filepath.IsAbs(c.Argv[0]) {
		return nil, errors.New("starting process: the program must be an absolute path")
	}
	cmd := exec.Command(c.Argv[0], c.Argv[1:]...)
	cmd.Env = append(make([]string, 0, len(c.Env)), c.Env...)
	cmd.Dir = c.Dir
	if cmd.Dir == "" {
		cmd.Dir = string(filepath.Separator)
	}
	cmd.ExtraFiles = c.Files
	cmd.SysProcAttr = newSession()
	if c.Log != "" {
		log, err := openLog(c.Log)
		if err != nil {
			return nil, err
		}
		defer log.Close()
		cmd.Stdout, cmd.Stderr = log, log
	}
	if err := SealDescriptors(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Argv[0], err)
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", c.Argv[0], err)
	}
	child := &Child{process: cmd.Process, done: make(chan struct{})}
	// Ends with the child, or with us; without it a child that ends early would
	// stay a zombie for as long as we live.
	go child.wait()
	return child, nil
}

func (c *Child) wait() {
	defer close(c.done)
	if AwaitExit(c.Pid()) == nil {
		c.mu.Lock()
		defer c.mu.Unlock()
	}
	state, err := c.process.Wait()
	c.reaped = true
	if err == nil && !state.Success() {
		err = errors.New(state.String())
	}
	c.err = err
}

// Pid returns the process number, which is also that of its group and session.
func (c *Child) Pid() int { return c.process.Pid }

// Done is closed when the child has ended.
func (c *Child) Done() <-chan struct{} { return c.done }

// Err returns how the child ended, nil for status 0. It may be called only after
// Done was closed.
func (c *Child) Err() error { return c.err }

// Kill ends the child and everything that descends from it, and waits until the
// child is gone. It is no error if it had ended already.
func (c *Child) Kill() error {
	if err := c.killTree(); err != nil {
		return err
	}
	<-c.done
	return nil
}

func (c *Child) killTree() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.reaped {
		return nil
	}
	return KillTree(c.Pid())
}

// openLog does not wait for a reader: a pipe in the place of the log is an error.
func openLog(name string) (*os.File, error) {
	if !filepath.IsAbs(name) {
		return nil, fmt.Errorf("opening log %s: the path must be absolute", name)
	}
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE|noWait, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening log: %w", err)
	}
	if fi, err := f.Stat(); err != nil || !fi.Mode().IsRegular() {
		f.Close()
		return nil, fmt.Errorf("opening log: %s is not a regular file", name)
	}
	return f, nil
}
