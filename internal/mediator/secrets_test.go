package mediator

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// TestD14Echo: what an entry holds by reference, no client reads back from any server.
func TestD14Echo(t *testing.T) {
	const token, key = "tok/en+value 3", "literal-key-9"
	env := map[string]string{"TOKEN": token, "HOME": "/home/somebody", "DIR": "/srv/some/where", "SHORT": "abc"}
	servers, _, err := ParseServers([]byte(`{"mcpServers":{
		"far":{"url":"http://127.0.0.1:9/","headers":{"Authorization":"Bearer ${TOKEN}"}},
		"fs":{"command":"x","args":["${DIR}","${HOME}"],"env":{"API_KEY":"`+key+`","MODE":"production","S":"${SHORT}"}}}}`),
		func(name string) (string, bool) { v, ok := env[name]; return v, ok })
	if err != nil {
		t.Fatal(err)
	}
	said := strings.Join([]string{
		token, base64.StdEncoding.EncodeToString([]byte("Bearer " + token)), url.QueryEscape(token), key, "/home/somebody /srv/some/where production",
	}, " | ")
	conv := converse(t, deciding(""), map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(aTool)
		p.hear()
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":%q}]}}`, said))
		p.hear()
		p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"\u0074%s"}}`, said[1:]))
		p.drain()
	}}}, func(o *Options) {
		o.Servers[0].secrets = append(servers[0].secrets, servers[1].secrets...)
	})
	conv.open()
	for i := range 2 {
		got := conv.ask(callLine(fmt.Sprint(i), "a", "{}"))
		for _, secret := range []string{"value 3", "value+3", "VuK3ZhbHVlIDM", key} {
			if strings.Contains(got, secret) {
				t.Errorf("%q is in %s", secret, got)
			}
		}
		if !strings.Contains(got, "/home/somebody /srv/some/where production") {
			t.Errorf("what is no secret is taken out: %s", got)
		}
	}
}
