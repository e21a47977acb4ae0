// Package linediff says how one text becomes another, by lines, as the hunks of a
// unified diff.
//
// It reads no files and knows nothing of what a terminal obeys: lines come out as
// they came in.
//
// Invariants:
//
//	D1  The hunks, applied to the old text, give the new one.
//	D2  Time and memory are bounded: beyond [maxDiff] changed lines the diff is no
//	    longer the shortest.
package linediff

import (
	"fmt"
	"slices"
	"strings"
)

// maxDiff is how many changed lines the shortest diff may have.
const maxDiff = 1000

// A run is a stretch of lines that are in both texts (both counts are equal and
// same is true), or that one text has in place of the other's.
type run struct {
	same     bool
	old, new []string
}

// Hunks returns the change from a to b as the hunks of a unified diff ("@@ …" and
// lines with a sign), with around unchanged lines around each change; "" if a is b.
func Hunks(a, b string, around int) string {
	var out strings.Builder
	for _, h := range hunks(runs(split(a), split(b)), around) {
		h.print(&out)
	}
	return out.String()
}

// split returns the lines of s, each with its line break if it has one.
func split(s string) []string {
	lines := strings.SplitAfter(s, "\n")
	if last := len(lines) - 1; lines[last] == "" {
		lines = lines[:last]
	}
	return lines
}

// runs compares two texts by lines: the common start first, then the shortest edit
// script for what follows. If that would have more than maxDiff lines, everything
// between the common start and the common end counts as replaced.
func runs(a, b []string) []run {
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	var out []run
	add := func(r run) {
		if len(r.old)+len(r.new) > 0 {
			out = append(out, r)
		}
	}
	add(run{same: true, old: a[:head], new: b[:head]})
	a, b = a[head:], b[head:]
	if script, ok := shortest(a, b); ok {
		return append(out, script...)
	}
	tail := 0
	for tail < len(a) && tail < len(b) && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	add(run{old: a[:len(a)-tail], new: b[:len(b)-tail]})
	add(run{same: true, old: a[len(a)-tail:], new: b[len(b)-tail:]})
	return out
}

// shortest is the greedy algorithm of E. Myers, "An O(ND) Difference Algorithm and
// Its Variations", Algorithmica 1 (1986), with the frontier of every step kept so
// that the path can be read back. It gives up beyond maxDiff steps.
func shortest(a, b []string) ([]run, bool) {
	limit := min(len(a)+len(b), maxDiff)
	v := make([]int, 2*limit+3) // v[k+limit+1] is the furthest x on diagonal k
	off := limit + 1
	var trace [][]int
	for d := 0; d <= limit; d++ {
		trace = append(trace, append([]int(nil), v[off-d-1:off+d+2]...))
		for k := -d; k <= d; k += 2 {
			x := v[off+k-1] + 1
			if k == -d || k != d && v[off+k-1] < v[off+k+1] {
				x = v[off+k+1]
			}
			for x < len(a) && x-k < len(b) && a[x] == b[x-k] {
				x++
			}
			v[off+k] = x
			if x >= len(a) && x-k >= len(b) {
				return readBack(a, b, trace), true
			}
		}
	}
	return nil, false
}

// readBack turns the frontiers of shortest into runs, from the end to the start.
func readBack(a, b []string, trace [][]int) []run {
	var rev []run
	x, y := len(a), len(b)
	for d, far := range slices.Backward(trace) {
		v := func(k int) int { return far[k+d+1] }
		k := x - y
		prev := k - 1
		if k == -d || k != d && v(k-1) < v(k+1) {
			prev = k + 1
		}
		px := v(prev)
		py := px - prev
		if d == 0 {
			px, py = 0, 0
		}
		n := min(x-px, y-py)
		if n > 0 {
			rev = append(rev, run{same: true, old: a[x-n : x], new: b[y-n : y]})
			x, y = x-n, y-n
		}
		if d > 0 {
			rev = append(rev, run{old: a[px:x], new: b[py:y]})
			x, y = px, py
		}
	}
	return join(rev)
}

// join reverses runs and makes neighbours that are not the same one run.
func join(rev []run) []run {
	var out []run
	for _, r := range slices.Backward(rev) {
		if n := len(out); n > 0 && !r.same && !out[n-1].same {
			last := &out[n-1]
			last.old = append(slices.Clip(last.old), r.old...)
			last.new = append(slices.Clip(last.new), r.new...)
			continue
		}
		out = append(out, r)
	}
	return out
}

// A hunk is a change with its surroundings. Starts count from 0.
type hunk struct {
	oldStart, newStart int
	oldLines, newLines int
	lines              []string // with their sign
}

func (h *hunk) add(sign string, lines []string) {
	for _, l := range lines {
		h.lines = append(h.lines, sign+l)
	}
	if sign != "+" {
		h.oldLines += len(lines)
	}
	if sign != "-" {
		h.newLines += len(lines)
	}
}

// hunks gathers changes that are at most twice the context apart.
func hunks(rs []run, around int) []hunk {
	var out []hunk
	var h *hunk
	x, y := 0, 0
	for i, r := range rs {
		switch {
		case !r.same:
			if h == nil {
				h = &hunk{oldStart: x, newStart: y}
			}
			h.add("-", r.old)
			h.add("+", r.new)
		case h != nil && i < len(rs)-1 && len(r.old) <= 2*around:
			h.add(" ", r.old)
		default:
			if h != nil {
				h.add(" ", r.old[:min(around, len(r.old))])
				out = append(out, *h)
				h = nil
			}
			if i < len(rs)-1 {
				lead := r.old[max(0, len(r.old)-around):]
				h = &hunk{oldStart: x + len(r.old) - len(lead), newStart: y + len(r.new) - len(lead)}
				h.add(" ", lead)
			}
		}
		x, y = x+len(r.old), y+len(r.new)
	}
	if h != nil {
		out = append(out, *h)
	}
	return out
}

func (h hunk) print(out *strings.Builder) {
	// Lines count from 1; a side without lines is placed after the line before it.
	if h.oldLines > 0 {
		h.oldStart++
	}
	if h.newLines > 0 {
		h.newStart++
	}
	fmt.Fprintf(out, "@@ -%d,%d +%d,%d @@\n", h.oldStart, h.oldLines, h.newStart, h.newLines)
	for _, l := range h.lines {
		out.WriteString(l)
		if !strings.HasSuffix(l, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
}
