package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// readyFD is the descriptor on which an engine tells who started it how that
// went: one line, "ready", "locked", or a code of package api, ": " and why not. It
// means something only with [FlagStarted]: of a process that a person starts it
// can be anything.
const readyFD = 3

// FlagStarted is the flag of "ringfence engine run", without its dashes, that
// [Starter] alone gives.
const FlagStarted = "started"

// startPause is how long a client does not start another engine after one that
// failed.
const startPause = 5 * time.Second

// Starter returns what starts the engine of home as a process of its own. It
// returns when the engine listens, or when another process is the engine. For
// some seconds after an engine that could not start it returns that error again
// and starts none.
//
// Errors: an [api.Error] with CodeUnavailable if there can be no evidence, and
// one with CodeNotStarted if the engine had another reason.
func Starter(home string) func(ctx context.Context) error {
	return patient(func(ctx context.Context) error { return start(ctx, home) }, time.Now)
}

// patient makes of start what returns the error of the last start until
// startPause has passed. A start that its caller gave up says nothing about the
// next.
func patient(start func(context.Context) error, now func() time.Time) func(context.Context) error {
	var mu sync.Mutex
	var last error
	var failed time.Time
	return func(ctx context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if since := now().Sub(failed); last != nil && since >= 0 && since < startPause {
			return last
		}
		last = start(ctx)
		failed = now()
		if ctx.Err() != nil {
			defer func() { last = nil }()
		}
		return last
	}
}

func start(ctx context.Context, home string) error {
	self, err := proc.Executable()
	if err != nil {
		return fmt.Errorf("starting the engine: %w", err)
	}
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("starting the engine: %w", err)
	}
	defer r.Close()
	child, err := proc.Detach(proc.Command{
		Argv: []string{self, "engine", "run", "--" + FlagStarted}, Env: paths.EngineEnvironment(home), Dir: "/",
		Log: paths.EngineLog(home), Files: []*os.File{w},
	})
	if closeErr := w.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("starting the engine: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { r.Close() })
	defer stop()
	said, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
	switch said = strings.TrimSuffix(said, "\n"); {
	case said == "ready" || said == "locked":
		return nil
	case said != "":
		return heard(said)
	case ctx.Err() != nil:
		return errors.Join(ctx.Err(), child.Kill())
	}
	return fmt.Errorf("starting the engine: it ended without a word (%w); see %s", err, paths.EngineLog(home))
}

// notStarted is what clients are told of an engine that could not start.
func notStarted(why error) *api.Error {
	code := api.CodeNotStarted
	if errors.Is(evidence(why), errNoEvidence) {
		code = api.CodeUnavailable
	}
	return api.Errorf(code, "the engine could not start: %s", strings.ReplaceAll(why.Error(), "\n", "; "))
}

// line is what an engine that could not start says to its starter.
func line(e *api.Error) string { return string(e.Code) + ": " + e.Message }

// heard is the error that such a line means.
func heard(said string) error {
	code, text, ok := strings.Cut(said, ": ")
	if c := api.Code(code); ok && (c == api.CodeUnavailable || c == api.CodeNotStarted) {
		return api.Errorf(c, "%s", text)
	}
	return api.Errorf(api.CodeNotStarted, "%s", said)
}

// refuse says why the engine could not start, to its starter and then to clients,
// until one of its files is another or Linger is over, and returns that. conf is its
// configuration as it was when it was read. No client hears of what is mended by then.
func (o Options) refuse(ctx context.Context, lock *ipc.Lock, socket string, conf os.FileInfo, why error) error {
	if o.Failed == nil {
		return why
	}
	if o.Linger == 0 {
		o.Linger = defaultLinger
	}
	files := o.files()
	files[paths.ConfigFile(o.Home)] = conf
	l, err := lock.Listen(socket)
	o.Failed(why)
	if err != nil {
		return errors.Join(why, fmt.Errorf("listening for clients: %w", err))
	}
	ctx, cancel := context.WithTimeout(ctx, o.Linger)
	var looking sync.WaitGroup
	defer looking.Wait()
	defer cancel()
	looking.Go(func() {
		defer cancel()
		awaitChange(ctx, files)
	})
	s := api.NewServer(nil, api.ServerOptions{Home: o.Home, Program: o.Program, Refusal: notStarted(why)})
	return errors.Join(why, s.Serve(ctx, doubting{l, files, cancel}))
}

