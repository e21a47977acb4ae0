package git

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
)

// plainDiff are the options of every command that can print a diff.
var plainDiff = []string{"--no-ext-diff", "--no-textconv", "--no-color", noSubmodules}

type logArgs struct {
	Path          string `json:"path"`
	MaxCount      *int   `json:"maxCount"`
	Skip          *int   `json:"skip"`
	Since         string `json:"since"`
	Until         string `json:"until"`
	Author        string `json:"author"`
	Grep          string `json:"grep"`
	Branch        string `json:"branch"`
	FilePath      string `json:"filePath"`
	Oneline       bool   `json:"oneline"`
	Stat          bool   `json:"stat"`
	Patch         bool   `json:"patch"`
	ShowSignature bool   `json:"showSignature"`
}

type commitEntry struct {
	Hash      string   `json:"hash"`
	ShortHash string   `json:"shortHash"`
	Author    string   `json:"author,omitempty"`
	Email     string   `json:"authorEmail,omitempty"`
	Time      int64    `json:"timestamp,omitempty"`
	Subject   string   `json:"subject"`
	Parents   []string `json:"parents,omitempty"`
	Body      string   `json:"body,omitempty"`
	Refs      []string `json:"refs,omitempty"`
	Stat      string   `json:"stat,omitempty"`
	Patch     string   `json:"patch,omitempty"`
}

type logResult struct {
	Success bool          `json:"success"`
	Commits []commitEntry `json:"commits"`
	Total   int           `json:"totalCount"`
	Note    string        `json:"note,omitempty"`
}

// fields are what is asked of git for each commit, ended by NULs. What git appends
// (stat, patch) follows the last.
var fields = []string{"%H", "%h", "%an", "%ae", "%at", "%s", "%P", "%D", "%b"}

func (s *server) log(ctx context.Context, in logArgs) (logResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return logResult{}, err
	}
	args, filters, err := in.options()
	if err != nil {
		return logResult{}, err
	}
	if args, err = r.selectCommits(args, in.Branch, in.FilePath); err != nil {
		return logResult{}, err
	}
	commits, cut, err := r.commits(ctx, args)
	if err != nil {
		return logResult{}, err
	}
	out := logResult{Success: true, Commits: commits, Total: len(commits)}
	for i := range commits {
		c := &commits[i]
		if !in.Patch {
			c.Stat, c.Patch = c.Patch, ""
		} else if in.Stat {
			c.Stat, c.Patch = splitStat(c.Patch)
		}
		if in.Oneline {
			*c = commitEntry{Hash: c.Hash, ShortHash: c.ShortHash, Subject: c.Subject, Stat: c.Stat, Patch: c.Patch}
		}
	}
	switch {
	case cut:
		out.Note = "Cut short: the commits do not fit into one answer. Ask for fewer, or without patches."
	case len(commits) == 0 && len(filters) > 0:
		out.Note = "No commits matched the applied filters (" + strings.Join(filters, ", ") + ")."
	case in.ShowSignature:
		out.Note = "Signatures are not verified here."
	}
	return out, nil
}

// options returns the options of git log that in asks for, and its filters as text.
func (in logArgs) options() (args, filters []string, err error) {
	count, err := between("maxCount", in.MaxCount, 10, 1, 1000)
	if err != nil {
		return nil, nil, err
	}
	skip, err := between("skip", in.Skip, 0, 0, 1<<30)
	if err != nil {
		return nil, nil, err
	}
	args = []string{fmt.Sprintf("--max-count=%d", count), fmt.Sprintf("--skip=%d", skip)}
	for _, f := range []struct{ name, value string }{
		{"since", in.Since}, {"until", in.Until}, {"author", in.Author}, {"grep", in.Grep},
	} {
		if f.value == "" {
			continue
		}
		if len(f.value) > 2048 || strings.ContainsFunc(f.value, control) {
			return nil, nil, fmt.Errorf("%s is too long or holds control characters", f.name)
		}
		args = append(args, "--"+f.name+"="+f.value)
		filters = append(filters, f.name+"="+f.value)
	}
	if in.Stat {
		args = append(args, "--stat")
	}
	if in.Patch {
		args = append(args, "--patch")
	}
	return args, filters, nil
}

