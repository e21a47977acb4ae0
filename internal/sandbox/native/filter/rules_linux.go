package filter

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// A verdict is what a program returns: an action and its data.
type verdict uint32

// The verdicts. Their numbers are of include/uapi/linux/seccomp.h.
const (
	allow  verdict = unix.SECCOMP_RET_ALLOW
	notify verdict = unix.SECCOMP_RET_USER_NOTIF
	kill   verdict = unix.SECCOMP_RET_KILL_PROCESS
	errno  verdict = unix.SECCOMP_RET_ERRNO

	// refused is for what a person may ask about: it reads "not permitted".
	refused = errno | verdict(unix.EPERM)
	// newer is for what programs look for and do without.
	newer = errno | verdict(unix.ENOSYS)
	// The kernel's own answers where it lacks what an argument names.
	noOption    = errno | verdict(unix.EINVAL)
	noFamily    = errno | verdict(unix.EAFNOSUPPORT)
	noProtocol  = errno | verdict(unix.EPROTONOSUPPORT)
	noSockOpt   = errno | verdict(unix.ENOPROTOOPT)
	noIoctl     = errno | verdict(unix.ENOTTY)
	noAttribute = errno | verdict(unix.EOPNOTSUPP)
)

// A condition is a set of what Options say.
type condition uint16

const (
	program condition = 1 << iota // not pid 1
	pidOne
	agent
	namespaces
	unixSockets
	inetSockets
	routeNetlink
	anySocket // one of the three
	hold
	heldSockets
	tracing
	bare  // a program without namespaces: nothing but Landlock and the filter holds it
	never // is not met

	everyone condition = 0
)

func (c condition) has(all condition) bool { return c&all == all }

// A group is calls that are allowed, or refused, for one reason. A call may be in
// several groups: the first whose condition is met allows it; if there is none, the
// last one says how it is refused (to a program, the last that is not for pid 1).
type group struct {
	name   string
	reason string
	when   condition // all of it must be met
	// otherwise is the verdict where it is not met.
	otherwise verdict
	check     check
	calls     string // names, separated by white space
}

// A check looks at the arguments of a call that its group allows. The zero check
// allows everything.
type check struct {
	clauses   []clause
	otherwise verdict // 0 is allow
	text      string  // what is checked, for people
}

// end is the verdict where no clause decides.
func (k check) end() verdict {
	if k.otherwise == 0 {
		return allow
	}
	return k.otherwise
}

// A clause decides if all its tests hold.
type clause struct {
	when  condition
	tests []test
	then  verdict
}

// A test compares one argument.
type test struct {
	argument uint8
	mask     uint32
	high     bool     // of its upper half; only a pointer has one
	bits     bool     // any bit of mask is set; else
	values   []uint32 // what is in mask is one of these
}

const whole = ^uint32(0)

// is tests whether an argument is one of the values.
func is(argument uint8, values ...uint32) test {
	return test{argument: argument, mask: whole, values: values}
}

// null tests, with both of what it returns, whether a pointer is NULL.
func null(argument uint8) []test {
	return []test{is(argument, 0), {argument: argument, mask: whole, high: true, values: []uint32{0}}}
}

// masked tests whether what is in mask of an argument is one of the values.
func masked(argument uint8, mask uint32, values ...uint32) test {
	return test{argument: argument, mask: mask, values: values}
}

// has tests whether an argument has any of the bits.
func has(argument uint8, bits uint32) test {
	return test{argument: argument, mask: bits, bits: true}
}

// A ruling is what the tables say about one call under some condition.
type ruling struct {
	group     *group  // whose check decides, or nil
	otherwise verdict // decides if group is nil
	source    *group  // where the ruling comes from, nil if the call is in no group
}

// resolve returns the ruling for each of numbers under c. The error names a call
// that a group has and numbers has not.
func resolve(c condition) ([]ruling, error) {
	rulings := make([]ruling, len(numbers))
	for i := range rulings {
		rulings[i].otherwise = refused
	}
	for i := range groups {
		g := &groups[i]
		for name := range strings.FieldsSeq(g.calls) {
			at, ok := slices.BinarySearchFunc(numbers, name, func(n number, name string) int { return cmp.Compare(n.name, name) })
			if !ok {
				return nil, fmt.Errorf("reading the table of system calls: group %q: no call %q", g.name, name)
			}
			r := &rulings[at]
			switch {
			case r.otherwise == allow || r.group != nil: // an earlier group allows it
			case !c.has(g.when):
				if r.source == nil || c.has(pidOne) || g.when&pidOne == 0 {
					*r = ruling{otherwise: g.otherwise, source: g}
				}
			case g.check.otherwise == 0 && len(g.check.clauses) == 0:
				*r = ruling{otherwise: allow, source: g}
			default:
				*r = ruling{group: g, source: g}
			}
		}
	}
	return rulings, nil
}
