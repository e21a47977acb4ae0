//go:build linux

package filter

import (
	"fmt"
	"go/format"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func updating() bool { return os.Getenv("RINGFENCE_TEST_UPDATE") == "1" }

// golden compares a file with what it must be, or writes it.
func golden(t *testing.T, name string, want []byte) {
	t.Helper()
	if updating() {
		if err := os.WriteFile(name, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(name)
	if err != nil || string(got) != string(want) {
		t.Errorf("%s is not what it must be (%v); make golden writes it", name, err)
	}
}

// TestNumbers compares numbers with the sources of golang.org/x/sys.
func TestNumbers(t *testing.T) {
	dir, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "golang.org/x/sys").Output()
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]map[string]string{}
	line := regexp.MustCompile(`(?m)^\tSYS_(\w+)\s+= (\d+)$`)
	for name := range arches {
		source, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), "unix", "zsysnum_linux_"+name+".go"))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range line.FindAllStringSubmatch(string(source), -1) {
			call := strings.ToLower(m[1])
			if call == "arch_specific_syscall" { // the first of a range, not a call
				continue
			}
			if all[call] == nil {
				all[call] = map[string]string{"amd64": "absent", "arm64": "absent"}
			}
			all[call][name] = m[2]
		}
	}
	file, err := os.ReadFile("numbers_linux.go")
	if err != nil {
		t.Fatal(err)
	}
	head, _, ok := strings.Cut(string(file), "= []number{\n")
	if !ok {
		t.Fatal("numbers_linux.go has no list")
	}
	var b strings.Builder
	b.WriteString(head + "= []number{\n")
	for _, call := range sortedKeys(all) {
		fmt.Fprintf(&b, "\t{%q, %s, %s},\n", call, all[call]["amd64"], all[call]["arm64"])
	}
	b.WriteString("}\n")
	want, err := format.Source([]byte(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "numbers_linux.go", want)
}