// selectCommits appends a revision and a file, if they are given.
func (r *repo) selectCommits(args []string, branch, file string) ([]string, error) {
	if err := option("branch", branch); err != nil {
		return nil, err
	}
	args = append(args, "--end-of-options")
	if branch != "" {
		args = append(args, branch)
	}
	if file == "" {
		return append(args, "--"), nil
	}
	specs, err := r.pathspecs("filePath", []string{file})
	return append(args, specs...), err
}

// commits runs git log. Commits are told apart by a mark that no commit can hold,
// because it is made up anew each time. cut says that the last ones are missing.
func (r *repo) commits(ctx context.Context, args []string) (all []commitEntry, cut bool, err error) {
	mark := "\x1e" + rand.Text()
	log := append([]string{"log", "--format=" + mark + strings.Join(fields, "%x00") + "%x00", "--no-notes"}, plainDiff...)
	res, err := r.exec(ctx, reads, "", append(log, args...)...)
	if err != nil {
		return nil, false, fmt.Errorf("running git log: %w", err)
	}
	if res.Code != 0 {
		if empty, e := r.commitID(ctx, "HEAD"); e == nil && empty == "" {
			return []commitEntry{}, false, nil
		}
		return nil, false, &failure{"log", res}
	}
	all = []commitEntry{}
	records := strings.Split(strings.ToValidUTF8(string(res.Stdout), "\uFFFD"), mark)[1:]
	if res.Truncated {
		records = records[:len(records)-1]
	}
	size := 0
	for _, rec := range records {
		if size += len(rec); size > maxContent {
			return all, true, nil
		}
		f := strings.SplitN(rec, "\x00", len(fields)+1)
		if len(f) != len(fields)+1 {
			return nil, false, fmt.Errorf("running git log: unexpected output %q", rec)
		}
		c := commitEntry{Hash: f[0], ShortHash: f[1], Author: f[2], Email: f[3], Subject: f[5], Parents: strings.Fields(f[6]), Body: f[8]}
		c.Time, _ = strconv.ParseInt(f[4], 10, 64) // git prints a number here, or nothing
		if f[7] != "" {
			c.Refs = strings.Split(f[7], ", ")
		}
		c.Patch = strings.Trim(f[9], "\n")
		all = append(all, c)
	}
	return all, res.Truncated, nil
}

// splitStat divides what git prints for --stat --patch.
func splitStat(s string) (stat, patch string) {
	stat, patch, ok := strings.Cut(s, "\n\ndiff --git ")
	if !ok {
		return s, ""
	}
	return stat, "diff --git " + patch
}

type showArgs struct {
	Path     string `json:"path"`
	Object   string `json:"object"`
	Format   string `json:"format"`
	Stat     bool   `json:"stat"`
	FilePath string `json:"filePath"`
}

type showResult struct {
	Success  bool              `json:"success"`
	Object   string            `json:"object"`
	Type     string            `json:"type"`
	Content  string            `json:"content"`
	Metadata map[string]string `json:"metadata"`
}

func (s *server) show(ctx context.Context, in showArgs) (showResult, error) {
	out := showResult{Success: true, Object: in.Object, Metadata: map[string]string{}}
	r, err := s.open(ctx, in.Path)
	if err == nil {
		err = word("object", in.Object)
	}
	if err == nil {
		_, err = oneOf("format", in.Format, "", "raw")
	}
	if err != nil {
		return out, err
	}
	hash, err := r.line(ctx, "rev-parse", "--verify", "--end-of-options", in.Object)
	if err != nil {
		return out, err
	}
	if out.Type, err = r.line(ctx, "cat-file", "-t", hash); err != nil {
		return out, err
	}
	if in.FilePath != "" {
		rel, err := r.relative("filePath", in.FilePath)
		if err != nil {
			return out, err
		}
		out.Content, err = r.content(ctx, "cat-file", "blob", hash+":"+rel)
		return out, err
	}
	args := append([]string{"show", "--no-notes"}, plainDiff...)
	args = append(args, when(in.Stat, "--stat")...)
	args = append(args, when(in.Format == "raw", "--format=raw")...)
	out.Content, err = r.content(ctx, append(args, "--end-of-options", in.Object, "--")...)
	return out, err
}

type blameArgs struct {
	Path             string `json:"path"`
	FilePath         string `json:"filePath"`
	StartLine        *int   `json:"startLine"`
	EndLine          *int   `json:"endLine"`
	IgnoreWhitespace bool   `json:"ignoreWhitespace"`
}

