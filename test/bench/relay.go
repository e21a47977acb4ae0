package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"

	"ringfence/internal/sys/ipc"
	"ringfence/test/rig"
)

// Relays are what the process model costs where nothing is decided or recorded:
// programs in our place that only pass on what a call is (testdata/relay).
type relays struct {
	pass *rig.MCP // with the stand-in of an engine, in front of the filesystem server
	deny *rig.MCP // with the stand-in of an engine alone

	socket string // of that stand-in
	stop   func() error
}

// startRelays starts them in h. Each runs until close.
func startRelays(ctx context.Context, b *bench, h *rig.Home) (r *relays, err error) {
	bin := b.dir + "/relay"
	if err := rig.GoBuild(ctx, bin, "ringfence/test/bench/testdata/relay"); err != nil {
		return nil, err
	}
	r = &relays{socket: b.dir + "/relay.sock"}
	if r.stop, err = startEngine(ctx, bin, r.socket); err != nil {
		return nil, fmt.Errorf("starting the stand-in of an engine: %w", err)
	}
	start := func(args ...string) (*rig.MCP, error) {
		cmd := exec.CommandContext(ctx, bin, args...)
		cmd.Env, cmd.Dir = h.Env(), h.Work
		return h.Start(ctx, cmd)
	}
	r.pass, err = start("pass", r.socket, h.Bin, "server", "filesystem", "--root", h.Work)
	if err == nil {
		r.deny, err = start("deny", r.socket)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("starting a relay: %w", err), r.close())
	}
	return r, nil
}

// relayHTTP starts a relay over HTTP in front of the server at to, with the stand-in of an
// engine, and returns its URL. It ends with ctx.
func relayHTTP(ctx context.Context, b *bench, to string, ended *sync.WaitGroup) (at string, err error) {
	bin := b.dir + "/relay"
	if err := rig.GoBuild(ctx, bin, "ringfence/test/bench/testdata/relay"); err != nil {
		return "", err
	}
	socket := fmt.Sprintf("%s/relay%d.sock", b.dir, len(b.rows))
	stop, err := startEngine(ctx, bin, socket)
	if err != nil {
		return "", err
	}
	cmd := exec.CommandContext(ctx, bin, "http", socket, to)
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return "", errors.Join(err, stop())
	}
	ended.Go(func() {
		<-ctx.Done()
		_, _ = cmd.Wait(), stop() // both are killed
	})
	at, err = bufio.NewReader(out).ReadString('\n')
	return strings.TrimSpace(at), err
}

// startEngine starts the stand-in of an engine, which runs until stop.
func startEngine(ctx context.Context, bin, socket string) (stop func() error, err error) {
	cmd := exec.CommandContext(ctx, bin, "engine", socket)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return nil, err
	}
	stop = func() error { return errors.Join(in.Close(), cmd.Wait()) }
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, errors.Join(err, stop())
	}
	return stop, nil
}

func (r *relays) close() error {
	var errs []error
	for _, m := range []*rig.MCP{r.pass, r.deny} {
		if m != nil {
			errs = append(errs, m.Close())
		}
	}
	return errors.Join(append(errs, r.stop())...)
}

// hops measures half a round trip to another process, beside half a one to
// another goroutine.
func hops(ctx context.Context, b *bench, r *relays) error {
	nc, err := ipc.Dial(ctx, r.socket)
	if err != nil {
		return err
	}
	defer nc.Close()
	there, back := make(chan []byte), make(chan []byte)
	defer close(there)
	go func() {
		for body := range there {
			back <- body
		}
	}()
	body := make([]byte, 200)
	in := bufio.NewReader(nc)
	mine, theirs, err := inTurn(ctx, b.times(5000),
		func() error { return roundTrip(nc, in, body) },
		func() error { there <- body; <-back; return nil })
	if err != nil {
		return fmt.Errorf("a hop: %w", err)
	}
	b.add(latency("a hop between two processes, over a Unix socket", mine.divided(2), "a hop between two goroutines", theirs.divided(2)))
	return nil
}

// roundTrip has the stand-in of an engine send back as much as it gets.
func roundTrip(nc net.Conn, in *bufio.Reader, body []byte) error {
	if err := ipc.WriteFrame(nc, make([]byte, 4), body); err != nil {
		return err
	}
	_, _, err := ipc.ReadFrame(in, 0, len(body))
	return err
}

// besideRelay makes a row of how much longer we take than what does nothing.
func besideRelay(what string, ours, relay series) row {
	r := latency(what+", beside a relay", ours, "a relay that does nothing", relay)
	r.Figure = "added " + span(ours.p50()-relay.p50())
	return r
}

// floorRow makes a row of what the relay takes in our place; its figure is the
// whole, or what it adds to a direct call, as that of our own row is.
func floorRow(what string, relay, direct series, whole bool) row {
	r := latency(what, relay, "the server called directly", direct)
	if !whole {
		r.Figure = "added " + span(relay.p50()-direct.p50())
	}
	return r
}
