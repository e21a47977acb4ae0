// Package rig sets the stage for tests and benchmarks of the whole program: the
// real binary, a home with an engine, a workspace, and MCP clients in front.
//
// It checks nothing itself, and says nothing about platforms other than the one
// it runs on.
//
// Invariants:
//
//	R1  A process is ended only if it is a child of ours that was not waited for
//	    yet, or runs the binary of this very home, which nobody else has.
//	R2  Close leaves neither process nor file behind.
package rig

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/daemon/api"
)

// Build builds the program into dir, as it is shipped, and returns its path.
func Build(ctx context.Context, dir string) (string, error) {
	bin := filepath.Join(dir, "ringfence")
	where := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}")
	root, err := where.Output()
	if err != nil {
		return "", fmt.Errorf("looking for the module: %w", err)
	}
	build := exec.CommandContext(ctx, "scripts/build.sh", bin)
	build.Dir = strings.TrimSpace(string(root))
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building %s: %w\n%s", bin, err, out)
	}
	return bin, nil
}

// GoBuild builds a main package of this module, without cgo.
func GoBuild(ctx context.Context, bin, pkg string) error {
	build := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-o", bin, pkg)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", pkg, err, out)
	}
	return nil
}

// A Home is one installation: a home of ringfence, a person's home, a workspace
// in it, and a binary of its own, by which its processes are known.
type Home struct {
	Bin    string // the program, a hard link that only this home has
	Own    string // RINGFENCE_HOME
	Person string // HOME
	Work   string // the workspace, in Person

	dir string
}

// New makes a home for the program at bin, which must be on the file system of
// temporary files. Its path is short, because the name of a socket in it may have
// about 100 bytes.
func New(bin string) (*Home, error) {
	dir, err := os.MkdirTemp("", "rf")
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir)
	}
	if err != nil {
		return nil, fmt.Errorf("making a home: %w", err)
	}
	h := &Home{
		Bin: filepath.Join(dir, "ringfence"), Own: filepath.Join(dir, "home"),
		Person: filepath.Join(dir, "person"), Work: filepath.Join(dir, "person", "work"), dir: dir,
	}
	err = errors.Join(os.MkdirAll(h.Work, 0o700), os.Mkdir(h.Own, 0o700))
	if err == nil {
		err = os.Link(bin, h.Bin)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("making a home: %w", err), os.RemoveAll(dir))
	}
	return h, nil
}

// Env is the environment of every process of h.
func (h *Home) Env() []string {
	return []string{"HOME=" + h.Person, "RINGFENCE_HOME=" + h.Own, "PATH=" + os.Getenv("PATH"), "TMPDIR=" + os.TempDir()}
}

// Command is the program with args, in the workspace. It is killed when ctx ends.
func (h *Home) Command(ctx context.Context, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, h.Bin, args...)
	c.Env, c.Dir = h.Env(), h.Work
	return c
}

// Run runs the program and returns its standard output. Any exit status but 0
// is an error.
func (h *Home) Run(ctx context.Context, args ...string) ([]byte, error) {
	var out, errs bytes.Buffer
	c := h.Command(ctx, args...)
	c.Stdout, c.Stderr = &out, &errs
	if err := c.Run(); err != nil {
		return out.Bytes(), fmt.Errorf("ringfence %s: %w\n%s%s", strings.Join(args, " "), err, out.Bytes(), errs.Bytes())
	}
	return out.Bytes(), nil
}

// Policy compiles a constitution of these sentences and returns its bundle.
func (h *Home) Policy(ctx context.Context, sentences ...string) (string, error) {
	text := filepath.Join(h.dir, "constitution.md")
	if err := os.WriteFile(text, []byte("- "+strings.Join(sentences, "\n- ")+"\n"), 0o600); err != nil {
		return "", fmt.Errorf("writing the constitution: %w", err)
	}
	bundle := filepath.Join(h.dir, "bundle")
	_, err := h.Run(ctx, "constitution", "compile", text, "-o", bundle)
	return bundle, err
}

// Servers writes an mcpServers file and returns its path.
func (h *Home) Servers(list map[string]any) (string, error) {
	data, err := json.Marshal(map[string]any{"mcpServers": list})
	if err != nil {
		return "", fmt.Errorf("encoding the list of servers: %w", err)
	}
	f, err := os.CreateTemp(h.dir, "servers-*.json")
	if err != nil {
		return "", fmt.Errorf("writing the list of servers: %w", err)
	}
	_, err = f.Write(data)
	return f.Name(), errors.Join(err, f.Close())
}

// Filesystem is the list of servers with our own filesystem server alone.
func Filesystem() map[string]any {
	return map[string]any{"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem", "annotations": "filesystem"}}}
}

// Connect connects to the engine of h. If none runs, one is started as the
// program itself does it.
func (h *Home) Connect(ctx context.Context) (*api.Client, error) {
	return api.Connect(ctx, api.Options{Home: h.Own, Start: func(ctx context.Context) error {
		_, err := h.Run(ctx, "ledger", "sessions")
		return err
	}})
}

// A Process is a running process of a home.
type Process struct {
	*os.Process
	Args []string
}

// Processes returns the processes of h whose arguments begin with args. It reads
// /proc, and finds nothing where there is none.
func (h *Home) Processes(args ...string) []Process {
	var found []Process
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		pid, err := strconv.Atoi(filepath.Base(d))
		if err != nil || !h.runs(d) {
			continue
		}
		// The handle refers to one process for good. Reading the name again after
		// it was made shows that it is one of ours (R1).
		p, err := os.FindProcess(pid)
		if err != nil {
			continue
		}
		line, _ := os.ReadFile(d + "/cmdline")
		argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		if !h.runs(d) || len(argv) <= len(args) || !equal(argv[1:len(args)+1], args) {
			_ = p.Release()
			continue
		}
		found = append(found, Process{p, argv})
	}
	return found
}

// runs reports whether the process at dir, in /proc, is of h: of its binary, or of what its
// engine keeps for the stages of boxes.
func (h *Home) runs(dir string) bool {
	exe, err := os.Readlink(dir + "/exe")
	return err == nil && (exe == h.Bin || strings.HasPrefix(exe, "/memfd:ringfence-box ") && strings.HasSuffix(exe, " "+h.Bin+" (deleted)"))
}

func equal(a, b []string) bool { return strings.Join(a, "\x00") == strings.Join(b, "\x00") }

// Close ends every process of h and removes its files.
func (h *Home) Close() error {
	_, _ = h.Run(context.Background(), "engine", "stop", "--force") // it fails if no engine runs, which is as well
	if !h.await(10 * time.Second) {
		for _, p := range h.Processes() {
			_ = p.Kill()
		}
		h.await(10 * time.Second)
	}
	return os.RemoveAll(h.dir)
}

// Ended waits until h has no process any more, and says which it has if that
// takes too long.
func (h *Home) Ended(limit time.Duration) error {
	if h.await(limit) {
		return nil
	}
	var left []string
	for _, p := range h.Processes() {
		left = append(left, fmt.Sprintf("%d %s", p.Pid, strings.Join(p.Args[1:], " ")))
	}
	return fmt.Errorf("after %s these processes are left: %s", limit, strings.Join(left, "; "))
}

func (h *Home) await(limit time.Duration) bool {
	deadline := time.After(limit)
	for len(h.Processes()) > 0 {
		select {
		case <-deadline:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return true
}
