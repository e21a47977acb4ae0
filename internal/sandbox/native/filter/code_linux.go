package filter

import (
	"slices"

	"golang.org/x/sys/unix"
)

// Offsets in struct seccomp_data of include/uapi/linux/seccomp.h. Both architectures
// are little-endian: the low half of an argument comes first.
const (
	offsetNumber    = 0
	offsetArch      = 4
	offsetArguments = 16
)

// code is a program that is made from its end to its beginning, because jumps of
// BPF only go forward: what an instruction jumps to is there before it is.
type code struct {
	reverse []unix.SockFilter
	ends    map[verdict]int // the newest return of each verdict
}

// A target is where a jump goes: an instruction, by its place in reverse, or the
// return of a verdict, wherever there is one near enough.
type target struct {
	isPlace bool
	place   int
	verdict verdict
}

func to(v verdict) target { return target{verdict: v} }

// A span is the values from its first on, up to the first of the next span.
type span struct {
	first uint32
	to    target
}

// reach is how far a conditional jump goes: its offsets are bytes.
const reach = 255

func (p *code) add(op uint16, k uint32) target {
	p.reverse = append(p.reverse, unix.SockFilter{Code: op, K: k})
	return target{isPlace: true, place: len(p.reverse) - 1}
}

// offset returns the distance of t from an instruction added now, and whether there
// is anything to go to.
func (p *code) offset(t target) (int, bool) {
	if t.isPlace {
		return len(p.reverse) - 1 - t.place, true
	}
	place, ok := p.ends[t.verdict]
	return len(p.reverse) - 1 - place, ok
}

// bridge puts t, or a jump to it, right behind the instruction added next.
func (p *code) bridge(t target) target {
	if !t.isPlace {
		if p.ends == nil {
			p.ends = map[verdict]int{}
		}
		t = p.add(unix.BPF_RET|unix.BPF_K, uint32(t.verdict))
		p.ends[verdict(p.reverse[t.place].K)] = t.place
		return t
	}
	far, _ := p.offset(t)
	return p.add(unix.BPF_JMP|unix.BPF_JA, uint32(far))
}

// branch adds a conditional jump: to yes if the accumulator compares with k, else
// to no.
func (p *code) branch(compare uint16, k uint32, yes, no target) target {
	for {
		y, okY := p.offset(yes)
		if !okY || y > reach {
			yes = p.bridge(yes)
			continue
		}
		n, okN := p.offset(no)
		if !okN || n > reach {
			no = p.bridge(no)
			continue
		}
		t := p.add(unix.BPF_JMP|unix.BPF_K|compare, k)
		p.reverse[t.place].Jt, p.reverse[t.place].Jf = uint8(y), uint8(n)
		return t
	}
}

// step adds an instruction that goes on to next.
func (p *code) step(op uint16, k uint32, next target) target {
	if far, ok := p.offset(next); !ok || far != 0 {
		p.bridge(next)
	}
	return p.add(op, k)
}

func (p *code) load(offset uint32, next target) target {
	return p.step(unix.BPF_LD|unix.BPF_W|unix.BPF_ABS, offset, next)
}

// tree adds a binary search of the accumulator in spans, which start at 0 and are
// sorted.
func (p *code) tree(spans []span) target {
	spans = slices.CompactFunc(spans, func(a, b span) bool { return a.to == b.to })
	return p.search(spans)
}

func (p *code) search(spans []span) target {
	if len(spans) == 1 {
		return spans[0].to
	}
	middle := len(spans) / 2
	high := p.search(spans[middle:])
	low := p.search(spans[:middle])
	return p.branch(unix.BPF_JGE, spans[middle].first, high, low)
}

// check adds the clauses of k that apply under c: the first whose tests all hold
// decides.
func (p *code) check(k check, c condition) target {
	applies := slices.DeleteFunc(slices.Clone(k.clauses), func(cl clause) bool { return !c.has(cl.when) })
	if i := slices.IndexFunc(applies, func(cl clause) bool { return len(cl.tests) == 0 }); i >= 0 {
		applies = applies[:i+1] // nothing behind it is reached
	}
	next := to(k.end())
	for _, cl := range slices.Backward(applies) {
		match := to(cl.then)
		for _, t := range slices.Backward(cl.tests) {
			match = p.test(t, match, next)
		}
		next = match
	}
	return next
}

func (p *code) test(t test, yes, no target) target {
	var start target
	if t.bits {
		start = p.branch(unix.BPF_JSET, t.mask, yes, no)
	} else {
		start = p.tree(t.spans(yes, no))
		if t.mask != whole {
			start = p.step(unix.BPF_ALU|unix.BPF_AND|unix.BPF_K, t.mask, start)
		}
	}
	at := offsetArguments + 8*uint32(t.argument)
	if t.high {
		at += 4 // both architectures are little-endian
	}
	return p.load(at, start)
}

// spans returns where each value of the argument leads.
func (t test) spans(yes, no target) []span {
	all := []span{{0, no}}
	for _, v := range slices.Sorted(slices.Values(t.values)) {
		if last := &all[len(all)-1]; last.first == v {
			last.to = yes
		} else {
			all = append(all, span{v, yes})
		}
		if v != ^uint32(0) {
			all = append(all, span{v + 1, no})
		}
	}
	return all
}

// forward returns the program in the order in which it runs.
func (p *code) forward() []unix.SockFilter {
	program := slices.Clone(p.reverse)
	slices.Reverse(program)
	return program
}