type blameLine struct {
	Number  int    `json:"lineNumber"`
	Hash    string `json:"commitHash"`
	Author  string `json:"author"`
	Time    int64  `json:"timestamp"`
	Content string `json:"content"`
}

type blameResult struct {
	Success  bool        `json:"success"`
	FilePath string      `json:"filePath"`
	Lines    []blameLine `json:"lines"`
	Total    int         `json:"totalLines"`
}

func (s *server) blame(ctx context.Context, in blameArgs) (blameResult, error) {
	r, err := s.open(ctx, in.Path)
	if err != nil {
		return blameResult{}, err
	}
	rel, err := r.relative("filePath", in.FilePath)
	if err != nil {
		return blameResult{}, err
	}
	from, err := between("startLine", in.StartLine, 0, 1, 1<<30)
	if err != nil {
		return blameResult{}, err
	}
	to, err := between("endLine", in.EndLine, 0, 1, 1<<30)
	if err != nil {
		return blameResult{}, err
	}
	args := []string{"blame", "--line-porcelain", "--no-textconv", "--no-progress"}
	args = append(args, when(in.IgnoreWhitespace, "-w")...)
	if from+to > 0 {
		span := fmt.Sprintf("-L%d,", max(1, from))
		if to > 0 {
			span += strconv.Itoa(to)
		}
		args = append(args, span)
	}
	text, err := r.run(ctx, reads, append(args, "--", rel)...)
	if err != nil {
		return blameResult{}, err
	}
	lines := parseBlame(strings.ToValidUTF8(text, "\uFFFD"))
	return blameResult{Success: true, FilePath: in.FilePath, Lines: lines, Total: len(lines)}, nil
}

// parseBlame reads git-blame(1), "THE PORCELAIN FORMAT", with all headers at every
// line.
func parseBlame(text string) []blameLine {
	lines := []blameLine{}
	var cur blameLine
	first := true
	for l := range strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n") {
		key, value, _ := strings.Cut(l, " ")
		switch {
		case strings.HasPrefix(l, "\t"):
			cur.Content = l[1:]
			lines = append(lines, cur)
			first = true
		case first && l != "":
			cur = blameLine{Hash: key}
			if f := strings.Fields(value); len(f) >= 2 {
				cur.Number, _ = strconv.Atoi(f[1]) // a number by the format
			}
			first = false
		case key == "author":
			cur.Author = value
		case key == "author-time":
			cur.Time, _ = strconv.ParseInt(value, 10, 64) // likewise
		}
	}
	return lines
}

type reflogArgs struct {
	Path     string `json:"path"`
	Ref      string `json:"ref"`
	MaxCount *int   `json:"maxCount"`
}

type reflogEntry struct {
	Hash    string `json:"hash"`
	RefName string `json:"refName"`
	Action  string `json:"action"`
	Message string `json:"message"`
	Time    int64  `json:"timestamp"`
}

type reflogResult struct {
	Success bool          `json:"success"`
	Ref     string        `json:"ref"`
	Entries []reflogEntry `json:"entries"`
	Total   int           `json:"totalEntries"`
}

func (s *server) reflog(ctx context.Context, in reflogArgs) (reflogResult, error) {
	if in.Ref == "" {
		in.Ref = "HEAD"
	}
	out := reflogResult{Success: true, Ref: in.Ref, Entries: []reflogEntry{}}
	r, err := s.open(ctx, in.Path)
	if err == nil {
		err = word("ref", in.Ref)
	}
	if err != nil {
		return out, err
	}
	count, err := between("maxCount", in.MaxCount, 25, 1, 1000)
	if err != nil {
		return out, err
	}
	items, err := r.list(ctx, "log", "--walk-reflogs", fmt.Sprintf("--max-count=%d", count), "-z", "--no-notes",
		"--format=%H%x00%gd%x00%gs%x00%ct", "--end-of-options", in.Ref, "--")
	if err != nil {
		return out, err
	}
	for ; len(items) >= 4; items = items[4:] {
		e := reflogEntry{Hash: items[0], RefName: items[1], Message: items[2]}
		e.Action, _, _ = strings.Cut(e.Message, ":")
		e.Time, _ = strconv.ParseInt(items[3], 10, 64) // a number by the format
		out.Entries = append(out.Entries, e)
	}
	out.Total = len(out.Entries)
	return out, nil
}
