package filesystem

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// A walk goes through a tree within the bounds of FS4. It follows no symbolic link
// to a directory.
type walk struct {
	ctx     context.Context
	root    *root
	top     string // relative to root
	visited int
	stopped string // why it ended early, "" if it did not
}

// each calls visit for every entry of the directory that stands at rel below top,
// in the order of names, until visit or a bound says stop. at is the path of the
// entry, relative to top, with slashes.
func (w *walk) each(rel string, depth int, visit func(at string, e fs.DirEntry)) error {
	switch {
	case w.stopped != "":
		return nil
	case w.ctx.Err() != nil:
		w.stopped = fmt.Sprintf("the time of %v was over", maxTime)
		return nil //nolint:nilerr // what was found until then is an answer, and stopped says that it is not all
	case depth > maxDepth:
		w.stopped = fmt.Sprintf("directories are nested more than %d deep", maxDepth)
		return nil
	}
	list, more, err := readDir(w.root.handle, filepath.Join(w.top, rel), maxEntries-w.visited)
	if err != nil {
		return reason(err)
	}
	for _, e := range list {
		if w.stopped != "" {
			return nil
		}
		w.visited++
		visit(path.Join(rel, e.Name()), e)
	}
	if more {
		w.stop(fmt.Sprintf("there are more than %d entries", maxEntries))
	}
	return nil
}

func (w *walk) stop(why string) {
	if w.stopped == "" {
		w.stopped = why
	}
}

func (w *walk) note() string {
	if w.stopped == "" {
		return ""
	}
	return "Cut short: " + w.stopped + ". Ask for a smaller part, or exclude some of it."
}

func (s *server) startWalk(ctx context.Context, name string) (*walk, error) {
	at, err := s.locate(name, true)
	if err != nil {
		return nil, err
	}
	return &walk{ctx: ctx, root: at.root, top: at.rel}, nil
}

type treeArgs struct {
	Path            string   `json:"path"`
	ExcludePatterns []string `json:"excludePatterns"`
}

// A node is one entry of a tree. Children is nil for files, and left out.
type node struct {
	Name     string   `json:"name"`
	Type     string   `json:"type"`
	Children *[]*node `json:"children,omitempty"`
}

func (s *server) directoryTree(ctx context.Context, in treeArgs) (*mcp.CallToolResult, error) {
	exclude, err := treeExcludes(in.ExcludePatterns)
	if err != nil {
		return nil, err
	}
	w, err := s.startWalk(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	top, n := []*node{}, 0
	var fill func(rel string, depth int, into *[]*node) error
	fill = func(rel string, depth int, into *[]*node) error {
		return w.each(rel, depth, func(at string, e fs.DirEntry) {
			if exclude.match(at) {
				return
			}
			if n++; n > maxResults {
				w.stop(fmt.Sprintf("there are more than %d entries to show", maxResults))
				return
			}
			child := &node{Name: e.Name(), Type: "file"}
			*into = append(*into, child)
			if e.IsDir() {
				child.Type, child.Children = "directory", &[]*node{}
				// A directory that cannot be read is shown empty.
				_ = fill(at, depth+1, child.Children)
			}
		})
	}
	if err := fill("", 1, &top); err != nil {
		return nil, fmt.Errorf("%s: %w", in.Path, err)
	}
	var text bytes.Buffer
	enc := json.NewEncoder(&text)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	if err := enc.Encode(top); err != nil {
		return nil, fmt.Errorf("%s: %w", in.Path, err)
	}
	return said(strings.TrimSuffix(text.String(), "\n"), w.note()), nil
}

// treeExcludes reads the patterns of directory_tree: one without an asterisk also
// excludes what is called so at any depth.
func treeExcludes(patterns []string) (globs, error) {
	var all []string
	for _, p := range patterns {
		all = append(all, p)
		if !strings.Contains(p, "*") {
			all = append(all, "**/"+p, "**/"+p+"/**")
		}
	}
	return compileAll(all)
}

type searchArgs struct {
	Path            string   `json:"path"`
	Pattern         string   `json:"pattern"`
	ExcludePatterns []string `json:"excludePatterns"`
}

func (s *server) searchFiles(ctx context.Context, in searchArgs) (*mcp.CallToolResult, error) {
	if in.Pattern == "" {
		return nil, errors.New("pattern is required")
	}
	want, err := compile(in.Pattern)
	if err != nil {
		return nil, err
	}
	exclude, err := compileAll(in.ExcludePatterns)
	if err != nil {
		return nil, err
	}
	w, err := s.startWalk(ctx, in.Path)
	if err != nil {
		return nil, err
	}
	var found []string
	var search func(rel string, depth int) error
	search = func(rel string, depth int) error {
		return w.each(rel, depth, func(at string, e fs.DirEntry) {
			if exclude.match(at) || !s.reachable(w, at, e) {
				return
			}
			if want.match(at) {
				if len(found) == maxResults {
					w.stop(fmt.Sprintf("there are more than %d matches", maxResults))
					return
				}
				found = append(found, filepath.Join(w.root.real, w.top, at))
			}
			if e.IsDir() {
				_ = search(at, depth+1) // what cannot be read has no matches
			}
		})
	}
	if err := search("", 1); err != nil {
		return nil, fmt.Errorf("searching %s: %w", in.Path, err)
	}
	text := strings.Join(found, "\n")
	if len(found) == 0 {
		text = "No matches found"
	}
	return said(text, w.note()), nil
}

// reachable reports whether e is no symbolic link, or one that leads to something
// within the allowed directories.
func (s *server) reachable(w *walk, at string, e fs.DirEntry) bool {
	if e.Type()&fs.ModeSymlink == 0 {
		return true
	}
	to, err := s.locate(filepath.Join(w.root.real, w.top, at), true)
	if err != nil {
		return false
	}
	_, err = to.root.handle.Stat(to.rel)
	return err == nil
}
