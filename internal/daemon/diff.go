package daemon

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"unicode/utf8"

	"ringfence/internal/desk"
)

// maxDiffLines bounds the lines of two definitions that are compared, behind what
// both begin with; of longer ones the old is shown and then the new. 2,000 lines
// take 4 million comparisons at most.
const maxDiffLines = 2000

// diffWidth is how much of a line stands on one row. Nothing of it is left out:
// what a person approves they must have been able to read.
const diffWidth = 400

// difference shows what changed between two definitions, line by line of their
// indented form, with every invisible character made visible. An empty old one
// shows the new one whole.
func difference(old, now string) string {
	a, b := indented(old), indented(now)
	var out strings.Builder
	for _, l := range diff(a, b) {
		mark := l[:2]
		for _, row := range rows(l[2:]) {
			out.WriteString(mark + desk.Visible(row, 16*diffWidth) + "\n") // no character takes more
			mark = mark[:1] + "…"
		}
	}
	return out.String()
}

// rows cuts line into pieces of about diffWidth bytes, between characters.
func rows(line string) []string {
	var out []string
	for len(line) > diffWidth {
		n := diffWidth
		for n > diffWidth-utf8.UTFMax && !utf8.RuneStart(line[n]) {
			n--
		}
		out = append(out, line[:n])
		line = line[n:]
	}
	return append(out, line)
}

func indented(def string) []string {
	if def == "" {
		return nil
	}
	var buf bytes.Buffer
	if json.Indent(&buf, []byte(def), "", "  ") != nil {
		buf.Reset()
		buf.WriteString(def)
	}
	return strings.Split(buf.String(), "\n")
}

// diff is a longest common subsequence of lines: "  " kept, "- " old, "+ " new.
func diff(a, b []string) []string {
	var out []string
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		out = append(out, "  "+a[0])
		a, b = a[1:], b[1:]
	}
	if max(len(a), len(b)) > maxDiffLines {
		return append(append(out, marked("- ", a)...), marked("+ ", b)...)
	}
	return append(out, compared(a, b)...)
}

func marked(mark string, lines []string) []string {
	out := make([]string, len(lines))
	for i, l := range lines {
		out[i] = mark + l
	}
	return out
}

func compared(a, b []string) []string {
	w := len(b) + 1
	common := make([]int32, (len(a)+1)*w)
	for i, old := range slices.Backward(a) {
		for j, now := range slices.Backward(b) {
			if old == now {
				common[i*w+j] = common[(i+1)*w+j+1] + 1
			} else {
				common[i*w+j] = max(common[(i+1)*w+j], common[i*w+j+1])
			}
		}
	}
	var out []string
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, "  "+a[i])
			i, j = i+1, j+1
		case i < len(a) && (j == len(b) || common[(i+1)*w+j] >= common[i*w+j+1]):
			out = append(out, "- "+a[i])
			i++
		default:
			out = append(out, "+ "+b[j])
			j++
		}
	}
	return out
}
