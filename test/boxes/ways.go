//go:build linux

package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/boxtest"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sandbox/native"
)

// A way is how somebody has boxes: a tier, and who they are.
type way struct {
	Name    string
	Options boxtest.Options `json:"-"`
	tier    func() sandbox.Tier
	user    bool   // as an ordinary user
	bare    bool   // where user namespaces are not to be had
	socket  string // the variable with the engine's
}

var ways = []way{
	{Name: "native, root", tier: nativeTier, Options: boxtest.Options{Workers: 2}},
	{Name: "native, user", tier: nativeTier, Options: boxtest.Options{Workers: 2}, user: true},
	{Name: "native, no user namespaces", tier: nativeTier, Options: boxtest.Options{Workers: 2, Cannot: treeless}, user: true, bare: true},
	{Name: "container, Docker", tier: engine(container.RuntimeDocker, dockerSocket), Options: containers, socket: dockerSocket},
	{Name: "container, Podman", tier: engine(container.RuntimePodman, podmanSocket), Options: containers, socket: podmanSocket},
}

const (
	dockerSocket = "RINGFENCE_TEST_DOCKER"
	podmanSocket = "RINGFENCE_TEST_PODMAN"
)

// treeless is what a box cannot have that has neither mounts nor a network of its own.
var treeless = []sandbox.Ability{sandbox.Homes, sandbox.Entrances}

// containers take most of their time waiting for an engine.
var containers = boxtest.Options{Workers: 4, Sparse: true, Image: true}

// containerMemory is what an operator gives containers in which compilers run.
const containerMemory = 512 << 20

func nativeTier() sandbox.Tier { return native.Tier{} }

func engine(kind container.Runtime, variable string) func() sandbox.Tier {
	return func() sandbox.Tier {
		return container.New(container.Options{
			Runtime: kind, Socket: os.Getenv(variable), Image: cmp.Or(os.Getenv("RINGFENCE_TEST_DEBIAN"), os.Getenv("RINGFENCE_TEST_IMAGE")),
			Home: "/test/boxes", Memory: containerMemory,
		})
	}
}

// unavailable says why the suite cannot be run this way, "" if it can.
func (w way) unavailable() string {
	switch {
	case w.socket != "" && os.Getenv(w.socket) == "":
		return "needs " + w.socket + ": scripts/engines.sh"
	case os.Getuid() != 0 && (!w.user || w.bare):
		return "needs root"
	}
	return ""
}

// Who runs the suite as an ordinary user, and who that is where user namespaces are
// taken away.
const (
	ordinary = 65534
	barely   = 65533
)

// start runs the suite in a process of its own, whose worlds are in dir.
func (r *row) start(ctx context.Context, self, dir, only string, progress io.Writer) (err error) {
	temp := filepath.Join(dir, strconv.Itoa(len(r.Name))+"-worlds")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(temp)) }()
	if err := os.Chmod(temp, 0o755); err != nil { //nolint:gosec // G302: ordinary users have the worlds in it
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-inside", r.Name, "-run", only)
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Dir = "/"
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, progress
	if err := r.as(cmd, temp); err != nil {
		return err
	}
	if err := cmd.Run(); err != nil {
		return err
	}
	if err := json.Unmarshal(out.Bytes(), &r.Outcomes); err != nil {
		return fmt.Errorf("reading the outcomes: %w", err)
	}
	return nil
}

// as makes cmd run as whom the way says.
func (w way) as(cmd *exec.Cmd, temp string) error {
	if !w.user || os.Getuid() != 0 {
		return nil
	}
	id := uint32(ordinary)
	if w.bare {
		id = barely
	}
	if err := os.Chown(temp, int(id), int(id)); err != nil {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: id, Gid: id}}
	if w.bare {
		// In a namespace of its own, whose root can say that there are no others
		// beneath it: as administrators do for the whole machine.
		ids := []syscall.SysProcIDMap{{ContainerID: 0, HostID: ordinary, Size: 1}, {ContainerID: barely, HostID: barely, Size: 1}}
		cmd.SysProcAttr = &syscall.SysProcAttr{
			Cloneflags: syscall.CLONE_NEWUSER, UidMappings: ids, GidMappings: ids, GidMappingsEnableSetgroups: true,
			Credential: &syscall.Credential{Uid: 0, Gid: 0},
		}
		cmd.Args = append([]string{"/bin/sh", "-c", `echo 0 >/proc/sys/user/max_user_namespaces &&
			exec setpriv --reuid ` + strconv.Itoa(barely) + ` --regid ` + strconv.Itoa(barely) + ` --clear-groups --bounding-set -all --inh-caps -all "$@"`, "sh"}, cmd.Args...)
		cmd.Path = "/bin/sh"
	}
	return nil
}
