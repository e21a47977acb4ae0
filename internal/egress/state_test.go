package egress

import (
	"net/netip"
	"testing"
	"time"

	"pgregory.net/rapid"

	"ringfence/internal/egress/bridge"
)

// TestAnyConnection: in whatever order a program says, half-closes, reads and goes, each
// ticket that allowed is finished once, and the way out ends. What the rig checks at its
// end is the property.
func TestAnyConnection(t *testing.T) {
	http, tcp := port(echo(t)), raw(t)
	r := newRig(t, func(o *Options) { o.Limits.HeadWait = 50 * time.Millisecond; o.Intercept = opener{} },
		"allow connect site.test:443", "allow connect site.test:"+http, "tunnel connect site.test:"+tcp, "allow fetch http://site.test:"+http+"/*", "allow resolve *")
	pieces := []string{
		"CONNECT site.test:443 HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT site.test:" + http + " HTTP/1.1\r\nHost: a\r\n\r\n",
		"CONNECT site.test:" + tcp + " HTTP/1.1\r\nHost: a\r\n\r\n", "CONNECT evil.test:1 HTTP/1.1\r\nHost: a\r\n\r\n",
		"GET http://site.test:" + http + "/ HTTP/1.1\r\nHost: a\r\n\r\n", "GET / HTTP/1.1\r\nHost: site.test:" + http + "\r\n\r\n",
		"POST http://site.test:" + http + "/ HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n", "5\r\nhello\r\n", "0\r\n\r\n",
		"\x05\x01\x00", "\x05\x01\x00\x03\x09site.test\x01\xbb", string(clientHello(serverName("site.test"))), string(clientHello(serverName("evil.test"))),
		"\x00\x1b\x00\x07\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00\x04site\x04test\x00\x00\x01\x00\x01", "\x16\x03\x01", "x",
	}
	to := map[bridge.Kind]string{bridge.KindProxy: "127.0.0.1:3128", bridge.KindDirect: "192.0.2.1:443", bridge.KindResolver: "127.0.0.1:53"}
	kinds := rapid.SampledFrom([]bridge.Kind{bridge.KindProxy, bridge.KindProxy, bridge.KindDirect, bridge.KindResolver})
	rapid.Check(t, func(rt *rapid.T) {
		kind := kinds.Draw(rt, "kind")
		line, err := bridge.Preamble{Kind: kind, Dst: netip.MustParseAddrPort(to[kind])}.Line()
		if err != nil {
			rt.Fatal(err)
		}
		c := r.dial(t, kind, to[kind])
		defer c.Close()
		for range rapid.IntRange(0, 6).Draw(rt, "steps") {
			switch rapid.IntRange(0, 9).Draw(rt, "step") {
			case 0:
				_ = c.CloseWrite()
			case 1:
				_, _ = c.Write(line)
			case 2, 3:
				_ = c.SetReadDeadline(time.Now().Add(2 * time.Millisecond))
				_, _ = c.Read(make([]byte, 64))
			default:
				_, _ = c.Write([]byte(rapid.SampledFrom(pieces).Draw(rt, "piece"))) // it may be closed
			}
		}
	})
	if r.count() == 0 {
		t.Error("nothing was ever decided")
	}
}
