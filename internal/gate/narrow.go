package gate

import (
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// The box of a server has a way out of its own. Whoever listens there names the server in
// its requests, which can do less with that, never more: a request is for the hosts that a
// person wrote into the entry of the server, and needs what any other needs besides.

// serverHosts is the rule that a denial names where the entry of a server does not name a
// host.
const serverHosts = "server-hosts"

// narrowed holds d, a request without a tool, against the hosts of the server that sends it.
func (d *draft) narrowed() *refusal {
	if d.req.Tool == "" {
		return nil
	}
	s := d.run.Servers[d.req.Tool]
	if s == nil {
		return refuse(act.CodeUnknown, "there is no server %q; the servers are %s", d.req.Tool, d.run.serverNames())
	}
	places := 0
	for _, e := range d.res.Effects {
		var host weburl.Host
		var port uint16
		switch e.Kind {
		case act.Install, act.Infer, act.UseSecret:
			continue // what they are asked of stands beside them
		case act.Fetch, act.Send:
			// Canonical text is a URL; of what is none the host is zero, which no site covers.
			u, _ := weburl.Parse(e.Resource.Text)
			host, port = u.Host, u.Port
		case act.Connect:
			host, port, _ = weburl.ParseHostPort(e.Resource.Text)
		case act.Resolve: // at whatever port it is then connected to
			host, _, _ = weburl.ParseHostPort(e.Resource.Text)
		default:
			return refuse(act.CodeInvalid, "a server asks for the network by its box, and not to %s", e.Kind)
		}
		places++
		if !slices.ContainsFunc(s.Hosts, func(h weburl.Site) bool { return h.Covers(host, port) }) {
			return &refusal{code: act.CodePolicy, rules: []string{serverHosts}, reason: s.unnamed(host)}
		}
	}
	if places == 0 {
		return refuse(act.CodeInvalid, "a request of a server says where it goes")
	}
	return nil
}

// unnamed says that the entry of s does not name host.
func (s *Server) unnamed(host weburl.Host) string {
	return fmt.Sprintf("server %[1]s may not reach %[2]s: its entry in the list of servers does not name it. A person can add \"%[2]s\" to \"hosts\" there; the policy must allow it as well", s.Name, host)
}

// unsaid says which sentence a policy lacks that allows nothing to a server which its entry
// lets reach the place: both are needed.
func (d *draft) unsaid() string {
	if d.req.Verb != act.VerbEffect || d.req.Tool == "" || !slices.Contains(d.judged.Rules, policy.Default) {
		return ""
	}
	text := ""
	for _, e := range d.res.Effects {
		words, ok := map[act.Kind]string{act.Fetch: "fetch from", act.Send: "send to", act.Connect: "fetch from", act.Resolve: "fetch from"}[e.Kind]
		if !ok {
			continue
		}
		at := e.Resource.Text
		if u, err := weburl.Parse(at); err == nil {
			at = u.HostPort()
		}
		text = fmt.Sprintf(" The entry of server %s names this place, which is not enough: the constitution needs a sentence such as \"The agent may %s %s.\"", d.req.Tool, words, strings.TrimSuffix(at, ":443"))
	}
	return text
}
