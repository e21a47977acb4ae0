//go:build linux

// Command boxes runs the suite of package boxtest against every tier that works on
// this machine, in the ways that people have them: as root, as an ordinary user,
// without user namespaces, and with the engines that scripts/engines.sh starts. It
// prints a table, and writes it into docs/sandbox.md with -o.
//
// It ends with status 1 if any case is broken.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"syscall"
	"time"

	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/native"
)

func main() {
	native.Child()
	container.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "boxes:", err)
		stop()
		os.Exit(1)
	}
}

// errBroken says that a case went wrong.
var errBroken = errors.New("not every case holds")

// A row is one way to have boxes, and how the cases went in it.
type row struct {
	way
	Outcomes []boxtest.Outcome
	Took     time.Duration
	Without  string // why it was not run
}

func command(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("boxes", flag.ContinueOnError)
	file := flags.String("o", "", "also write the tables between the marks in `FILE`")
	only := flags.String("run", "", "only the cases whose id and name match `REGEXP`")
	one := flags.String("in", "", "only in this `WAY`")
	inside := flags.String("inside", "", "run the suite in this process, for the way `WAY`, and print JSON")
	answers := flags.Bool("answers", false, "print what the kernel answered")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *inside != "" {
		return within(ctx, *inside, *only, out)
	}
	dir, err := os.MkdirTemp("", "boxes-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	self, err := copySelf(dir)
	if err != nil {
		return err
	}
	var rows []row
	for _, w := range ways {
		if *one != "" && *one != w.Name {
			continue
		}
		r := row{way: w}
		if err := r.run(ctx, self, dir, *only, progress); err != nil {
			return fmt.Errorf("%s: %w", w.Name, err)
		}
		rows = append(rows, r)
		text := r.broken()
		if *answers {
			text = r.answers() + text
		}
		if _, err := io.WriteString(out, text); err != nil {
			return err
		}
	}
	if _, err := io.WriteString(out, table(rows)); err != nil {
		return err
	}
	if *file != "" && *only == "" && *one == "" {
		if err := writeBetween(*file, page(rows)); err != nil {
			return err
		}
	}
	for _, r := range rows {
		if r.broken() != "" {
			return errBroken
		}
	}
	return nil
}

// run runs the suite, if this machine can have such boxes.
func (r *row) run(ctx context.Context, self, dir, only string, progress io.Writer) error {
	if _, err := fmt.Fprintln(progress, "boxes:", r.Name); err != nil {
		return err
	}
	began := time.Now()
	defer func() { r.Took = time.Since(began) }()
	if r.Without = r.unavailable(); r.Without != "" {
		return nil
	}
	return r.start(ctx, self, dir, only, progress)
}

// copySelf puts this program where every user can run it.
func copySelf(dir string) (string, error) {
	program, err := os.ReadFile("/proc/self/exe")
	if err != nil {
		return "", err
	}
	self := filepath.Join(dir, "boxes")
	err = os.Chmod(dir, 0o755)                                        //nolint:gosec // G302: ordinary users run what is in it
	return self, errors.Join(err, os.WriteFile(self, program, 0o755)) //nolint:gosec // G306: the same
}

// within runs the suite in this process.
func within(ctx context.Context, name, only string, out io.Writer) error {
	for _, w := range ways {
		if w.Name != name {
			continue
		}
		tier, o := w.tier(), w.Options
		if only != "" {
			chosen, err := regexp.Compile(only)
			if err != nil {
				return err
			}
			o.Only = chosen
		}
		outcomes, err := boxtest.Check(ctx, tier, o)
		if err != nil {
			return err
		}
		return json.NewEncoder(out).Encode(outcomes)
	}
	return fmt.Errorf("no way %q", name)
}
