package act

import (
	"encoding/json"
	"slices"
	"testing"
)

// TestA1ZeroDenies: what nobody decided is denied.
func TestA1ZeroDenies(t *testing.T) {
	if (Ticket{}).Verdict != Deny || Deny.String() != "deny" || Verdict(9).String() != "deny" {
		t.Error("the zero verdict, or one that does not exist, is not deny")
	}
	for _, text := range []string{"", "Allow", "ALLOW", "allow ", "true", "2"} {
		v := Allow
		if err := v.UnmarshalText([]byte(text)); err == nil || v != Deny {
			t.Errorf("reading %q gives %s, %v", text, v, err)
		}
	}
	for _, v := range []Verdict{Deny, Escalate, Allow} {
		b, err := json.Marshal(Ticket{Verdict: v})
		if err != nil {
			t.Fatal(err)
		}
		var back Ticket
		if err := json.Unmarshal(b, &back); err != nil || back.Verdict != v {
			t.Errorf("%s comes back as %s, %v", v, back.Verdict, err)
		}
	}
}

// TestA2Table: the table is closed and consistent with decisions 0002 and 0007.
func TestA2Table(t *testing.T) {
	if len(Kinds()) != 29 {
		t.Errorf("%d kinds; a new one needs a decision record", len(Kinds()))
	}
	seen := map[Kind]bool{}
	for _, k := range Kinds() {
		if seen[k] || !k.Known() || k.On() == "" {
			t.Errorf("%s is twice in the table, or on nothing", k)
		}
		seen[k] = true
		if k.In(Irreversible) && !k.In(Mutate) {
			t.Errorf("%s cannot be undone and changes nothing", k)
		}
		if k.In(Observe) && k.In(Mutate) {
			t.Errorf("%s observes and changes", k)
		}
	}
	if Kind("teleport").Known() || Kind("teleport").On() != "" || Kind("teleport").In(Observe) {
		t.Error("an unknown kind has properties")
	}
}

// TestGroupsOfCalls: a call whose group is unknown counts as everything but
// looking.
func TestGroupsOfCalls(t *testing.T) {
	for _, c := range []struct {
		group Group
		is    []Group
	}{
		{"", []Group{Mutate, Irreversible, RemoteGroup}},
		{Observe, []Group{Observe}},
		{Mutate, []Group{Mutate}},
		{Irreversible, []Group{Mutate, Irreversible}},
		{RemoteGroup, []Group{RemoteGroup}},
	} {
		e := Effect{Kind: Call, Group: c.group}
		for _, g := range []Group{Observe, Mutate, Irreversible, RemoteGroup} {
			if e.Is(g) != slices.Contains(c.is, g) {
				t.Errorf("a call of group %q is %s: %v", c.group, g, e.Is(g))
			}
		}
	}
}

// TestObserves: only what looks at this machine need not be on disk first.
func TestObserves(t *testing.T) {
	for _, c := range []struct {
		effects []Effect
		want    bool
	}{
		{nil, false},
		{[]Effect{{Kind: Read}, {Kind: GitRead}}, true},
		{[]Effect{{Kind: Read}, {Kind: Create}}, false},
		{[]Effect{{Kind: Fetch}}, false},
		{[]Effect{{Kind: Resolve}}, false},
		{[]Effect{{Kind: Call}}, false},
		{[]Effect{{Kind: Call, Group: Observe}}, true},
		{[]Effect{{Kind: UseSecret}}, false},
		{[]Effect{{Kind: "teleport"}}, false},
	} {
		if got := Observes(c.effects); got != c.want {
			t.Errorf("%v observes: %v", c.effects, got)
		}
	}
}

// TestText: effects as people read them.
func TestText(t *testing.T) {
	e := Effect{Kind: Read, Resource: Resource{Type: Path, Text: "/w"}, Tree: true}
	if e.String() != "read /w and everything beneath" || e.Resource.String() != "/w" {
		t.Errorf("%q %q", e, e.Resource)
	}
}
