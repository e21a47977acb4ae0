//go:build linux

package filter

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func inWords(words, w string) bool { return slices.Contains(strings.Fields(words), w) }

var arches = map[string]arch{"amd64": amd64, "arm64": arm64}

// everyOptions are all that do not contradict each other.
func everyOptions() []Options {
	all := []Options{{Init: true}, {Init: true, Sockets: true}, {Init: true, Trace: true}, {Init: true, Sockets: true, Trace: true}}
	for i := range 1 << 7 {
		o := Options{
			Agent: i&1 != 0, Namespaces: i&2 != 0, Unix: i&4 != 0, Inet: i&8 != 0, RouteNetlink: i&16 != 0,
			Hold: i&32 != 0, Sockets: i&64 != 0,
		}
		all = append(all, o)
	}
	return all
}

// interesting are argument values near what the tables compare with.
func interesting() []uint64 {
	seen := map[uint32]bool{0: true, 1: true, whole: true}
	for _, g := range groups {
		for _, cl := range g.check.clauses {
			for _, t := range cl.tests {
				for _, v := range append(slices.Clone(t.values), t.mask) {
					seen[v], seen[v-1], seen[v+1], seen[v|0x80000] = true, true, true, true
				}
			}
		}
	}
	var all []uint64
	for v := range seen {
		all = append(all, uint64(v))
	}
	slices.Sort(all)
	return all
}

// TestProgramsAreTables runs programs of all Options on every number that there is
// and beyond, with random arguments.
func TestProgramsAreTables(t *testing.T) {
	values := interesting()
	for name, a := range arches {
		for _, o := range everyOptions() {
			program, err := build(a, o)
			if err != nil {
				t.Fatalf("%s %+v: %v", name, o, err)
			}
			rapid.Check(t, func(t *rapid.T) {
				c := call{arch: a.audit, nr: rapid.Uint32Range(0, 600).Draw(t, "number")}
				argument := rapid.OneOf(rapid.SampledFrom(values), rapid.Uint64())
				high := rapid.Uint32().Draw(t, "high")
				for i := range c.args {
					c.args[i] = argument.Draw(t, "argument")
				}
				got, err := interpret(program, c)
				if want := judge(a, o, c); err != nil || got != want {
					t.Fatalf("%s %+v: call %d %#x: program says %#x (%v), tables %#x", name, o, c.nr, c.args, got, err, want)
				}
				for i := range c.args {
					if i != 2 || !takesPointer(a, c.nr) {
						c.args[i] ^= uint64(high) << 32
					}
				}
				if again, _ := interpret(program, c); again != got {
					t.Fatalf("%s %+v: call %d: the high halves of arguments change %#x to %#x", name, o, c.nr, got, again)
				}
			})
		}
	}
}

// TestOptionsOnlyAdd: what is allowed stays allowed, or is handed over, when another
// member is set.
func TestOptionsOnlyAdd(t *testing.T) {
	values := interesting()
	wider := []func(*Options){
		func(o *Options) { o.Agent = true }, func(o *Options) { o.Namespaces = true }, func(o *Options) { o.Unix = true },
		func(o *Options) { o.Inet = true }, func(o *Options) { o.RouteNetlink = true },
	}
	rapid.Check(t, func(t *rapid.T) {
		a := arches[rapid.SampledFrom([]string{"amd64", "arm64"}).Draw(t, "architecture")]
		o := rapid.SampledFrom(everyOptions()[4:]).Draw(t, "options")
		more := o
		rapid.SampledFrom(wider).Draw(t, "wider")(&more)
		n := rapid.SampledFrom(numbers).Draw(t, "call")
		c := call{arch: a.audit, nr: uint32(max(0, a.number(n)))}
		for i := range c.args {
			c.args[i] = rapid.SampledFrom(values).Draw(t, "argument")
		}
		before, after := judge(a, o, c), judge(a, more, c)
		if before == allow && after != allow || before == notify && after != notify && after != allow {
			t.Fatalf("%s %#x: %+v says %#x, %+v says %#x", n.name, c.args, o, before, more, after)
		}
		held := o
		held.Hold = true
		performed := !o.Namespaces && inWords("chmod fchmod fchmodat fchmodat2 utimensat", n.name)
		if got := judge(a, held, c); before != allow && before != notify && got != before && (got != notify || !performed) {
			t.Fatalf("%s %#x: %+v says %#x, with Hold %#x", n.name, c.args, o, before, got)
		}
	})
}

// takesPointer reports whether nr is the call whose argument 2 is a pointer that may be
// NULL or not (F3).
func takesPointer(a arch, nr uint32) bool {
	i := slices.IndexFunc(numbers, func(n number) bool { return n.name == "prlimit64" })
	return uint32(a.number(numbers[i])) == nr
}
