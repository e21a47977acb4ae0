// Command precision counts what package inspect finds in ordinary text: source code,
// documentation and data of the module cache, of Go and of npm packages. Nobody put a
// secret or an injection there on purpose but to test for them, so each finding counts as
// a false one, and the rates are upper bounds.
//
//	go run ./test/precision [-show KIND] [DIR…]
//
// It prints the table of docs/inspect.md. With -show it prints each finding of a kind.
package main

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/inspect"
)

// maxFile is more than texts of people have; larger files are generated.
const maxFile = 1 << 20

// A corpus is files of one sort.
type corpus struct {
	name  string
	dirs  []string
	match func(path string) bool
}

// A count is what was found in a corpus.
type count struct {
	files, bytes int
	flagged      map[string]int // files, by kind
}

func main() {
	show := flag.String("show", "", "print the findings of a `KIND`")
	flag.Parse()
	if err := run(context.Background(), *show, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(ctx context.Context, show string, more []string) error {
	all, err := corpora(ctx, more)
	if err != nil {
		return err
	}
	fmt.Println("| corpus | files | MB | " + strings.Join(kinds(), " | ") + " |")
	fmt.Println("|---|---|---" + strings.Repeat("|---", len(kinds())) + "|")
	for _, c := range all {
		n, err := c.measure(show)
		if err != nil {
			return err
		}
		if n.files == 0 {
			continue
		}
		fmt.Printf("| %s | %d | %.1f |", c.name, n.files, float64(n.bytes)/1e6)
		for _, kind := range kinds() {
			fmt.Printf(" %d (%.2f %%) |", n.flagged[kind], 100*float64(n.flagged[kind])/float64(n.files))
		}
		fmt.Println()
	}
	return nil
}

func kinds() []string {
	ks := []inspect.Kind{inspect.Token, inspect.Suspect, inspect.Injection, inspect.Private, inspect.Active, inspect.Escape, inspect.Hidden, inspect.Bidi}
	var out []string
	for _, k := range ks {
		out = append(out, string(k))
	}
	return out
}

// corpora are those of this machine, and more directories as one.
func corpora(ctx context.Context, more []string) ([]corpus, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("asking where Go is: %w", err)
	}
	dirs := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(dirs) != 2 {
		return nil, fmt.Errorf("asking where Go is: %q", out)
	}
	src, cache := filepath.Join(dirs[0], "src"), dirs[1]
	ends := func(suffixes ...string) func(string) bool {
		return func(path string) bool {
			return slices.ContainsFunc(suffixes, func(s string) bool { return strings.HasSuffix(strings.ToLower(path), s) })
		}
	}
	tests := func(path string) bool {
		return strings.HasSuffix(path, "_test.go") || strings.Contains(path, string(filepath.Separator)+"testdata"+string(filepath.Separator))
	}
	list := []corpus{
		{"Go standard library, source", []string{src}, func(p string) bool { return strings.HasSuffix(p, ".go") && !tests(p) }},
		{"Go standard library, tests and test data", []string{src}, tests},
		{"modules, source", []string{cache}, func(p string) bool { return strings.HasSuffix(p, ".go") && !tests(p) }},
		{"modules, documentation", []string{cache}, ends(".md", ".rst", ".txt")},
		{"modules, data", []string{cache}, ends(".json", ".yaml", ".yml")},
	}
	if len(more) > 0 {
		list = append(list,
			corpus{"packages, documentation", more, ends(".md")},
			corpus{"packages, source", more, ends(".js", ".mjs", ".cjs", ".ts")},
			corpus{"packages, data", more, ends(".json")})
	}
	return list, nil
}

// measure scans every file of c once.
func (c corpus) measure(show string) (count, error) {
	n := count{flagged: map[string]int{}}
	var in inspect.Inspector
	for _, dir := range c.dirs {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil || !d.Type().IsRegular() || !c.match(path) {
				return err
			}
			data, err := os.ReadFile(path)
			if err != nil || len(data) > maxFile || bytes.IndexByte(data, 0) >= 0 {
				return err
			}
			n.files++
			n.bytes += len(data)
			f := in.Scan(data)
			seen := map[string]bool{}
			for _, m := range slices.Concat(f.Matches, f.Signs) {
				kind := string(m.Kind)
				seen[kind] = true
				if kind == show {
					fmt.Printf("%s: %s %.80q\n", path, m.Name, data[m.Start:m.End])
				}
			}
			for kind := range maps.Keys(seen) {
				n.flagged[kind]++
			}
			return nil
		})
		if err != nil {
			return n, fmt.Errorf("measuring %s: %w", c.name, err)
		}
	}
	return n, nil
}
