//go:build linux

// Package net_test has programs as people use them reach servers from boxes, each through
// the way out: with the proxy, and without knowing of it. It tests the whole program, and no
// part of it; the servers are its own, on loopback, by names that only its resolver knows.
package net_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"ringfence/test/rig"
)

// patience bounds what is waited for; nothing waits so long but what is broken.
const patience = 2 * time.Minute

// A reachCase is a program in a box and what must come of it.
type reachCase struct {
	name   string
	needs  []string // programs
	script string   // of sh, in a workspace of its own
	image  bool     // also in containers
	want   []string // lines of what it prints
}

// cases reads testdata/cases.txt: "== name", "needs programs", "want line", and the script.
func cases(t *testing.T) (all []reachCase) {
	t.Helper()
	text, err := os.ReadFile("testdata/cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split("\n"+string(text), "\n== ")[1:] {
		name, rest, _ := strings.Cut(part, "\n")
		c := reachCase{name: name}
		for line := range strings.Lines(rest) {
			if words, ok := strings.CutPrefix(line, "needs "); ok {
				c.needs = strings.Fields(words)
			} else if line == "in containers\n" {
				c.image = true
			} else if line == "in containers\n" {
				c.image = true
			} else if want, ok := strings.CutPrefix(line, "want "); ok {
				c.want = append(c.want, strings.TrimSpace(want))
			} else {
				c.script += line
			}
		}
		all = append(all, c)
	}
	return all
}

// A place is an installation in front of a world.
type place struct {
	*rig.Home
	world  *world
	policy string
	node   string // directory of a newer node
}

// built is the program, built once.
var built = sync.OnceValues(func() (string, error) {
	if bin := os.Getenv("RINGFENCE_TEST_BINARY"); bin != "" {
		return bin, nil
	}
	dir, err := os.MkdirTemp("", "rfbin")
	if err != nil {
		return "", err
	}
	builtIn = dir
	return rig.Build(context.Background(), dir)
})

var builtIn string // the directory of built

func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == asAgent {
		beAgent()
	}
	status := m.Run()
	if builtIn != "" {
		os.RemoveAll(builtIn)
	}
	os.Exit(status)
}

