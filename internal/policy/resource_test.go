package policy

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"ringfence/internal/act"
)

func TestResources(t *testing.T) {
	for _, c := range readCases(t, "testdata/resources.txt") {
		t.Run(c.name, func(t *testing.T) {
			typ, text, _ := strings.Cut(c.text, " ")
			e := act.Effect{Kind: act.Call}
			text, group, _ := strings.Cut(text, " group=")
			e.Group = act.Group(group)
			if i := strings.Index(text, " {"); i >= 0 {
				if err := json.Unmarshal([]byte(text[i:]), &e.Resource.Facts); err != nil {
					t.Fatal(err)
				}
				text = text[:i]
			}
			for k, v := range e.Resource.Facts {
				if n, ok := v.(float64); ok {
					e.Resource.Facts[k] = int64(n)
				}
			}
			e.Resource.Type, e.Resource.Text = act.ResourceType(typ), text
			r, err := newResource(e)
			if err != nil {
				if !strings.Contains(err.Error(), c.want) || strings.Contains(c.want, "|") {
					t.Errorf("error %v, want %s", err, c.want)
				}
				return
			}
			var got []string
			for _, u := range r.up {
				got = append(got, fmt.Sprintf("%s:%s", u.Type, u.ID))
			}
			got = append(got, "|")
			for _, v := range r.values {
				got = append(got, fmt.Sprintf("%s=%s", nameTexts[v.name], v.val.MarshalCedar()))
			}
			if s := strings.Join(got, " "); s != c.want {
				t.Errorf("got  %s\nwant %s", s, c.want)
			}
		})
	}
}

func TestResourceBounds(t *testing.T) {
	for _, text := range []string{"", "/" + strings.Repeat("a", maxText)} {
		if _, err := newResource(act.Effect{Resource: act.Resource{Type: act.Path, Text: text}}); err == nil {
			t.Errorf("a text of %d bytes passes", len(text))
		}
	}
}

// TestPrivateHosts has both sides of every range of RFC 6890 that matters here.
func TestPrivateHosts(t *testing.T) {
	private := `localhost intranet a.internal a.local a.localhost a.home.arpa 0.0.0.0 10.0.0.0 10.255.255.255 100.64.0.0 100.127.255.255
		127.0.0.1 127.255.255.255 169.254.169.254 172.16.0.0 172.31.255.255 192.0.0.1 192.168.0.1 198.18.0.0 198.19.255.255 224.0.0.1 240.0.0.1
		255.255.255.255 192.0.2.1 198.51.100.1 203.0.113.1 [::] [::1] [::ffff:8.8.8.8] [::8.8.8.8] [64:ff9b::808:808] [64:ff9b:1::1] [100::1]
		[2001::1] [2001:db8::1] [2002:808:808::1] [3fff::1] [fc00::1] [fd00::1] [fe80::1] [ff02::1] [fec0::1] [1::1]`
	public := `a.org internal.org local.org 1.0.0.0 9.255.255.255 11.0.0.0 100.63.255.255 100.128.0.0 126.255.255.255 128.0.0.1 169.253.255.255
		172.15.255.255 172.32.0.0 192.1.0.0 192.167.255.255 192.169.0.0 198.17.255.255 198.20.0.0 223.255.255.255 [2606:4700::1111] [2003::1]
		[2001:4860:4860::8888] a.org1`
	for h := range strings.FieldsSeq(private) {
		if h == "[::ffff:8.8.8.8]" {
			continue // canonical texts have it as 8.8.8.8
		}
		if !privateHost(h) {
			t.Errorf("%s counts as public", h)
		}
	}
	for h := range strings.FieldsSeq(public) {
		if privateHost(h) {
			t.Errorf("%s counts as private", h)
		}
	}
	if !privateHost("") {
		t.Error("no host counts as public")
	}
}

// TestSchemaAgrees: the schema has exactly the kinds, types and groups of the
// table in package act, and every name that facts have.
func TestSchemaAgrees(t *testing.T) {
	v, err := newValidator(Schema())
	if err != nil {
		t.Fatal(err)
	}
	kinds := 0
	for uid, a := range v.schema.Actions {
		k := act.Kind(uid.ID)
		if a.AppliesTo == nil {
			continue // a group
		}
		kinds++
		if len(a.AppliesTo.Resources) != 1 || act.ResourceType(a.AppliesTo.Resources[0]) != k.On() {
			t.Errorf("%s is on %v, want %s", k, a.AppliesTo.Resources, k.On())
		}
		for _, g := range groupsOfCalls {
			if in := a.Entity.Parents.Contains(actionUID(act.Kind(g))); in != k.In(g) {
				t.Errorf("%s in group %s: %t, want %t", k, g, in, k.In(g))
			}
		}
	}
	if kinds != len(act.Kinds()) {
		t.Errorf("the schema has %d kinds, want %d", kinds, len(act.Kinds()))
	}
	declared := map[string]bool{"approved": true, "session": true, "tool": true, "args": true, "counts": true, "hour": true, "text": true, "number": true, "flag": true, "labels": true}
	for of, e := range v.schema.Entities {
		var names nameSet
		for attr := range e.Shape {
			declared[string(attr)] = true
			names |= nameOf(attr)
		}
		if want, has := treeNames[of]; has && want != names {
			t.Errorf("%s has %b in trees, %b in the schema", of, want, names)
		}
	}
	for _, n := range nameTexts {
		if !declared[string(n)] {
			t.Errorf("the schema has no %q", n)
		}
		delete(declared, string(n))
	}
	for n := range declared {
		t.Errorf("the schema has %q, which nothing fills in", n)
	}
	for _, bad := range []string{"entity", "action a appliesTo { principal: X, resource: X };"} {
		if _, err := newValidator([]byte(bad)); err == nil {
			t.Errorf("%s is a schema", bad)
		}
	}
}
