//go:build linux

package filter

import (
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"
)

// A call is struct seccomp_data without the instruction pointer.
type call struct {
	nr, arch uint32
	args     [6]uint64
}

// interpret runs a program of classic BPF as the kernel does (net/core/filter.c),
// with what seccomp allows of it (seccomp_check_filter): words only, aligned, within
// the data. Whatever the kernel would reject is an error.
func interpret(program []unix.SockFilter, c call) (verdict, error) {
	var data [64]byte
	binary.LittleEndian.PutUint32(data[0:], c.nr)
	binary.LittleEndian.PutUint32(data[4:], c.arch)
	for i, a := range c.args {
		binary.LittleEndian.PutUint64(data[16+8*i:], a)
	}
	var acc uint32
	for pc := 0; pc < len(program); pc++ {
		in := program[pc]
		switch in.Code {
		case unix.BPF_LD | unix.BPF_W | unix.BPF_ABS:
			if in.K%4 != 0 || in.K >= uint32(len(data)) {
				return 0, fmt.Errorf("%d: load of %d", pc, in.K)
			}
			acc = binary.LittleEndian.Uint32(data[in.K:])
		case unix.BPF_ALU | unix.BPF_AND | unix.BPF_K:
			acc &= in.K
		case unix.BPF_JMP | unix.BPF_JA:
			pc += int(in.K)
		case unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K:
			pc += jump(in, acc == in.K)
		case unix.BPF_JMP | unix.BPF_JGE | unix.BPF_K:
			pc += jump(in, acc >= in.K)
		case unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K:
			pc += jump(in, acc&in.K != 0)
		case unix.BPF_RET | unix.BPF_K:
			return verdict(in.K), nil
		default:
			return 0, fmt.Errorf("%d: instruction %#x", pc, in.Code)
		}
	}
	return 0, fmt.Errorf("no return")
}

func jump(in unix.SockFilter, yes bool) int {
	if yes {
		return int(in.Jt)
	}
	return int(in.Jf)
}

// judge is the verdict of the tables, read one after another without a program.
func judge(a arch, o Options, c call) verdict {
	on, err := o.conditions()
	if err != nil {
		return kill
	}
	if c.arch != a.audit || a.x32 && c.nr >= x32Bit {
		return kill
	}
	for i, n := range numbers {
		if nr := a.number(n); nr == absent || uint32(nr) != c.nr {
			continue
		}
		return judgeCall(numbers[i].name, on, c)
	}
	return newer
}

func judgeCall(name string, on condition, c call) verdict {
	last := refused
	for _, g := range groups {
		if !inWords(g.calls, name) {
			continue
		}
		if g.when&^on != 0 {
			last = g.otherwise
			continue
		}
		for _, cl := range g.check.clauses {
			if cl.when&^on == 0 && allHold(cl.tests, c) {
				return cl.then
			}
		}
		return g.check.end()
	}
	return last
}

func allHold(tests []test, c call) bool {
	for _, t := range tests {
		v := uint32(c.args[t.argument]) & t.mask
		if t.high {
			v = uint32(c.args[t.argument]>>32) & t.mask
		}
		found := t.bits && v != 0
		for _, want := range t.values {
			found = found || v == want
		}
		if !found {
			return false
		}
	}
	return true
}
