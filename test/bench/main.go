// Command bench measures the program against the figures it is meant to reach.
//
// Every row has something beside it that was measured in the same run: the two
// are called in turn, in one loop, so that whatever else the machine does hits
// both. Absolute times are those of one machine on one day; the ratio is what
// can be compared. It prints a table, and writes docs/bench.md with -o.
//
// It is no test: nothing fails because it is slow. What must hold under load is
// tested in test/load.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"ringfence/internal/sandbox/native"
	"ringfence/test/rig"
)

func main() {
	native.Child() // does not return in the stage of a box
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		stop()
		os.Exit(1)
	}
}

// A bench is one run.
type bench struct {
	bin   string  // the program
	idle  string  // a Go program that does nothing
	node  string  // folder of the npm packages, "" for none
	peers string  // folder of those of other sandboxes, "" for none
	dir   string  // for what is measured in this process
	scale float64 // of all counts; 1 for figures
	rows  []row

	progress io.Writer
}

// A group measures rows that share what has to be set up for them.
type group struct {
	name string
	run  func(context.Context, *bench) error
}

var groups = []group{
	{"decision", decisions},
	{"monitor", monitors},
	{"scan", scans},
	{"call", calls},
	{"http", overHTTP},
	{"clients", clients},
	{"append", appends},
	{"verify", verifies},
	{"compile", compiles},
	{"start", starts},
	{"memory", memory},
	{"held", heldMemory},
	{"cold", coldRow},
	{"boxes", boxes},
	{"agents", agents},
	{"egress", ways},
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	file := flags.String("o", "", "also write the page of figures to `FILE`")
	only := flags.String("run", "", "only the groups that match `REGEXP`")
	scale := flags.Float64("scale", 1, "of all counts")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	b := &bench{
		scale: *scale, node: os.Getenv("RINGFENCE_TEST_NODE_DIR"), peers: os.Getenv("RINGFENCE_TEST_PEERS_DIR"), progress: progress,
	}
	if b.dir, err = os.MkdirTemp("", "rfbench"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	if b.bin, err = rig.Build(ctx, b.dir); err != nil {
		return err
	}
	b.idle = b.dir + "/idle"
	if err := rig.GoBuild(ctx, b.idle, "ringfence/test/bench/testdata/idle"); err != nil {
		return err
	}
	page := page{Machine: machine(), Date: time.Now().UTC().Format("2006-01-02"), Before: load()}
	for _, g := range groups {
		if !chosen.MatchString(g.name) {
			continue
		}
		if _, err := fmt.Fprintln(progress, "measuring:", g.name); err != nil {
			return err
		}
		if err := g.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", g.name, err)
		}
	}
	page.Rows, page.After = slices.Clone(b.rows), load()
	if _, err := io.WriteString(out, page.text()); err != nil || *file == "" {
		return err
	}
	return os.WriteFile(*file, page.markdown(), 0o600)
}

// times is how often something is done, at least a few times.
func (b *bench) times(n int) int { return max(4, int(float64(n)*b.scale)) }

// leftOut says which rows there are not, and why.
func (b *bench) leftOut(format string, a ...any) {
	_, _ = fmt.Fprintf(b.progress, "  left out: "+format+"\n", a...) // the rows that there are count more
}

func (b *bench) add(r row) { b.rows = append(b.rows, r) }
