package native

import (
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// TestOpenNetwork: a box that was given the network of the machine has it, says that it
// is not held, and gets no nearer to the sockets of the machine that are no network.
func TestOpenNetwork(t *testing.T) {
	needPython(t)
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	abstract, err := net.Listen("unix", "@ringfence-test-"+strconv.Itoa(os.Getpid()))
	if err != nil {
		t.Fatal(err)
	}
	defer abstract.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Write([]byte("outside\n"))
			c.Close()
		}
	}()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	s := sandbox.Spec{
		Argv:    []string{"/usr/bin/python3", "-c", dialer, port, abstract.Addr().String()},
		Profile: sandbox.ProfileServer, Network: sandbox.NetworkOpen,
	}
	var told sandbox.Report
	s.Confirm = func(r sandbox.Report) error {
		told = r
		return nil
	}
	out := watch(t, full(), s)
	if want := "outside\nConnection refused\nloopback\n"; string(out.Stdout) != want {
		t.Errorf("%q, want %q; %s", out.Stdout, want, out.Stderr)
	}
	net := sandbox.LayerNetworkNamespace
	if told.Has(net) || !slices.Contains(told.Missing, net) || !strings.Contains(told.Evidence[net], "nothing of it is held") || told.Complete() {
		t.Errorf("the report says %s (%s)", told, told.Evidence[net])
	}
	if told.String() != out.Report.String() {
		t.Errorf("confirmed as %s, run as %s", told, out.Report)
	}
	hosts, err := os.ReadFile("/etc/hosts")
	if err != nil {
		t.Fatal(err)
	}
	s = sh("cat /etc/hosts")
	s.Network = sandbox.NetworkOpen
	if got := run(t, full(), s, ""); string(got.Stdout) != string(hosts) {
		t.Errorf("names are %q, want %q", got.Stdout, hosts)
	}
}
