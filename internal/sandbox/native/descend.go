package native

// A task is one process of the machine, as far as it matters whose it is. Its number
// and the time of its start name it for good.
type task struct {
	pid, parent, group, session int
	started                     int64
	zombie                      bool
}

// key is t reduced to what names the process.
func (t task) key() task { return task{pid: t.pid, started: t.started} }

// descend returns those of all that are root, descend from it or from one in known, or
// share its group or its session. known has keys. Neither process 1 nor self is one.
func descend(all []task, root, self int, known map[task]bool) []task {
	in := map[int]bool{root: true}
	for _, t := range all {
		if known[t.key()] {
			in[t.pid] = true
		}
	}
	delete(in, 1)
	delete(in, self)
	for grew := true; grew; {
		grew = false
		for _, t := range all {
			if t.pid <= 1 || t.pid == self || in[t.pid] {
				continue
			}
			if in[t.parent] || t.group == root || t.session == root {
				in[t.pid], grew = true, true
			}
		}
	}
	var out []task
	for _, t := range all {
		if in[t.pid] {
			out = append(out, t)
		}
	}
	return out
}
