package cli

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/act/loan"
	"ringfence/internal/config"
	"ringfence/internal/daemon/api"
	"ringfence/internal/egress"
	"ringfence/internal/egress/bridge"
	"ringfence/internal/egress/mitm"
	"ringfence/internal/egress/trust"
	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sys/ipc"
)

// A wayOut is how one box reaches what the policy allows: a socket, who listens there, and
// the files by which programs in the box trust him.
type wayOut struct {
	dir    string // of its own, with what the box is given
	ports  []uint16
	local  []netip.Prefix
	comes  *bridge.Listener
	tools  func(net.Listener) // serves what is no way out; nil for nothing
	keys   []loan.Sentinel    // what the box has in the place of secrets
	cancel context.CancelFunc
	done   chan error
}

// The addresses that stand for names in a box, which package egress gives out: those that a
// box can make its own, and for containers a part of loopback.
var (
	standIns          = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15"), netip.MustParsePrefix("fd52:6633::/64")}
	containerStandIns = []netip.Prefix{netip.MustParsePrefix("127.198.0.0/16")}
)

// begin begins with what the box of f needs for its network, if it is to have one; discard
// gives it back.
func (f *execFlags) begin(ctx context.Context, client *api.Client, tier sandbox.Tier) (begun func() (*wayOut, error), discard func() error) {
	if f.net != netPolicy {
		return func() (*wayOut, error) { return nil, nil }, func() error { return nil }
	}
	begun = beginWay(ctx, client, tier)
	return begun, func() error {
		way, err := begun()
		if err != nil {
			return nil //nolint:nilerr // it was said, or something else was wrong before
		}
		return way.close()
	}
}

// beginWay makes what a way out needs that no session is asked for, while something else is
// done. What is returned waits for it.
func beginWay(ctx context.Context, client *api.Client, tier sandbox.Tier) func() (*wayOut, error) {
	type begun struct {
		way *wayOut
		err error
	}
	made := make(chan begun, 1)
	go func() {
		var b begun
		roots, err := client.Authority(ctx)
		if err == nil {
			b.way, err = newWayOut(roots)
		}
		if err == nil && tier.Name() == container.Name {
			b.way.local = containerStandIns
		}
		if err != nil {
			b.err = fmt.Errorf("opening a way to the network: %w", err)
		}
		made <- b
	}()
	return sync.OnceValues(func() (*wayOut, error) {
		b := <-made
		return b.way, b.err
	})
}

// serve has w carry what decider, a session or something that narrows one, allows. sentinels
// are what the box has in the place of secrets.
func (w *wayOut) serve(ctx context.Context, session *api.Session, decider act.Decider, sentinels []loan.Sentinel, network egress.Network, known services) error {
	leafs, err := mitm.NewLeafs(mitm.LeafOptions{Sign: session.Mint})
	if err != nil {
		return fmt.Errorf("opening a way to the network: %w", err)
	}
	w.ports = bridge.Direct(session.Opened().Ports)
	// What is in flight when the box has ended is still recorded; see close.
	serving, cancel := context.WithCancel(context.WithoutCancel(ctx))
	w.cancel, w.done = cancel, make(chan error, 1)
	go func() {
		w.done <- egress.Serve(serving, w.comes, known.in(egress.Options{
			Decider: decider, Network: network, Sentinels: sentinels, Local: w.local,
			Intercept: &mitm.Interceptor{Minter: leafs},
		}))
	}()
	return nil
}

// wayOut has the way out of a box carry what session allows, and returns s by way of it.
func (f *execFlags) wayOut(ctx context.Context, known services, session *api.Session, begun func() (*wayOut, error), s sandbox.Spec) (sandbox.Spec, *wayOut, error) {
	w, err := begun()
	if w == nil || err != nil {
		return s, nil, err
	}
	env, sentinels, err := lent(ctx, session, known.conf.Models.Keyed(), f.envFile, s.Env)
	if err != nil {
		return s, nil, err
	}
	s.Env = known.keyed(env)
	network, err := networkOf(known.conf)
	if err == nil {
		err = w.serve(ctx, session, session, sentinels, network, known)
	}
	if err != nil {
		return s, nil, err
	}
	w.keys = sentinels
	if f.guest != nil {
		w.tools = f.guest.answer
	}
	return w.through(s), w, nil
}

// networkOf is what the machine is connected to, as configured.
func networkOf(conf config.Config) (egress.Network, error) {
	n := conf.Network
	var roots [][]byte
	for _, name := range n.CA {
		text, err := readRoots(name)
		if err != nil {
			return egress.Network{}, &exitError{code: codeUsage, err: fmt.Errorf("network.ca of the configuration: %w", err)}
		}
		roots = append(roots, text)
	}
	to, err := egress.NewNetwork(n.Resolver, n.Private, n.Proxy, roots)
	if err != nil {
		return egress.Network{}, &exitError{code: codeUsage, err: fmt.Errorf("network of the configuration: %w", err)}
	}
	return to, nil
}

