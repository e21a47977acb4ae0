// Command house writes what the documents say about the shape of the tree, from
// the files that define it: the drawing in ARCHITECTURE.md, the tables of
// docs/reference, and the packages that the binary links. It takes the root of
// the tree, and writes the same bytes for the same tree.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: house ROOT")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(1)
	}
}

func run(root string) error {
	layers, err := readTable(filepath.Join(root, "layers.txt"))
	if err != nil {
		return err
	}
	owners, err := readTable(filepath.Join(root, "owners.txt"))
	if err != nil {
		return err
	}
	rules, err := readTable(filepath.Join(root, "rules.txt"))
	if err != nil {
		return err
	}
	synopses, err := readSynopses(root)
	if err != nil {
		return err
	}
	linked, err := readLinked(root)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(root, "docs/reference"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"docs/reference/packages.md": packagesPage(layers, synopses),
		"docs/reference/owners.md":   ownersPage(owners),
		"docs/reference/rules.md":    rulesPage(rules),
		"cmd/ringfence/deps.txt":     linked,
	} {
		if err := write(filepath.Join(root, name), []byte(text)); err != nil {
			return err
		}
	}
	if err := between(filepath.Join(root, "ARCHITECTURE.md"), "layers", drawing(layers)); err != nil {
		return err
	}
	decisions, err := decisionsTable(filepath.Join(root, "docs/decisions"))
	if err != nil {
		return err
	}
	return between(filepath.Join(root, "docs/decisions/README.md"), "decisions", decisions)
}

// between replaces what stands in the file between the markers of name.
func between(file, name, text string) error {
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	start, end := "<!-- begin "+name+" -->\n", "<!-- end "+name+" -->\n"
	before, rest, ok := strings.Cut(string(b), start)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: no lines %q and %q", file, strings.TrimSpace(start), strings.TrimSpace(end))
	}
	return write(file, []byte(before+start+text+end+after))
}

// write leaves a file alone that is already as it should be.
func write(name string, data []byte) error {
	if old, err := os.ReadFile(name); err == nil && bytes.Equal(old, data) {
		return nil
	}
	return os.WriteFile(name, data, 0o644)
}
