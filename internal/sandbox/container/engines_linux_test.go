package container

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"ringfence/internal/sandbox"
)

// engines are the tiers of the engines that scripts/engines.sh has started, by name.
func engines(t testing.TB) map[string]*Tier {
	t.Helper()
	found := map[string]*Tier{}
	for name, variable := range map[string]string{"docker": "RINGFENCE_TEST_DOCKER", "podman": "RINGFENCE_TEST_PODMAN"} {
		if socket := os.Getenv(variable); socket != "" {
			found[name] = New(Options{Socket: socket, Runtime: Runtime(name), Image: os.Getenv("RINGFENCE_TEST_IMAGE"), Home: t.Name(), Init: testInit(t)})
			found[name].o.Home = "/test/" + t.Name()
		} else if os.Getenv("CI") == "true" {
			t.Fatalf("needs %s: run scripts/engines.sh go test …", variable)
		}
	}
	if len(found) == 0 {
		t.Skip("needs RINGFENCE_TEST_DOCKER or RINGFENCE_TEST_PODMAN: run scripts/engines.sh go test …")
	}
	return found
}

// initDir is where the init was built, "" if none was.
var initDir string

var buildInit = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "ringfence-init-")
	if err != nil {
		return "", err
	}
	initDir = dir
	path := filepath.Join(dir, "init")
	cmd := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-o", path, "./testdata/init")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return string(out), err
	}
	return path, os.Chmod(dir, 0o755)
})

// testInit returns the path of a static binary that calls Child.
func testInit(t testing.TB) string {
	t.Helper()
	path, err := buildInit()
	if err != nil {
		t.Fatalf("building the init: %v\n%s", err, path)
	}
	return path
}

func TestMain(m *testing.M) {
	Child() // what removes containers is this program too
	status := m.Run()
	if initDir != "" {
		os.RemoveAll(initDir)
	}
	os.Exit(status)
}

// left lists the containers of a tier.
func left(t testing.TB, tier *Tier) []listAnswer {
	t.Helper()
	e, err := tier.connect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	list, err := e.labelled(t.Context(), labelHome+"="+tier.o.home())
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// nothingLeft fails if a container of the tier is still there, or a directory of
// its set-up.
func nothingLeft(t testing.TB, tier *Tier) {
	t.Helper()
	if list := left(t, tier); len(list) > 0 {
		t.Errorf("%d containers are left: %v", len(list), list[0].Labels)
	}
	if dirs, _ := filepath.Glob(filepath.Join(tier.o.tempDir(), dirPrefix+"*")); tier.o.Dir != "" && len(dirs) > 0 {
		t.Errorf("left of a set-up: %v", dirs)
	}
}

// A context that the command docker has made, and uses, is where boxes come from.
func TestDockerContext(t *testing.T) {
	tier := engines(t)["docker"]
	docker, err := exec.LookPath("docker")
	if tier == nil || err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal("needs RINGFENCE_TEST_DOCKER, and docker: run scripts/engines.sh go test …")
		}
		t.Skip("needs RINGFENCE_TEST_DOCKER, and docker: run scripts/engines.sh go test …")
	}
	home := t.TempDir()
	t.Setenv("HOME", home)
	for _, args := range [][]string{
		{"context", "create", "the-tests", "--docker", "host=unix://" + tier.o.Socket}, {"context", "use", "the-tests"},
	} {
		cmd := exec.Command(docker, args...)
		cmd.Env = []string{"HOME=" + home, "PATH=" + os.Getenv("PATH")}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("docker %v: %v\n%s", args, err, out)
		}
	}
	o := tier.o
	o.Socket = ""
	out, err := sandbox.Run(t.Context(), New(o), sh("echo in"), nil)
	if from := out.Report.Evidence[sandbox.LayerContainer]; err != nil || string(out.Stdout) != "in\n" || !strings.Contains(from, tier.o.Socket+`, API`) || !strings.Contains(from, `by the context "the-tests" of docker`) {
		t.Errorf("%q, %v, from %s", out.Stdout, err, from)
	}
	nothingLeft(t, tier)
}