func readRoots(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(f, trust.MaxBundle))
	return text, errors.Join(err, f.Close())
}

// newWayOut makes the directory and what is in it. authority is PEM.
func newWayOut(authority []byte) (*wayOut, error) {
	dir, err := wayDir()
	if err != nil {
		return nil, err
	}
	w := &wayOut{dir: dir, local: standIns}
	bundle := trust.Bundle(systemRoots(), authority)
	for name, text := range map[string][]byte{"ca.pem": bundle, "ca.jks": storeOf(bundle, time.Now())} {
		if err := writeNew(filepath.Join(dir, name), text); err != nil {
			return nil, errors.Join(err, os.RemoveAll(dir))
		}
	}
	l, err := ipc.Listen(w.socket())
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w.comes = bridge.NewListener(l)
	return w, nil
}

// socket is where a box in a container comes to: in a directory that nobody else enters.
func (w *wayOut) socket() string { return filepath.Join(w.dir, "way") }

// wayPrefix begins the name of the directory of a way out.
const (
	wayPrefix = "ringfence-way-"
	wayAge    = time.Minute
	maxWayDir = 80 // bytes: with the name of the socket it fits into an address of one (unix(7))
)

// wayDir makes a private directory, with a name that is short enough, and removes those
// that processes which died have left.
func wayDir() (string, error) {
	base := os.TempDir()
	if real, err := filepath.EvalSymlinks(base); err == nil {
		base = real
	}
	if len(base) > maxWayDir-len(wayPrefix)-16 {
		base = "/tmp"
	}
	left, err := filepath.Glob(filepath.Join(base, wayPrefix+"*", "way.lock"))
	if err == nil {
		for _, name := range left {
			if fi, err := os.Lstat(name); err != nil || time.Since(fi.ModTime()) < wayAge {
				continue // it may be being made
			}
			lock, err := ipc.NewLock(name)
			if err != nil {
				continue // it is in use, or of somebody else
			}
			_ = os.RemoveAll(filepath.Dir(name)) // what cannot be removed stays
			_ = lock.Unlock()
		}
	}
	return os.MkdirTemp(base, wayPrefix)
}

// writeNew writes a file that all may read who get to see it.
func writeNew(name string, text []byte) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // boxes run as somebody else
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	return errors.Join(err, f.Close())
}

// systemRoots are whom programs of this machine trust: the first bundle of the usual places.
func systemRoots() []byte {
	for _, name := range trust.UsualPlaces() {
		text, err := readRoots(name)
		if block, _ := pem.Decode(text); err == nil && block != nil {
			return text
		}
	}
	return nil
}

// through returns s with the network by policy, by way of w.
func (w *wayOut) through(s sandbox.Spec) sandbox.Spec {
	s.Network, s.Egress = sandbox.NetworkPolicy, w.socket()
	s.Ways = sandbox.Ways{
		Proxy: bridge.ProxyPort, Resolver: bridge.ResolverPort, Ports: w.ports, Local: w.local,
		Take: func(l sandbox.Listening) error {
			sockets, err := bridge.FromFiles(l.Proxy, l.Resolver, l.Packets, l.Direct)
			for _, f := range l.Tools {
				in, terr := net.FileListener(f)
				if err = errors.Join(err, terr, f.Close()); terr == nil {
					w.tools(in)
				}
			}
			if err != nil {
				return err
			}
			return w.comes.Take(sockets)
		},
	}
	if w.tools != nil {
		s.Ways.Tools = bridge.ToolsPort
	}
	bundle, store := filepath.Join(w.dir, "ca.pem"), filepath.Join(w.dir, "ca.jks")
	s.Placed = []sandbox.Placing{{Path: trust.BundleFile, File: bundle}, {Path: trust.StoreFile, File: store}}
	for _, p := range trust.UsualPlaces() {
		s.Placed = append(s.Placed, sandbox.Placing{Path: p, File: bundle, Usual: true})
	}
	for _, p := range trust.UsualStores() {
		s.Placed = append(s.Placed, sandbox.Placing{Path: p, File: store, Usual: true})
	}
	s.Env = trust.Environment(s.Env, bridge.ProxyPort, slices.Equal(w.local, standIns))
	return s
}

// close ends what is in flight, waits until it is on record, and removes what there was. It
// may be called again, and of nil it does nothing.
func (w *wayOut) close() error {
	if w == nil || w.dir == "" {
		return nil
	}
	var err error
	if w.done != nil {
		w.cancel()
		err = <-w.done
	} else {
		err = w.comes.Close()
	}
	err = errors.Join(err, os.RemoveAll(w.dir))
	w.dir = ""
	return err
}
