package daemon

import (
	"bytes"
	"encoding/json"
	"strings"

	"ringfence/internal/desk"
)

// maxDiffLines bounds the lines of a definition that are compared; the rest is
// shown as cut. 2,000 lines take 4 million comparisons at most.
const maxDiffLines = 2000

// maxDiffWidth is how many bytes of a line are shown.
const maxDiffWidth = 400

// difference shows what changed between two definitions, line by line of their
// indented form, with every invisible character made visible. An empty old one
// shows the new one whole.
func difference(old, now string) string {
	a, b := indented(old), indented(now)
	var out strings.Builder
	for _, l := range diff(a, b) {
		out.WriteString(l[:2])
		out.WriteString(desk.Visible(l[2:], maxDiffWidth))
		out.WriteByte('\n')
	}
	return out.String()
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
	lines := strings.Split(buf.String(), "\n")
	if len(lines) > maxDiffLines {
		lines = append(lines[:maxDiffLines], "… cut")
	}
	return lines
}

// diff is a longest common subsequence of lines: "  " kept, "- " old, "+ " new.
func diff(a, b []string) []string {
	w := len(b) + 1
	common := make([]int32, (len(a)+1)*w)
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
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
