package corpus

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A block is one case of the files in cases/; B.txt describes their form.
type block struct {
	file, title  string
	line         int
	constitution []string
	cedar        string
	steps        []step
}

// A step is one line of a case: an operation on the machine ("$ …"), a call, or
// what must come of the call before it.
type step struct {
	line int
	kind string // "$", "call", "=", "dispatch", "ids", "result", "labels"
	text string
	body string // indented lines that follow
}

func readCases(t *testing.T) []block {
	t.Helper()
	names, err := filepath.Glob("cases/*.txt")
	if err != nil || len(names) == 0 {
		t.Fatalf("finding cases: %v, %d files", err, len(names))
	}
	var all []block
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		blocks, err := parseCases(filepath.Base(name), string(data))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, blocks...)
	}
	return all
}

func parseCases(file, text string) ([]block, error) {
	var all []block
	for i, line := range strings.Split(text, "\n") {
		at := i + 1
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if title, ok := strings.CutPrefix(line, "== "); ok {
			all = append(all, block{file: file, title: title, line: at})
			continue
		}
		if len(all) == 0 {
			return nil, fmt.Errorf("%s:%d: a case starts with ==", file, at)
		}
		if err := all[len(all)-1].add(at, line); err != nil {
			return nil, fmt.Errorf("%s:%d: %w", file, at, err)
		}
	}
	return all, nil
}

func (b *block) add(at int, line string) error {
	if body, ok := strings.CutPrefix(line, "  "); ok {
		if len(b.steps) == 0 {
			return fmt.Errorf("an indented line that follows nothing")
		}
		last := &b.steps[len(b.steps)-1]
		last.body += body + "\n"
		if last.kind == "$" && last.text == "cedar" {
			b.cedar = last.body
		}
		return nil
	}
	kind, text, _ := strings.Cut(line, " ")
	switch kind {
	case ">":
		b.constitution = append(b.constitution, text)
	case "$", "call", "=", "dispatch", "ids", "result", "labels":
		b.steps = append(b.steps, step{line: at, kind: kind, text: text})
	default:
		return fmt.Errorf("%q starts no line of a case", kind)
	}
	return nil
}
