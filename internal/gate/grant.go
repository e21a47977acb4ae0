package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
	"ringfence/internal/policy"
)

// An agent can ask a person for one connection, which then passes as it is until its
// session ends. Nothing answers for the person: no clause allows the asking, and one that
// forbids the connection, or anything that could flow inside, is not asked away.

// grantRule is the rule by which a granted connection is allowed, and the clause that a
// person approves.
const grantRule = "grant"

// byGrant changes the decision on d where a grant of the session, or one that is asked
// for, matters. The refusal says why a connection cannot be granted.
func (d *draft) byGrant() *refusal {
	if d.tool != nil && d.tool.Annotation.Grant != "" {
		return d.grants()
	}
	if d.req.Verb != act.VerbEffect || len(d.res.Effects) != 1 || !d.silent() {
		return nil
	}
	e := d.res.Effects[0]
	granted := d.run.Session.Grants()
	if e.Kind == act.Connect && d.judged.Quiet && slices.Contains(granted, e.Resource.Text) {
		d.allowByGrant()
		d.judged.Filter.Tunnel = true
	}
	if e.Kind == act.Resolve {
		host, _, err := weburl.ParseHostPort(e.Resource.Text)
		if err == nil && slices.ContainsFunc(granted, func(g string) bool { return strings.HasPrefix(g, host.String()+":") }) {
			d.allowByGrant()
		}
	}
	return nil
}

// silent reports whether no clause allows d, and none forbids it.
func (d *draft) silent() bool {
	return d.judged.Verdict == act.Deny && len(d.judged.Errors) == 0 && slices.Equal(d.judged.Rules, []string{policy.Default})
}

func (d *draft) allowByGrant() {
	d.judged.Verdict, d.judged.Rules, d.judged.Ask, d.judged.Reason = act.Allow, []string{grantRule}, nil, ""
}

// grants decides about a tool of grants.
func (d *draft) grants() *refusal {
	if d.tool.Annotation.Grant != policy.GrantAsk {
		if d.silent() {
			d.allowByGrant()
		}
		return nil
	}
	if len(d.res.Effects) != 1 || d.res.Effects[0].Kind != act.Connect {
		return refuse(act.CodeInvalid, "a grant is for one connection: name one domain and port")
	}
	to := d.res.Effects[0].Resource.Text
	if why := ungrantable(to); why != "" {
		return refuse(act.CodeTripwire, "%s cannot be granted: %s", to, why)
	}
	if d.judged.Verdict == act.Deny && !d.silent() || !d.judged.Quiet {
		if d.judged.Verdict == act.Deny {
			return nil // it says why
		}
		return refuse(act.CodePolicy, "a clause speaks of what could be sent to %s, and nobody sees that in a connection that passes as it is", to)
	}
	if slices.Contains(d.run.Session.Grants(), to) || slices.Contains(d.approved, grantRule) {
		d.allowByGrant()
		return nil
	}
	d.judged.Verdict = act.Escalate
	d.judged.Rules = []string{grantRule}
	d.judged.Ask = append(d.judged.Ask, policy.Asked{
		Clause: grantRule, Quorum: policy.Quorum{Count: 1},
		Text: fmt.Sprintf("connections to %s pass, and nobody reads what is inside, until this session ends", to),
	})
	d.judged.Reason = "A connection that passes as it is needs a person's approval."
	return nil
}

// ungrantable says why nobody is asked about a connection: "" if somebody is.
func ungrantable(hostPort string) string {
	host, _, err := weburl.ParseHostPort(hostPort)
	if err != nil {
		return "it is no host and port"
	}
	name := host.String()
	if _, isAddr := host.Addr(); isAddr || !strings.Contains(name, ".") || host.Metadata() {
		return "only names of the public internet are"
	}
	for _, s := range []string{".internal", ".local", ".localhost", ".home.arpa"} {
		if strings.HasSuffix(name, s) {
			return "only names of the public internet are"
		}
	}
	return ""
}

// grant gives the session the connection that d asked for, once that is on record.
func (d *draft) grant() error {
	if d.tool == nil || d.tool.Annotation.Grant != policy.GrantAsk || d.run.Session.Grant(d.res.Effects[0].Resource.Text) {
		return nil
	}
	return errTooManyGrants
}

var errTooManyGrants = errors.New("the session has ended, or has too many grants")

// granted carries out what was decided about the other tools of grants. What it
// dispatches is what the tool says: that knows nothing by itself.
func (d *draft) granted() {
	if d.tool == nil {
		return
	}
	switch d.tool.Annotation.Grant {
	case policy.GrantAsk:
	case policy.GrantRevoke:
		text, _ := d.res.Facts["/domain"].(string)
		host, port, err := weburl.ParseHostPort(text)
		done := err == nil && d.run.Session.Revoke(host.WithPort(port))
		d.dispatch(map[string]any{"domain": text, "removed": done})
	case policy.GrantList:
		d.dispatch(map[string]any{"domains": append([]string{}, d.run.Session.Grants()...)})
	}
}

func (d *draft) dispatch(args map[string]any) {
	if raw, err := json.Marshal(args); err == nil { // texts always encode
		d.res.Bytes = raw
	}
}