func sortedKeys[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// TestEveryCallIsDecided: each call is in a group, groups name calls that exist, and
// under no Options do two groups allow the same call.
func TestEveryCallIsDecided(t *testing.T) {
	for _, o := range everyOptions() {
		c, err := o.conditions()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := resolve(c); err != nil {
			t.Fatal(err)
		}
		by := map[string][]string{}
		in := map[string]bool{}
		for _, g := range groups {
			if g.when != everyone && g.otherwise&errno == 0 && g.otherwise != kill {
				t.Errorf("group %q does not say how it refuses", g.name)
			}
			for call := range strings.FieldsSeq(g.calls) {
				in[call] = true
				if c.has(g.when) {
					by[call] = append(by[call], g.name)
				}
			}
		}
		for _, n := range numbers {
			if !in[n.name] {
				t.Errorf("%s is in no group", n.name)
			}
			if len(by[n.name]) > 1 {
				t.Errorf("%+v: %s is allowed by %q", o, n.name, by[n.name])
			}
		}
	}
}

// TestContradictions: Options that make no sense are an error, not a program.
func TestContradictions(t *testing.T) {
	for _, o := range []Options{{Init: true, Agent: true}, {Init: true, Hold: true}, {Init: true, Unix: true}, {Trace: true}} {
		if p, err := Build(o); err == nil || p != nil {
			t.Errorf("%+v: got %d instructions, want an error", o, len(p))
		}
		if _, err := Explain(0, o); err == nil {
			t.Errorf("%+v: explained", o)
		}
	}
}

// TestSizes: programs stay small, and the same.
func TestSizes(t *testing.T) {
	for name, a := range arches {
		for _, o := range everyOptions() {
			p, err := build(a, o)
			q, _ := build(a, o)
			if err != nil || len(p) > 600 || !slices.Equal(p, q) {
				t.Errorf("%s %+v: %d instructions (%v), then %d", name, o, len(p), err, len(q))
			}
		}
	}
}

func BenchmarkBuild(b *testing.B) {
	for b.Loop() {
		if _, err := Build(Options{Agent: true, Namespaces: true, Unix: true, Inet: true, RouteNetlink: true, Hold: true}); err != nil {
			b.Fatal(err)
		}
	}
}

// TestExplain tells why calls are refused, and what would allow them.
func TestExplain(t *testing.T) {
	for _, c := range []struct {
		nr   int
		o    Options
		want string
	}{
		{unix.SYS_PTRACE, Options{Agent: true}, "ptrace: EPERM (other processes); needs []"},
		{unix.SYS_SHMGET, Options{}, "shmget: EPERM (shared memory and queues); needs [Agent Namespaces]"},
		{unix.SYS_SHMGET, Options{Agent: true}, "shmget: EPERM (shared memory and queues); needs [Namespaces]"},
		{unix.SYS_PROCESS_VM_READV, Options{}, "process_vm_readv: EPERM (other processes); needs []"},
		{unix.SYS_FCHMOD, Options{}, "fchmod: EPERM (modes); needs [Namespaces]"},
		{unix.SYS_CONNECT, Options{}, "connect: EPERM (connecting); needs [Unix, Inet or RouteNetlink]"},
		{unix.SYS_MKDIRAT, Options{}, "mkdirat: allowed (names); needs []"},
		{unix.SYS_MKDIRAT, Options{Hold: true}, "mkdirat: handed over (names); needs []"},
		{unix.SYS_READ, Options{Init: true}, "read: allowed (descriptors); needs []"},
		{unix.SYS_IOCTL, Options{}, "ioctl: checked (devices and terminals); needs []"},
		{unix.SYS_SOCKET, Options{Init: true}, "socket: EPERM (making sockets); needs []"},
		{unix.SYS_REBOOT, Options{}, "reboot: killed (the machine); needs []"},
		{unix.SYS_FSETXATTR, Options{Hold: true, Namespaces: true}, "fsetxattr: EOPNOTSUPP (setting extended attributes); needs []"},
		{999, Options{}, "system call 999: ENOSYS (); needs []"},
		{-1, Options{}, map[bool]string{true: "system call 0xffffffff: killed (); needs []", false: "system call -1: ENOSYS (); needs []"}[unix.SYS_READ == 0]},
	} {
		e, err := Explain(c.nr, c.o)
		var needs []string
		for _, n := range e.Needs {
			name, _, _ := strings.Cut(n, ":")
			needs = append(needs, name)
		}
		got := fmt.Sprintf("%s: %s (%s); needs %v", e.Call, e.Fate, e.Group, needs)
		if err != nil || got != c.want || e.Reason == "" {
			t.Errorf("got %s (%v), want %s", got, err, c.want)
		}
	}
}

// TestReference writes the table for people.
func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString("<!-- Generated by make golden. Do not edit. -->\n\n# System calls in a box\n\n" +
		"What the seccomp programs of the native tier on Linux allow, by group, from the tables of package\n" +
		"`internal/sandbox/native/filter`. A call that is in several groups is allowed by the first whose needs are met. Calls\n" +
		"that the tables do not know are answered `ENOSYS`; calls by the 32-bit and x32 tables kill the process.\n\n" +
		"Options of a program: `Agent` is set in the profiles agent and server, `Namespaces` where the box has mount, IPC and\n" +
		"PID namespaces of its own, `Unix`, `Inet` and `RouteNetlink` by the box's network, `Hold` where names are held, `Init`\n" +
		"for the box's own pid 1. **held** marks groups of which `Hold` hands calls to the supervisor.\n\n" +
		"| group | calls | allowed | otherwise | why |\n|---|---|---|---|---|\n")
	for _, g := range Table() {
		allowed := "always"
		switch {
		case g.Never:
			allowed = "never"
		case len(g.Needs) > 0:
			var names []string
			for _, n := range g.Needs {
				name, _, _ := strings.Cut(n, ":")
				names = append(names, name)
			}
			allowed = "with " + strings.Join(names, " and ")
		case g.Programs:
			allowed = "to programs"
		}
		if g.Checks != "" {
			allowed += "; " + g.Checks
		}
		if g.Held {
			allowed += "; **held**"
		}
		fmt.Fprintf(&b, "| %s | `%s` | %s | %s | %s |\n", g.Name, strings.Join(g.Calls, "` `"), allowed, strings.Join(g.Refusals, ", "), g.Reason)
	}
	golden(t, "../../../../docs/reference/seccomp.md", []byte(b.String()))
}
