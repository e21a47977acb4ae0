package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// An other is a sandbox that is not ours: a program that runs what follows its
// arguments with the workspace writable and nothing else.
type other struct {
	name  string
	argv  []string
	turns int
}

// besidePeers measures "ringfence exec" beside other sandboxes.
func besidePeers(ctx context.Context, b *bench, s *scene) (err error) {
	// Codex makes links in its home, and not in a directory for temporary files.
	home, err := os.MkdirTemp(b.peers, "home-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(home)) }()
	all, err := b.others(ctx, s, home)
	if err != nil {
		return err
	}
	for _, o := range all {
		theirs := func(argv ...string) error {
			c := exec.CommandContext(ctx, o.argv[0], append(o.argv[1:len(o.argv):len(o.argv)], argv...)...)
			c.Dir, c.Env = s.Work, s.besideEnv(b, home)
			return s.run(c)
		}
		if err := holds(o, s.Work, home, theirs); err != nil {
			b.leftOut("exec beside %s: %v", o.name, err)
			continue
		}
		mine, beside, err := inTurn(ctx, b.times(o.turns),
			func() error { return s.exec(ctx, nil, "--profile", "agent", "--", program) },
			func() error { return theirs(program) })
		if err != nil {
			return err
		}
		b.add(latency(execRow+"agent", mine, o.name, beside))
	}
	return nil
}

// besideEnv is the environment of other sandboxes.
func (s *scene) besideEnv(b *bench, home string) []string {
	path := os.Getenv("PATH")
	if b.node != "" {
		path = filepath.Join(b.node, "node_modules", ".bin") + string(os.PathListSeparator) + path
	}
	return []string{"HOME=" + home, "CODEX_HOME=" + home, "TMPDIR=" + os.TempDir(), "PATH=" + path}
}

// holds tries whether o lets the workspace be written to, and what is outside not.
func holds(o other, inside, outside string, run func(...string) error) error {
	in, out := filepath.Join(inside, "in"), filepath.Join(outside, "out")
	if err := run("/bin/sh", "-c", "echo text >"+in+"; echo text >"+out+"; true"); err != nil {
		return err
	}
	if err := os.Remove(in); err != nil {
		return fmt.Errorf("the workspace cannot be written to: %w", err)
	}
	if err := os.Remove(out); !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s lets what is outside be written to", o.name)
	}
	return nil
}

// others are the sandboxes that are there.
func (b *bench) others(ctx context.Context, s *scene, home string) (all []other, err error) {
	if o, err := bubblewrap(ctx, s.Work); err != nil {
		b.leftOut("exec beside bubblewrap: %v", err)
	} else {
		all = append(all, o)
	}
	if b.peers == "" {
		b.leftOut("exec beside srt and codex: they are not installed (scripts/need.sh --peers)")
		return all, nil
	}
	settings := filepath.Join(home, "srt.json")
	text, err := json.Marshal(map[string]any{
		"network":    map[string]any{"allowedDomains": []string{}, "deniedDomains": []string{}},
		"filesystem": map[string]any{"denyRead": []string{}, "allowWrite": []string{s.Work}, "denyWrite": []string{}},
	})
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(settings, text, 0o600); err != nil {
		return nil, err
	}
	modules := filepath.Join(b.peers, "node_modules")
	for _, o := range []struct {
		name, module string
		argv         []string
	}{
		{"srt", "@anthropic-ai/sandbox-runtime", []string{"srt", "--settings", settings}},
		{"codex sandbox", "@openai/codex", []string{"codex", "sandbox", "-c", `sandbox_mode="workspace-write"`, "--"}},
	} {
		var module struct{ Version string }
		raw, err := os.ReadFile(filepath.Join(modules, o.module, "package.json"))
		if err == nil {
			err = json.Unmarshal(raw, &module)
		}
		if err != nil {
			b.leftOut("exec beside %s: %v", o.name, err)
			continue
		}
		o.argv[0] = filepath.Join(modules, ".bin", o.argv[0])
		all = append(all, other{o.name + " " + module.Version, o.argv, 20})
	}
	return all, nil
}

// bubblewrap is bwrap with the namespaces and about the tree that our boxes have.
func bubblewrap(ctx context.Context, work string) (other, error) {
	bwrap, err := exec.LookPath("bwrap")
	if err != nil {
		return other{}, err
	}
	version, err := exec.CommandContext(ctx, bwrap, "--version").Output()
	if err != nil {
		return other{}, err
	}
	argv := []string{
		bwrap, "--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts", "--unshare-cgroup",
		"--die-with-parent", "--new-session", "--clearenv",
	}
	for _, dir := range []string{"/usr", "/etc", "/bin", "/sbin", "/lib", "/lib32", "/lib64"} {
		info, err := os.Lstat(dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return other{}, err
		}
		if info.Mode()&fs.ModeSymlink == 0 {
			argv = append(argv, "--ro-bind", dir, dir)
			continue
		}
		target, err := os.Readlink(dir)
		if err != nil {
			return other{}, err
		}
		argv = append(argv, "--symlink", target, dir)
	}
	argv = append(argv, "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--bind", work, work, "--chdir", work, "--")
	return other{strings.TrimSpace(string(version)), argv, 60}, nil
}
