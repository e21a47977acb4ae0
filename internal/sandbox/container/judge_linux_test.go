package container

import (
	"bufio"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"ringfence/internal/sandbox"
)

// soundContainer is a judge of a container that is as it should be, with its cgroup
// in dir and one mount, of dir/ws.
func soundContainer(t *testing.T, dir string) *judge {
	t.Helper()
	status := "Name:\tx\nUid:\t65534\t65534\t65534\t65534\nGid:\t65534\t65534\t65534\t65534\nGroups:\t65534 \n" +
		"CapInh:\t0000000000000000\nCapPrm:\t0000000000000000\nCapEff:\t0000000000000000\nCapBnd:\t0000000000000000\nCapAmb:\t0000000000000000\n" +
		"NoNewPrivs:\t1\nSeccomp:\t2\nSeccomp_filters:\t2\n"
	f := facts{
		Status: status,
		Limits: "Limit                     Soft Limit           Hard Limit           Units\n" +
			"Max cpu time              30                   30                   seconds\n" +
			"Max core file size        0                    0                    bytes\n" +
			"Max open files            64                   64                   files\n" +
			"Max address space         536870912            536870912            bytes\n",
		Mounts: "1 0 0:1 / / ro,relatime - overlay overlay rw\n2 1 0:2 / /proc rw - proc proc rw\n" +
			"3 1 0:3 / /tmp rw,nosuid,nodev,noexec,relatime - tmpfs tmpfs rw\n4 1 0:4 / /ws ro,nosuid,nodev,relatime - ext4 /dev/x rw\n" +
			"5 1 0:4 / /etc/hostname ro,relatime - ext4 /dev/x rw\n6 1 0:4 / /.ringfence/init ro - ext4 /dev/x rw\n",
		Net: "Inter-|   Receive\n face |bytes\n    lo:       0\n",
		NS:  map[string]string{},
	}
	ours := facts{NS: map[string]string{}}
	for _, n := range namespaces {
		f.NS[n], ours.NS[n] = n+":[2]", n+":[1]"
	}
	cg := cgroup{}
	for name, value := range map[string]string{
		"memory/memory.limit_in_bytes": "268435456", "memory/memory.memsw.limit_in_bytes": "268435456",
		"pids/pids.max": "76", "cpu/cpu.cfs_quota_us": "100000", "cpu/cpu.cfs_period_us": "100000",
	} {
		controller := filepath.Dir(name)
		cg[controller] = filepath.Join(dir, controller)
		if err := os.MkdirAll(cg[controller], 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(value+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	p := &plan{uid: nobody, gid: nobody}
	p.bounds(sandbox.Spec{}, Options{})
	if err := os.Mkdir(dir+"/ws", 0o755); err != nil {
		t.Fatal(err)
	}
	if err := p.add(dir+"/ws", "/ws", true); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.close)
	return &judge{
		e: &engine{local: true}, p: p, tmpfs: map[string]string{"/tmp": "rw,noexec"},
		inside: f, outside: f, ours: ours, cg: cg, paths: []pathAccount{{ID: p.mounts[0].id}},
	}
}

// TestMountOptions: only Docker, and only where we are not root, is not asked for them, and
// the report says so.
func TestMountOptions(t *testing.T) {
	for _, c := range []struct {
		kind     Runtime
		attached bool
		missing  bool
	}{{RuntimeDocker, false, true}, {RuntimeDocker, true, false}, {RuntimePodman, false, false}} {
		j := soundContainer(t, t.TempDir())
		j.e.kind, j.p.attached = c.kind, c.attached
		j.outside.Mounts = strings.Replace(j.outside.Mounts, "ro,nosuid,nodev", "ro", 1)
		r, err := j.verdict()
		if c.missing != (err == nil && slices.Equal(r.Missing, []string{LayerMountOptions}) && strings.Contains(r.Evidence[LayerMountOptions], "/ws")) {
			t.Errorf("%v: %s, %v", c, r, err)
		}
	}
}

// K2: nothing is merely missing.
func TestJudge(t *testing.T) {
	if r, err := soundContainer(t, t.TempDir()).verdict(); err != nil || !r.Complete() || !r.Has(sandbox.LayerCgroup) {
		t.Fatalf("a sound container: %s, %v", r, err)
	}
	file, err := os.Open("testdata/judge.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for sc := bufio.NewScanner(file); sc.Scan(); {
		words := strings.Fields(sc.Text())
		if len(words) < 4 || words[0] == "#" {
			continue
		}
		layer, field := words[0], words[1]
		rest := strings.TrimSpace(strings.TrimPrefix(sc.Text(), layer))
		rest = strings.TrimSpace(strings.TrimPrefix(rest, field))
		quoted, err := strconv.QuotedPrefix(rest)
		if err != nil {
			t.Fatal(sc.Text())
		}
		from, _ := strconv.Unquote(quoted)
		to, err := strconv.Unquote(strings.TrimSpace(rest[len(quoted):]))
		if err != nil {
			t.Fatal(sc.Text())
		}
		dir := t.TempDir()
		j := soundContainer(t, dir)
		change(t, j, dir, field, from, to)
		if r, err := j.verdict(); err == nil || !strings.Contains(err.Error(), layer+": ") || r.Confines() {
			t.Errorf("%s: %s, %v", sc.Text(), r, err)
		}
	}
}

func change(t *testing.T, j *judge, dir, field, from, to string) {
	t.Helper()
	texts := map[string]*string{
		"status": &j.outside.Status, "limits": &j.outside.Limits, "mounts": &j.outside.Mounts, "net": &j.outside.Net,
		"in.status": &j.inside.Status,
	}
	switch name, isNS := strings.CutPrefix(field, "ns."); {
	case isNS:
		j.outside.NS = maps.Clone(j.outside.NS)
		j.outside.NS[name] = to
	case field == "identity":
		j.paths[0].ID.Ino++
	case field == "access":
		j.paths[0].Failed = to
	case texts[field] != nil:
		changed := strings.Replace(*texts[field], from, to, 1)
		if changed == *texts[field] {
			t.Fatalf("%s has no %q", field, from)
		}
		*texts[field] = changed
	default:
		if err := os.WriteFile(filepath.Join(dir, field), []byte(to), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
