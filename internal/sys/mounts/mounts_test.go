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

// Layers are named as who mounted an overlay named them.
const overlays = `
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:40 / /o/plain rw - overlay none rw,lowerdir=/home/u/.ringfence:/empty
31 22 0:41 / /o/above rw - overlay none rw,lowerdir=/empty:/home,upperdir=/up,workdir=/work
32 22 0:42 / /o/up rw - overlay none rw,lowerdir=/empty,upperdir=/home/u/.ringfence,workdir=/work
33 22 0:43 / /o/part rw - overlay none rw,lowerdir+=/empty,lowerdir+=/home/u/.ringfence/keys
34 22 0:44 / /o/relative rw - overlay none rw,lowerdir=home/u/.ringfence:empty
35 22 0:45 / /o/nested rw - overlay none rw,lowerdir=/o/above/u:/empty
36 22 0:41 /u /o/bind rw - overlay none rw,lowerdir=/empty:/home,upperdir=/up,workdir=/work
37 22 0:46 / /o/odd\040name rw - overlay none rw,lowerdir=/a\134:b\054c:/empty
38 22 0:47 / /o/itself rw - overlay none rw,lowerdir=/o/itself:/other
39 31 0:48 / /o/above/u rw - tmpfs none rw
40 22 0:49 / /o/data rw - overlay none rw,lowerdir=/empty::/home/u
`

// TestOverlays: our home is shown by what it is a layer of.
func TestOverlays(t *testing.T) {
	for name, want := range map[string]string{
		"/home/u/.ringfence":   "/o/plain|/o/above/u/.ringfence|/o/up|/o/part|/o/nested/.ringfence|/o/bind/.ringfence|/o/data/.ringfence",
		"/a:b,c/d":             "/o/odd name/d",
		"/o/above/u":           "/o/nested",
		"/other":               "/o/itself",
		"/home/v":              "/o/above/v",
		"/up":                  "/o/above|/o/nested|/o/bind",
		"/o/itself/home/u/.xy": "/other/home/u/.xy",
	} {
		if got := strings.Join(elsewhere(overlays, name), "|"); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	all := Parse(overlays)
	if got := strings.Join(all.Names(all, "/home/u/.ringfence"), "|"); strings.Contains(got, "/o/above") || !strings.Contains(got, "/o/bind") {
		t.Errorf("what is covered is shown, or what is not is not: %q", got)
	}
	var opaque []string
	for _, m := range all {
		if m.Opaque() {
			opaque = append(opaque, m.Point)
		}
	}
	if len(opaque) != 10 || slices.Contains(opaque, "/") {
		t.Errorf("opaque are %q", opaque)
	}
}

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
