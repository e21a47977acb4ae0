package mounts

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

const machine = `
22 1 254:0 / / rw,relatime - ext4 /dev/vda rw
23 22 0:21 / /proc rw - proc proc rw
30 22 254:0 /home/u/.ringfence /srv/x rw - ext4 /dev/vda rw
31 22 254:0 /home /mnt/all\040homes rw - ext4 /dev/vda rw
32 22 254:0 /home/u/.ringfence/keys /k rw - ext4 /dev/vda rw
33 22 254:16 / /data rw - ext4 /dev/vdb rw
34 22 254:16 /deep /home/u/data rw - ext4 /dev/vdb rw
35 22 254:0 /home/u/.ringfence2 /no rw - ext4 /dev/vda rw
short
`

func TestElsewhere(t *testing.T) {
	for name, want := range map[string]string{
		"/home/u/.ringfence":        "/srv/x|/mnt/all homes/u/.ringfence|/k",
		"/home/u/.ringfence/keys/a": "/srv/x/keys/a|/mnt/all homes/u/.ringfence/keys/a|/k/a",
		"/home/u/.ringfence2":       "/mnt/all homes/u/.ringfence2|/no",
		"/srv/x/ledger":             "/home/u/.ringfence/ledger|/mnt/all homes/u/.ringfence/ledger",
		"/home/u/data/f":            "/data/deep/f",
		"/data/other":               "",
		"/proc/1":                   "",
		"/etc":                      "",
	} {
		if got := strings.Join(elsewhere(machine, name), "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	if got := elsewhere("", "/x"); got != nil {
		t.Errorf("without mounts: %q", got)
	}
}

// M1, the other way round: from each other name, the first is elsewhere too, or a part of it.
func TestBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		names := rapid.SampledFrom([]string{"/home/u/.ringfence", "/srv/x", "/srv/x/keys", "/k/a", "/data/deep/d", "/home", "/no/b"})
		name := names.Draw(t, "name")
		for _, other := range elsewhere(machine, name) {
			back := elsewhere(machine, other)
			if !slices.ContainsFunc(back, func(b string) bool {
				_, beneath := rest(b, name)
				_, above := rest(name, b)
				return beneath || above
			}) {
				t.Fatalf("%s is %s elsewhere, which is %q", name, other, back)
			}
		}
	})
}

func FuzzElsewhere(f *testing.F) {
	f.Add(machine, "/home/u/.ringfence")
	f.Add(`1 2 0:1 /\040 /\999 x`, "/")
	f.Fuzz(func(t *testing.T, text, name string) {
		for _, other := range elsewhere(text, name) {
			if other == name || other == "" {
				t.Errorf("%q is %q elsewhere", name, other)
			}
		}
	})
}

// The mounts of this machine can be read.
func TestHere(t *testing.T) {
	if _, err := Elsewhere(t.TempDir()); err != nil {
		t.Error(err)
	}
}
