package container

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

const knocker = `
nc 127.0.0.1 3128 </dev/null; nc 127.198.0.7 443 </dev/null; nc 127.0.0.1 53 </dev/null
nc 127.198.0.7 444 </dev/null 2>/dev/null || echo no other port
nc 1.1.1.1 443 </dev/null 2>/dev/null || echo no other host
cat /run/ringfence/ca.pem; head -n 1 /etc/resolv.conf`

const knocked = "proxy 127.0.0.1:3128\ndirect 127.198.0.7:443\nresolver 127.0.0.1:53\nno other port\nno other host\nroots\nnameserver 127.0.0.1\n"

// A container by policy has its ways, by which whoever holds the other ends is reached.
func TestWays(t *testing.T) {
	for name, tier := range engines(t) {
		t.Run(name, func(t *testing.T) {
			file := t.TempDir() + "/ca.pem"
			if err := os.WriteFile(file, []byte("roots\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			s := sandbox.Spec{
				Argv: []string{"/bin/sh", "-c", knocker}, Profile: sandbox.ProfileAgent, Network: sandbox.NetworkPolicy, Egress: file,
				Limits: sandbox.Limits{Wall: time.Minute},
				Placed: []sandbox.Placing{{Path: "/run/ringfence/ca.pem", File: file}, {Path: "/etc/ssl/cert.pem", File: file, Usual: true}},
				Ways: sandbox.Ways{
					Proxy: 3128, Resolver: 53, Ports: []uint16{443}, Local: []netip.Prefix{netip.MustParsePrefix("127.198.0.0/16")},
					Take: func(l sandbox.Listening) error { return answer(t, l) },
				},
			}
			out, err := sandbox.Run(t.Context(), tier, s, nil)
			if err != nil {
				t.Fatal(err)
			}
			if string(out.Stdout) != knocked {
				t.Errorf("%s%s, want\n%s", out.Stdout, out.Stderr, knocked)
			}
			if evidence := out.Report.Evidence[sandbox.LayerNetwork]; !out.Report.Has(sandbox.LayerNetwork) || !strings.Contains(evidence, "tcp 0.0.0.0:443") {
				t.Errorf("%s: %s", out.Report, evidence)
			}
			s.Ways.Local = []netip.Prefix{netip.MustParsePrefix("198.18.0.0/15")}
			if _, err := tier.Start(t.Context(), s); err == nil || !strings.Contains(err.Error(), "beyond its loopback") {
				t.Errorf("%v", err)
			}
		})
	}
}

// answer says on each connection what it came to.
func answer(t *testing.T, l sandbox.Listening) error {
	for name, files := range map[string][]*os.File{"proxy": l.Proxy, "resolver": l.Resolver, "direct": l.Direct} {
		for _, f := range files {
			s, err := net.FileListener(f)
			if err != nil {
				return err
			}
			t.Cleanup(func() { s.Close() })
			go func() {
				for {
					c, err := s.Accept()
					if err != nil {
						return
					}
					_, _ = fmt.Fprintf(c, "%s %s\n", name, c.LocalAddr())
					c.Close()
				}
			}()
		}
	}
	return l.Close()
}
