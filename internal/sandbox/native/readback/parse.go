package readback

import (
	"fmt"
	"strconv"
	"strings"
)

// A status is /proc/<pid>/status by key.
type status map[string]string

// parseStatus reads proc_pid_status(5) into the members of Facts that it has.
func parseStatus(text string) (Facts, error) {
	s := status{}
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(line, ":")
		value, whole := strings.CutSuffix(value, "\n")
		if !ok || !whole || key == "" {
			return Facts{}, fmt.Errorf("status: line %q", line)
		}
		if _, twice := s[key]; twice {
			return Facts{}, fmt.Errorf("status: %s stands twice", key)
		}
		s[key] = strings.TrimPrefix(value, "\t")
	}
	f := Facts{Name: s["Name"], SeccompFilters: -1}
	state, _, _ := strings.Cut(s["State"], " ")
	if len(state) != 1 {
		return Facts{}, fmt.Errorf("status: state %q", s["State"])
	}
	f.State = state[0]
	for _, read := range []func(*Facts) error{s.numbers, s.caps, s.ids} {
		if err := read(&f); err != nil {
			return Facts{}, err
		}
	}
	return f, nil
}

func (s status) numbers(f *Facts) error {
	var nnp, dumping int
	for _, n := range []struct {
		key      string
		to       *int
		max      int
		optional bool
	}{
		{"Pid", &f.PID, 1 << 30, false},
		{"Threads", &f.Threads, 1 << 30, false},
		{"NoNewPrivs", &nnp, 1, false},
		{"Seccomp", &f.Seccomp, SeccompFilter, false},
		{"Seccomp_filters", &f.SeccompFilters, 1 << 30, true},
		{"CoreDumping", &dumping, 1, true},
	} {
		text, ok := s[n.key]
		if !ok && n.optional {
			continue
		}
		v, err := number(text, 32)
		if err != nil || v > uint64(n.max) {
			return fmt.Errorf("status: %s is %q", n.key, text)
		}
		*n.to = int(v)
	}
	f.NoNewPrivs, f.CoreDumping = nnp == 1, dumping == 1
	return nil
}

func (s status) caps(f *Facts) error {
	c := &f.Caps
	for key, to := range map[string]*uint64{
		"CapInh": &c.Inheritable, "CapPrm": &c.Permitted, "CapEff": &c.Effective, "CapBnd": &c.Bounding, "CapAmb": &c.Ambient,
	} {
		v, err := strconv.ParseUint(s[key], 16, 64)
		if err != nil || len(s[key]) != 16 {
			return fmt.Errorf("status: %s is %q", key, s[key])
		}
		*to = v
	}
	return nil
}

func (s status) ids(f *Facts) error {
	for key, to := range map[string]*[4]uint32{"Uid": &f.UID, "Gid": &f.GID} {
		words := strings.Split(s[key], "\t")
		if len(words) != len(to) {
			return fmt.Errorf("status: %s is %q", key, s[key])
		}
		for i, w := range words {
			v, err := number(w, 32)
			if err != nil {
				return fmt.Errorf("status: %s is %q", key, s[key])
			}
			to[i] = uint32(v)
		}
	}
	groups, ok := s["Groups"]
	if !ok {
		return fmt.Errorf("status: no Groups")
	}
	for w := range strings.FieldsSeq(groups) {
		v, err := number(w, 32)
		if err != nil {
			return fmt.Errorf("status: Groups is %q", groups)
		}
		f.Groups = append(f.Groups, uint32(v))
	}
	for w := range strings.SplitSeq(s["NSpid"], "\t") {
		v, err := number(w, 31)
		if err != nil {
			return fmt.Errorf("status: NSpid is %q", s["NSpid"])
		}
		f.NSpid = append(f.NSpid, int(v))
	}
	return nil
}

// number reads a decimal number as the kernel prints it: digits only, no sign.
func number(s string, bits int) (uint64, error) {
	if s == "" || s[0] == '+' || len(s) > 1 && s[0] == '0' {
		return 0, fmt.Errorf("number %q", s)
	}
	return strconv.ParseUint(s, 10, bits)
}

// nameColumn is the width of the first column of /proc/<pid>/limits
// (fs/proc/base.c, proc_pid_limits: "%-25s %-20s %-20s %-10s").
const nameColumn = 26