// A doubting listener ends, by end, with the first connection after one of files is
// another. Who connected finds nobody, and starts the next engine.
type doubting struct {
	net.Listener
	files map[string]os.FileInfo
	end   func()
}

// Accept implements [net.Listener].
func (l doubting) Accept() (net.Conn, error) {
	nc, err := l.Listener.Accept()
	if err != nil || !changed(l.files) {
		return nc, err
	}
	l.end()
	return nil, errors.Join(net.ErrClosed, nc.Close())
}

// files are those that decide whether an engine can start, as they are now; nil
// stands for one that is not there.
func (o Options) files() map[string]os.FileInfo {
	names := []string{paths.ConfigFile(o.Home), paths.LedgerKey(o.Home), paths.PinsFile(o.Home), paths.LedgerDir(o.Home)}
	inside, err := os.ReadDir(paths.LedgerDir(o.Home))
	for _, e := range inside {
		if err == nil && e.Type().IsRegular() {
			names = append(names, filepath.Join(paths.LedgerDir(o.Home), e.Name()))
		}
	}
	files := map[string]os.FileInfo{}
	for _, name := range names {
		files[name] = statOf(name)
	}
	return files
}

// statOf follows links: what counts is what is read.
func statOf(name string) os.FileInfo {
	info, err := os.Stat(name)
	if err != nil {
		return nil
	}
	return info
}

// lookEvery is how often an engine that could not start looks at its files.
const lookEvery = 20 * time.Millisecond

// awaitChange returns when one of files is another than it was, or ctx has ended.
func awaitChange(ctx context.Context, files map[string]os.FileInfo) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for !changed(files) {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// changed reports whether one of files is another than it was. The times of a directory
// say nothing: whoever verifies a ledger can change them.
func changed(files map[string]os.FileInfo) bool {
	for name, was := range files {
		now := statOf(name)
		switch {
		case (was == nil) != (now == nil):
			return true
		case was == nil:
		case was.Mode() != now.Mode(), !now.IsDir() && (now.Size() != was.Size() || !now.ModTime().Equal(was.ModTime()) || !os.SameFile(was, now)):
			return true
		}
	}
	return false
}

// Serve is what "ringfence engine run" does. started says that [Starter] started
// this process: it is then told how that went.
func Serve(ctx context.Context, o Options, started bool) error {
	if !started {
		return Run(ctx, o)
	}
	tell, err := toStarter(os.NewFile(readyFD, "ready"))
	if err != nil {
		return err
	}
	return serve(ctx, o, tell)
}

// toStarter returns f if it can be what a starter reads.
func toStarter(f *os.File) (io.WriteCloser, error) {
	info, err := f.Stat()
	if err == nil && info.Mode().Type() != os.ModeNamedPipe {
		err = fmt.Errorf("it is no pipe (%v)", info.Mode())
	}
	if err != nil {
		return nil, fmt.Errorf("finding the pipe of who started this engine, which --%s promises: %w", FlagStarted, err)
	}
	return f, nil
}

func serve(ctx context.Context, o Options, tell io.WriteCloser) error {
	said := false
	say := func(line string) {
		if !said {
			said = true
			// A starter that went away does not mind.
			_, _ = io.WriteString(tell, line+"\n")
			_ = tell.Close()
		}
	}
	fail := func(err error) {
		say(line(notStarted(err)))
	}
	o.Ready, o.Failed = func() { say("ready") }, fail
	err := Run(ctx, o)
	switch {
	case errors.Is(err, ipc.ErrLocked):
		say("locked")
	case err != nil:
		fail(err)
	}
	return err
}
