package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"ringfence/internal/review"
)

// largeWorkspace measures what the size of a workspace costs.
func largeWorkspace(ctx context.Context, b *bench, s *scene) error {
	large, small, few := filepath.Join(s.Person, "large"), filepath.Join(s.Person, "small"), filepath.Join(s.Person, "few")
	n := b.times(200_000)
	if err := errors.Join(os.Mkdir(small, 0o700), tree(large, n), tree(few, changed)); err != nil {
		return err
	}
	// Flushing the files of this tree is not what anything below is to pay for.
	if err := s.run(exec.CommandContext(ctx, "sync")); err != nil {
		return err
	}
	count := grouped(float64(n))
	start := func(in string) func() error {
		return func() error { return s.exec(ctx, nil, "--profile", "agent", "-w", in, "--", program) }
	}
	mine, theirs, err := inTurn(ctx, b.times(60), start(large), start(small))
	if err != nil {
		return err
	}
	b.add(latency("exec --profile agent in a workspace of "+count+" files", mine, "the same in an empty workspace", theirs).
		added(mine, theirs, 50*time.Millisecond))

	mine, theirs = nil, nil
	for i := range b.times(30) {
		for k := range 2 {
			workspace, into := large, &mine
			if (i+k)%2 == 1 {
				workspace, into = few, &theirs
			}
			if err := s.reviewed(ctx, workspace, i, into); err != nil {
				return fmt.Errorf("a review of %s: %w", workspace, err)
			}
		}
	}
	r := latency(fmt.Sprintf("review: %d files applied in a workspace of %s", changed, count), mine, "the same in a workspace of these alone", theirs)
	r.Figure = "added " + span(mine.p50()-theirs.p50())
	b.add(r)
	return nil
}

const (
	changed      = 10 // files of a review
	filesInOne   = 40 // files in a directory
	directoryOne = 50 // directories in a directory
)

// fileOf is the path of file i of a tree, in it.
func fileOf(i int) string {
	d := i / filesInOne
	return fmt.Sprintf("part%03d/dir%02d/file%02d.txt", d/directoryOne, d%directoryOne, i%filesInOne)
}

// tree makes a workspace of n files at root, with a repository at its top and one in
// its depth. Every file has a line of text.
func tree(root string, n int) error {
	for i := range n {
		file := filepath.Join(root, fileOf(i))
		if i%filesInOne == 0 {
			if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
				return err
			}
		}
		if err := os.WriteFile(file, []byte("one line of text\n"), 0o600); err != nil {
			return err
		}
	}
	for _, repository := range []string{root, filepath.Join(root, filepath.Dir(fileOf(n-1)))} {
		git := filepath.Join(repository, ".git")
		if err := os.MkdirAll(filepath.Join(git, "hooks"), 0o700); err != nil {
			return err
		}
		for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": "[core]\n\tbare = false\n"} {
			if err := os.WriteFile(filepath.Join(git, name), []byte(text), 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// reviewed has a box change some files of workspace, and adds to took what it takes
// to find out which, and to apply them. Each round writes another text.
func (s *scene) reviewed(ctx context.Context, workspace string, round int, took *series) error {
	files := make([]string, changed)
	for i := range files {
		files[i] = fileOf(i)
	}
	script := fmt.Sprintf("for f in %s; do echo round %d >$f || exit; done", strings.Join(files, " "), round)
	if err := s.exec(ctx, nil, "--profile", "agent", "--review", "-w", workspace, "--", "/bin/sh", "-c", script); err != nil {
		return err
	}
	all, err := review.List(s.Own, s.Person)
	if err != nil {
		return err
	}
	if len(all) != 1 {
		return fmt.Errorf("there are %d reviews", len(all))
	}
	r, err := review.Open(s.Own, s.Person, all[0].ID)
	if err != nil {
		return err
	}
	err = timed(took, func() error {
		if _, err := r.Changes(); err != nil {
			return err
		}
		o, err := r.Apply(review.Selection{})
		if err == nil && len(o.Applied) != changed {
			err = fmt.Errorf("of %d changes %d were applied", changed, len(o.Applied))
		}
		return err
	})
	return errors.Join(err, r.Remove())
}