// parseLimits reads /proc/<pid>/limits, proc_pid_limits(5).
func parseLimits(text string) (map[string]Limit, error) {
	if text == "" { // what the kernel writes of a process that was reaped meanwhile
		return nil, ErrGone
	}
	limits := map[string]Limit{}
	header := true
	for line := range strings.Lines(text) {
		if header {
			header = false
			if strings.Join(strings.Fields(line), " ") != "Limit Soft Limit Hard Limit Units" {
				return nil, fmt.Errorf("limits: header %q", line)
			}
			continue
		}
		if len(line) <= nameColumn || !strings.HasSuffix(line, "\n") {
			return nil, fmt.Errorf("limits: line %q", line)
		}
		name, words := strings.TrimRight(line[:nameColumn], " "), strings.Fields(line[nameColumn:])
		if _, twice := limits[name]; twice || name == "" || len(words) < 2 || len(words) > 3 {
			return nil, fmt.Errorf("limits: line %q", line)
		}
		soft, err := bound(words[0])
		if err != nil {
			return nil, fmt.Errorf("limits: line %q", line)
		}
		hard, err := bound(words[1])
		if err != nil {
			return nil, fmt.Errorf("limits: line %q", line)
		}
		limits[name] = Limit{Soft: soft, Hard: hard, Unit: strings.Join(words[2:], "")}
	}
	if len(limits) == 0 {
		return nil, fmt.Errorf("limits: there are none")
	}
	return limits, nil
}

func bound(s string) (uint64, error) {
	if s == "unlimited" {
		return Unlimited, nil
	}
	return number(s, 64)
}

// parseCgroups reads /proc/<pid>/cgroup, cgroups(7).
func parseCgroups(text string) ([]Cgroup, error) {
	var all []Cgroup
	for line := range strings.Lines(text) {
		body, whole := strings.CutSuffix(line, "\n")
		words := strings.SplitN(body, ":", 3)
		if !whole || len(words) != 3 || !strings.HasPrefix(words[2], "/") {
			return nil, fmt.Errorf("cgroup: line %q", line)
		}
		id, err := number(words[0], 31)
		if err != nil || (id == 0) != (words[1] == "") {
			return nil, fmt.Errorf("cgroup: line %q", line)
		}
		c := Cgroup{Hierarchy: int(id), Path: words[2]}
		if id != 0 {
			c.Controllers = strings.Split(words[1], ",")
		}
		all = append(all, c)
	}
	return all, nil
}

// parseMounts reads /proc/<pid>/mountinfo, proc_pid_mountinfo(5).
func parseMounts(text string) ([]Mount, error) {
	var all []Mount
	for line := range strings.Lines(text) {
		m, ok := parseMount(line)
		if !ok {
			return nil, fmt.Errorf("mountinfo: line %q", line)
		}
		all = append(all, m)
	}
	return all, nil
}

func parseMount(line string) (Mount, bool) {
	body, whole := strings.CutSuffix(line, "\n")
	before, after, ok := strings.Cut(body, " - ")
	left, right := strings.Split(before, " "), strings.Split(after, " ")
	if !whole || !ok || len(left) < 6 || len(right) != 3 {
		return Mount{}, false
	}
	id, err1 := number(left[0], 31)
	parent, err2 := number(left[1], 31)
	root, ok1 := unescape(left[3])
	point, ok2 := unescape(left[4])
	kind, ok3 := unescape(right[0])
	source, ok4 := unescape(right[1])
	if err1 != nil || err2 != nil || !ok1 || !ok2 || !ok3 || !ok4 || !strings.HasPrefix(point, "/") {
		return Mount{}, false
	}
	return Mount{
		ID: int(id), Parent: int(parent), Device: left[2], Root: root, Point: point,
		Options: strings.Split(left[5], ","), Optional: left[6:],
		Type: kind, Source: source, Super: strings.Split(right[2], ","),
	}, true
}

// unescape undoes what the kernel does to space, tab, newline, backslash and "#" in
// a field: a backslash and three octal digits (fs/proc_namespace.c, mangle).
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '\\') < 0 {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' {
			b.WriteByte(s[i])
			continue
		}
		if i+3 >= len(s) {
			return "", false
		}
		v, err := strconv.ParseUint(s[i+1:i+4], 8, 8)
		if err != nil {
			return "", false
		}
		b.WriteByte(byte(v))
		i += 3
	}
	return b.String(), true
}

// parseLink reads where a link under /proc/<pid>/ns leads: "mnt:[4026531841]".
func parseLink(s string) (uint64, error) {
	_, rest, ok := strings.Cut(s, ":[")
	digits, whole := strings.CutSuffix(rest, "]")
	v, err := number(digits, 64)
	if !ok || !whole || err != nil || v == 0 {
		return 0, fmt.Errorf("namespace %q", s)
	}
	return v, nil
}
