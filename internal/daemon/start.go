package daemon

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// readyFD is the descriptor on which an engine tells who started it how that
// went: one line, "ready", "locked" or "error: …". It means something only with
// [FlagStarted]: of a process that a person starts it can be anything.
const readyFD = 3

// FlagStarted is the flag of "ringfence engine run", without its dashes, that
// [Starter] alone gives.
const FlagStarted = "started"

// Starter returns what starts the engine of home as a process of its own. It
// returns when the engine listens, or when another process is the engine.
func Starter(home string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
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
		line, err := bufio.NewReader(io.LimitReader(r, 4096)).ReadString('\n')
		switch line = strings.TrimSuffix(line, "\n"); {
		case line == "ready" || line == "locked":
			return nil
		case line != "":
			return fmt.Errorf("starting the engine: %s", strings.TrimPrefix(line, "error: "))
		case ctx.Err() != nil:
			return errors.Join(ctx.Err(), child.Kill())
		}
		return fmt.Errorf("starting the engine: it ended without a word (%w); see %s", err, paths.EngineLog(home))
	}
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
	o.Ready = func() { say("ready") }
	err := Run(ctx, o)
	switch {
	case errors.Is(err, ipc.ErrLocked):
		say("locked")
	case err != nil:
		say("error: " + strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	return err
}
