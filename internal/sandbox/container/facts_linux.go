package container

import (
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ringfence/internal/sandbox"
)

// Facts are what /proc says of a process, as text.
type facts struct {
	Status, Limits, Mounts, Net, Cgroup string
	NS                                  map[string]string // "net" → "net:[4026532181]"
}

// maxFact bounds each text.
const maxFact = 1 << 20

var namespaces = []string{"mnt", "pid", "net", "ipc", "uts", "cgroup", "user"}

// readFacts reads what can be read of the process at dir, "/proc/<pid>". What
// cannot stays empty: judging it finds that out.
func readFacts(dir string) facts {
	f := facts{
		Status: readFact(dir + "/status"), Limits: readFact(dir + "/limits"), Mounts: readFact(dir + "/mountinfo"),
		Net: readFact(dir + "/net/dev"), Cgroup: readFact(dir + "/cgroup"), NS: map[string]string{},
	}
	for _, n := range namespaces {
		if link, err := os.Readlink(dir + "/ns/" + n); err == nil {
			f.NS[n] = link
		}
	}
	return f
}

func readFact(name string) string {
	f, err := os.Open(name)
	if err != nil {
		return ""
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxFact))
	if err != nil || len(b) == maxFact {
		return ""
	}
	return string(b)
}

// orInside returns f, with what could not be read from outside (of another user's
// process, by anybody but root) taken from what the stage read of itself: it is
// our own program, and nothing else runs there yet.
func (f facts) orInside(inside facts) facts {
	for have, other := range map[*string]string{&f.Limits: inside.Limits, &f.Mounts: inside.Mounts, &f.Net: inside.Net} {
		if *have == "" {
			*have = other
		}
	}
	f.NS = maps.Clone(f.NS)
	for n, link := range inside.NS {
		if f.NS[n] == "" {
			f.NS[n] = link
		}
	}
	return f
}

// statusOf returns the fields of a line of /proc/<pid>/status.
func statusOf(text, name string) []string {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.Fields(rest)
		}
	}
	return nil
}

// limitOf returns the soft and the hard limit of a line of /proc/<pid>/limits, "" if
// it is not there.
func limitOf(text, name string) (soft, hard string) {
	for line := range strings.Lines(text) {
		if rest, ok := strings.CutPrefix(line, name+"  "); ok {
			if f := strings.Fields(rest); len(f) >= 2 {
				return f[0], f[1]
			}
		}
	}
	return "", ""
}

// interfacesOf returns the network interfaces of /proc/<pid>/net/dev.
func interfacesOf(text string) []string {
	var names []string
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, ":"); ok {
			names = append(names, strings.TrimSpace(name))
		}
	}
	return names
}

const cgroupRoot = "/sys/fs/cgroup"

// A cgroup is where the files of a process's controllers are, by controller.
type cgroup map[string]string

// cgroupOf finds the files of a process from the text of its /proc/<pid>/cgroup. A
// controller whose files are not where they usually are is left out.
func cgroupOf(text string) cgroup {
	c := cgroup{}
	unified := ""
	for line := range strings.Lines(text) {
		f := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(f) != 3 || !filepath.IsAbs(f[2]) || strings.Contains(f[2], "/..") {
			continue
		}
		if f[1] == "" {
			unified = f[2]
			continue
		}
		for name := range strings.SplitSeq(f[1], ",") {
			for _, dir := range []string{name, f[1]} {
				if _, err := os.Stat(filepath.Join(cgroupRoot, dir, f[2])); err == nil {
					c[name] = filepath.Join(cgroupRoot, dir, f[2])
				}
			}
		}
	}
	dir := filepath.Join(cgroupRoot, unified)
	for name := range strings.FieldsSeq(readFact(dir + "/cgroup.controllers")) {
		if unified != "" && c[name] == "" {
			c[name] = dir
		}
	}
	return c
}

// value returns the content of the first of a controller's files that is there.
func (c cgroup) value(controller string, names ...string) string {
	if c[controller] == "" {
		return ""
	}
	for _, n := range names {
		if text := strings.TrimSpace(readFact(filepath.Join(c[controller], n))); text != "" {
			return text
		}
	}
	return ""
}

// count returns a counter of a file of "name value" lines.
func (c cgroup) count(controller, name string, files ...string) int {
	for line := range strings.Lines(c.value(controller, files...) + "\n") {
		if f := strings.Fields(line); len(f) == 2 && f[0] == name {
			n, _ := strconv.Atoi(f[1]) // a counter beyond int is one all the same
			return n
		}
	}
	return 0
}

// denials says what the limits of the cgroup refused.
func (c cgroup) denials() (list []sandbox.Denial) {
	if n := c.count("memory", "oom_kill", "memory.events", "memory.oom_control"); n > 0 {
		list = append(list, memoryDenial(n))
	}
	if n := c.count("pids", "max", "pids.events"); n > 0 {
		list = append(list, processesDenial(n))
	}
	return list
}

// cpuQuota returns the processors that a cgroup may use, in billionths; 0 if that is
// not limited or not known.
func (c cgroup) cpuQuota() int64 {
	quota, period := c.value("cpu", "cpu.cfs_quota_us"), c.value("cpu", "cpu.cfs_period_us")
	if f := strings.Fields(c.value("cpu", "cpu.max")); len(f) == 2 {
		quota, period = f[0], f[1]
	}
	q, err1 := strconv.ParseInt(quota, 10, 64)
	p, err2 := strconv.ParseInt(period, 10, 64)
	if errors.Join(err1, err2) != nil || q <= 0 || p <= 0 || q > 1<<40 {
		return 0
	}
	return q * 1_000_000_000 / p
}

// swapIsOff says whether, and why, the container has no swap.
func (c cgroup) swapIsOff(memory int64) string {
	switch both, max := c.value("memory", "memory.memsw.limit_in_bytes"), c.value("memory", "memory.swap.max"); {
	case both == strconv.FormatInt(memory, 10), max == "0":
		return "no swap"
	case len(strings.Split(strings.TrimSpace(readFact("/proc/swaps")), "\n")) < 2:
		return "no swap on this machine"
	}
	return "swap is not limited: the kernel does not count it (swapaccount=1)"
}
