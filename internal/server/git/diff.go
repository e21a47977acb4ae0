package git

import (
	"context"
	"fmt"
	"path"
	"strconv"
	"strings"
)

type diffArgs struct {
	Path             string   `json:"path"`
	Target           string   `json:"target"`
	Source           string   `json:"source"`
	Paths            []string `json:"paths"`
	Staged           bool     `json:"staged"`
	IncludeUntracked bool     `json:"includeUntracked"`
	NameOnly         bool     `json:"nameOnly"`
	Stat             bool     `json:"stat"`
	ContextLines     *int     `json:"contextLines"`
	AutoExclude      *bool    `json:"autoExclude"`
}

type diffResult struct {
	Success    bool     `json:"success"`
	Diff       string   `json:"diff"`
	Files      int      `json:"filesChanged"`
	Insertions *int     `json:"insertions,omitempty"`
	Deletions  *int     `json:"deletions,omitempty"`
	Excluded   []string `json:"excludedFiles,omitempty"`
}

// generated are the files that autoExclude leaves out, wherever they are.
var generated = map[string]bool{
	"package-lock.json": true, "npm-shrinkwrap.json": true, "yarn.lock": true, "pnpm-lock.yaml": true, "bun.lock": true, "bun.lockb": true,
	"poetry.lock": true, "uv.lock": true, "Pipfile.lock": true, "pdm.lock": true, "go.sum": true, "Cargo.lock": true,
	"Gemfile.lock": true, "composer.lock": true, "mix.lock": true, "flake.lock": true, "Podfile.lock": true, "packages.lock.json": true,
}

func (s *server) diff(ctx context.Context, in diffArgs) (diffResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return diffResult{}, err
	}
	what, err := in.what()
	if err != nil {
		return diffResult{}, err
	}
	specs, err := r.pathspecs("paths", in.Paths)
	if err != nil {
		return diffResult{}, err
	}
	out := diffResult{Success: true}
	files, err := r.counted(ctx, what, specs)
	if err != nil {
		return out, err
	}
	if in.AutoExclude == nil || *in.AutoExclude {
		for name := range files {
			if generated[path.Base(name)] {
				out.Excluded = append(out.Excluded, name)
				delete(files, name)
			}
		}
		if len(out.Excluded) > 0 {
			specs = exclude(specs, out.Excluded)
		}
	}
	form, err := in.form()
	if err != nil {
		return out, err
	}
	args := append(append([]string{"diff"}, plainDiff...), form...)
	if out.Diff, err = r.content(ctx, append(append(args, what...), specs...)...); err != nil {
		return out, err
	}
	if in.IncludeUntracked && in.Source == "" && !in.Staged {
		if err := r.untracked(ctx, &out, files, in.Paths, form); err != nil {
			return out, err
		}
	}
	out.count(files, in.NameOnly)
	return out, nil
}

// what returns the options and revisions that say what is compared.
func (in diffArgs) what() ([]string, error) {
	var args []string
	for _, rev := range []struct{ name, value string }{{"source", in.Source}, {"target", in.Target}} {
		if err := option(rev.name, rev.value); err != nil {
			return nil, err
		}
		if rev.value != "" {
			args = append(args, rev.value)
		}
	}
	return append(when(in.Staged, "--cached"), append([]string{"--end-of-options"}, args...)...), nil
}

// form returns the options that say how it is shown.
func (in diffArgs) form() ([]string, error) {
	lines, err := between("contextLines", in.ContextLines, 3, 0, 100)
	switch {
	case err != nil:
		return nil, err
	case in.NameOnly:
		return []string{"--name-only"}, nil
	case in.Stat:
		return []string{"--stat"}, nil
	}
	return []string{fmt.Sprintf("--unified=%d", lines)}, nil
}

// exclude adds files to specs that are left out. An exclusion alone would be
// relative to nothing.
func exclude(specs, files []string) []string {
	if len(specs) == 1 {
		specs = append(specs, ":(top)")
	}
	for _, f := range files {
		specs = append(specs, ":(top,exclude,literal)"+f)
	}
	return specs
}

// counted returns the lines added and deleted in each file, -1 for binary ones.
func (r *repo) counted(ctx context.Context, what, specs []string) (map[string][2]int, error) {
	args := append([]string{"diff"}, plainDiff...)
	args = append(append(args, "--numstat", "-z"), what...)
	items, err := r.list(ctx, append(args, specs...)...)
	if err != nil {
		return nil, err
	}
	return parseNumstat(items), nil
}

// parseNumstat reads git-diff(1), "OTHER DIFF FORMATS", --numstat -z: a renamed file
// has an empty path, and its old and new path follow.
func parseNumstat(items []string) map[string][2]int {
	files := map[string][2]int{}
	for i := 0; i < len(items); i++ {
		f := strings.SplitN(items[i], "\t", 3)
		if len(f) != 3 {
			continue
		}
		name := f[2]
		if name == "" && i+2 < len(items) {
			name = items[i+2]
			i += 2
		}
		n := [2]int{-1, -1}
		if a, err := strconv.Atoi(f[0]); err == nil {
			n[0] = a
		}
		if d, err := strconv.Atoi(f[1]); err == nil {
			n[1] = d
		}
		files[name] = n
	}
	return files
}

func (d *diffResult) count(files map[string][2]int, namesOnly bool) {
	d.Files = len(files)
	if namesOnly {
		return
	}
	var add, del int
	for _, n := range files {
		add, del = add+max(0, n[0]), del+max(0, n[1])
	}
	d.Insertions, d.Deletions = &add, &del
}

// maxUntracked is how many untracked files a diff shows.
const maxUntracked = 200

// untracked appends the untracked files as if they were added.
func (r *repo) untracked(ctx context.Context, out *diffResult, files map[string][2]int, paths, form []string) error {
	specs, err := r.pathspecs("paths", paths)
	if err != nil {
		return err
	}
	names, err := r.list(ctx, append([]string{"ls-files", "--others", "--exclude-standard", "-z"}, specs...)...)
	if err != nil {
		return err
	}
	for i, name := range names {
		if i == maxUntracked || len(out.Diff) > maxContent {
			out.Diff += fmt.Sprintf("[cut short: %d untracked files are not shown]\n", len(names)-i)
			break
		}
		args := append(append([]string{"diff", "--no-index"}, plainDiff...), form...)
		res, err := r.exec(ctx, reads, "", append(args, "--", devNull, name)...)
		if err != nil {
			return fmt.Errorf("running git diff: %w", err)
		}
		if res.Code > 1 { // 1 says that they differ
			return &failure{"diff", res}
		}
		text := bounded(res)
		out.Diff += text
		added := 0
		for l := range strings.Lines(text) {
			if strings.HasPrefix(l, "+") && !strings.HasPrefix(l, "+++ ") {
				added++
			}
		}
		files[name] = [2]int{added, 0}
	}
	return nil
}