func newPlace(t *testing.T) *place {
	t.Helper()
	ctx := t.Context()
	bin, err := built()
	if err != nil {
		t.Fatal(err)
	}
	home, err := rig.New(bin)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := home.Close(); err != nil {
			t.Error(err)
		}
	})
	dir := t.TempDir()
	things(t, dir)
	p := &place{Home: home, world: newWorld(t, dir)}
	if dir := os.Getenv("RINGFENCE_TEST_NODE_DIR"); dir != "" {
		p.node = filepath.Join(dir, "node_modules")
	}
	p.configure(t, nil)
	var rules []string
	for _, port := range []string{p.world.tls, p.world.plain} {
		for _, host := range []string{allowed, inside} {
			rules = append(rules, fmt.Sprintf("The agent may fetch pages from %s:%s.", host, port), fmt.Sprintf("The agent may send to %s:%s.", host, port))
		}
		rules = append(rules, fmt.Sprintf("The agent may connect to %s:%s.", tunnelled, port))
	}
	p.policy, err = home.Policy(ctx, append(rules, "The agent may run any command.", "The agent may read any file.", "The agent may read, change, delete and move any file in the workspace.")...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// configure writes the configuration, box being a part of it.
func (p *place) configure(t *testing.T, box map[string]any) {
	t.Helper()
	settings := map[string]any{"network": map[string]any{
		"resolver": p.world.resolver, "private": []string{"127.0.0.0/8", "::1/128"}, "ca": []string{p.world.ca},
	}}
	if box != nil {
		settings["box"] = box
	}
	config, err := json.Marshal(settings)
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Own, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// things makes what the servers have: a repository, a module, a package.
func things(t *testing.T, dir string) {
	t.Helper()
	cmd := exec.Command("sh", "-ec", `
mkdir -p git && cd git && git init -q --bare -b main repo.git && git -C repo.git config http.receivepack true
git clone -q repo.git work 2>/dev/null && cd work && echo text >file && git add file
git -c user.name=x -c user.email=x@example.com commit -qm first && git push -q origin HEAD:main`)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	var zipped bytes.Buffer
	z := zip.NewWriter(&zipped)
	const mod = "module mod.example/a\n"
	for name, text := range map[string]string{"go.mod": mod, "a.go": "package a\n"} {
		f, err := z.Create("mod.example/a@v1.0.0/" + name)
		if err == nil {
			_, err = f.Write([]byte(text))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	var packed bytes.Buffer
	g := gzip.NewWriter(&packed)
	tw := tar.NewWriter(g)
	const manifest = `{"name":"tiny","version":"1.0.0","main":"index.js"}`
	for name, text := range map[string]string{"package.json": manifest, "index.js": "module.exports = 'tiny is here'\n"} {
		if err := errors.Join(tw.WriteHeader(&tar.Header{Name: "package/" + name, Mode: 0o644, Size: int64(len(text))}), write(tw, text)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(z.Close(), tw.Close(), g.Close(), os.MkdirAll(dir+"/go/mod.example/a/@v", 0o755)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{
		"go/mod.example/a/@v/list": "v1.0.0\n", "go/mod.example/a/@v/v1.0.0.info": `{"Version":"v1.0.0","Time":"2020-01-01T00:00:00Z"}`,
		"go/mod.example/a/@v/v1.0.0.mod": mod, "go/mod.example/a/@v/v1.0.0.zip": zipped.String(), "npm.tgz": packed.String(),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func write(w *tar.Writer, text string) error {
	_, err := w.Write([]byte(text))
	return err
}

// script is that of c, with what it cannot know.
func (p *place) script(c reachCase) string {
	return strings.NewReplacer(
		"$TLS", p.world.tls, "$PLAIN", p.world.plain, "$NODE", p.node,
	).Replace(c.script)
}

// need skips a case whose programs are not there.
func (p *place) need(t *testing.T, c reachCase) {
	t.Helper()
	for _, name := range c.needs {
		_, err := exec.LookPath(name)
		if name == "newer-node" {
			_, err = os.Stat(filepath.Join(p.node, ".bin", "node"))
		}
		if err == nil || !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, exec.ErrNotFound) {
			continue
		}
		if os.Getenv("CI") == "true" {
			t.Fatalf("this case needs %s (make test installs it)", name)
		}
		t.Skipf("needs %s (make test installs it)", name)
	}
}

// TestReach: programs reach what the policy allows as if they were in no box, and nothing
// else.
func TestReach(t *testing.T) {
	p := newPlace(t)
	for _, c := range cases(t) {
		t.Run(c.name, func(t *testing.T) {
			p.need(t, c)
			if p.node != "" {
				p.reach(t, c, "--ro", p.node)
			} else {
				p.reach(t, c)
			}
		})
	}
	if os.Getuid() != 0 || t.Failed() {
		return
	}
	// Boxes of an ordinary user are built in another way.
	dir, err := os.MkdirTemp("", "rfnet")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	const nobody = 65534
	bin, err := built()
	if err == nil {
		// Neither the test nor its data need be where an ordinary user can read.
		err = errors.Join(
			exec.Command("cp", bin, dir+"/ringfence").Run(), exec.Command("cp", os.Args[0], dir+"/test").Run(),
			exec.Command("cp", "-r", "testdata", dir).Run(), exec.Command("chown", "-R", strconv.Itoa(nobody)+":"+strconv.Itoa(nobody), dir).Run(),
		)
	}
	if err != nil {
		t.Fatal(err)
	}
	again := exec.CommandContext(t.Context(), dir+"/test", "-test.run=^TestReach$", "-test.v")
	again.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	again.Dir = dir
	again.Env = append(os.Environ(), "TMPDIR="+dir, "HOME="+dir, "RINGFENCE_TEST_BINARY="+filepath.Join(dir, "ringfence"), "RINGFENCE_TEST_NODE_DIR=", "CI=")
	if out, err := again.CombinedOutput(); err != nil {
		t.Errorf("as user %d: %v\n%s", nobody, err, out)
	}
}

// inEngines runs f with each engine of containers: its name, its socket, and an image of Debian
// that it has.
func inEngines(t *testing.T, f func(t *testing.T, name, socket, image string)) {
	image := os.Getenv("RINGFENCE_TEST_DEBIAN")
	for name, socket := range map[string]string{"docker": os.Getenv("RINGFENCE_TEST_DOCKER"), "podman": os.Getenv("RINGFENCE_TEST_PODMAN")} {
		t.Run(name, func(t *testing.T) {
			if socket == "" || image == "" {
				if os.Getenv("CI") == "true" {
					t.Fatal("needs an engine and an image of Debian: run scripts/engines.sh go test …")
				}
				t.Skip("needs an engine and an image of Debian: run scripts/engines.sh go test …")
			}
			f(t, name, socket, image)
		})
	}
}

// boxes makes box a part of the configuration of p, whatever else is in it.
func (p *place) boxes(t *testing.T, box map[string]any) {
	t.Helper()
	file := filepath.Join(p.Own, "config.json")
	text, err := os.ReadFile(file)
	var config map[string]any
	if err == nil {
		err = json.Unmarshal(text, &config)
	}
	if err == nil {
		config["box"] = box
		text, err = json.Marshal(config)
	}
	if err == nil {
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// TestReachFromContainers: so do those that are in an image.
func TestReachFromContainers(t *testing.T) {
	inEngines(t, func(t *testing.T, name, socket, image string) {
		p := newPlace(t)
		p.configure(t, map[string]any{"container": map[string]any{"host": "unix://" + socket, "runtime": name, "image": image}})
		for _, c := range cases(t) {
			if c.image {
				t.Run(c.name, func(t *testing.T) { p.reach(t, c, "--tier", "container") })
			}
		}
	})
}

// reach runs c in a box.
func (p *place) reach(t *testing.T, c reachCase, more ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p.world.for4.Store(strings.Contains(c.name, "IPv4 only"))
	work, err := os.MkdirTemp(p.Work, "case")
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"exec", "--ask", "never", "--policy", p.policy, "--net", "policy", "--profile", "agent", "-w", work, "--timeout", "60s"}
	if slices.Contains(more, "container") { // which changes nothing of the workspace
		args[slices.Index(args, "agent")] = "command"
	}
	var out, errs bytes.Buffer
	cmd := p.Command(ctx, slices.Concat(args, more, []string{"--", "/bin/sh", "-c", p.script(c)})...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, &out, &errs
	err = cmd.Run()
	said := "\n" + out.String()
	for _, want := range c.want {
		if !strings.Contains(said, "\n"+want+"\n") {
			t.Errorf("no line %q (%v) in\n%s%s", want, err, out.String(), errs.String())
		}
	}
}
