package resolve

import (
	"os"
	"path"
	"strings"
)

// maxGlobbed bounds how many names are compared with the patterns of one word.
const maxGlobbed = 20_000

// globbed adds what [commands.named] does, for everything that a word with a
// pattern stands for now. A pattern that cannot be read is refused.
func (c *commands) globbed(w word) error {
	pattern := c.path(w)
	if !strings.HasPrefix(pattern, "/") {
		pattern = c.dir + "/" + pattern
	}
	found, seen := []string{"/"}, 0
	for part := range strings.SplitSeq(strings.Trim(pattern, "/"), "/") {
		var next []string
		for _, dir := range found {
			names, err := c.names(dir, part, &seen)
			if err != nil {
				return err
			}
			for _, n := range names {
				next = append(next, path.Join(dir, n))
			}
		}
		found = next
	}
	for _, f := range found {
		c.named([]string{f})
	}
	return nil
}

// names returns the entries of dir that one component of a pattern matches.
func (c *commands) names(dir, part string, seen *int) ([]string, error) {
	if !strings.ContainsAny(part, "*?[\\") {
		return []string{part}, nil
	}
	part = strings.ReplaceAll(part, "[!", "[^")
	if _, err := path.Match(part, ""); err != nil || strings.Contains(part, "[:") {
		return nil, bad("write the names out", "holds a pattern that cannot be read")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil //nolint:nilerr // nothing is there for the shell either
	}
	if *seen += len(entries); *seen > maxGlobbed {
		return nil, bad("write the names out", "holds a pattern that is compared with more than %d names", maxGlobbed)
	}
	var names []string
	for _, e := range entries {
		if glob(part, e.Name()) {
			names = append(names, e.Name())
		}
	}
	return names, nil
}
