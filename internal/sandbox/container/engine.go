package container

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// An engine is one that answered, and what it said about itself.
type engine struct {
	client
	kind     Runtime // RuntimeDocker or RuntimePodman
	release  string
	system   string // the operating system that it runs on, for people
	local    bool   // it runs on our kernel
	rootless bool   // its containers are of our own user: 0 inside is we
	remapped bool   // users inside are others outside (userns-remap)
	selinux  bool
	hasInit  bool
	context  string // of docker, by which it was found
	stock    bool   // it filters system calls by the profile that is built into it
}

// String names the engine for people: "Docker 20.10.24 at /var/run/docker.sock".
func (e *engine) String() string {
	return fmt.Sprintf("%s %s at %s", title(e.kind), e.release, e.socket)
}

func title(kind Runtime) string {
	if kind == RuntimePodman {
		return "Podman"
	}
	return "Docker"
}

// A place is where an engine may listen.
type place struct {
	socket string
	kind   Runtime
	own    bool // of our own user
	// context is the name of that of docker which names it.
	context string
}

// connect returns the engine that Options name, connecting to it once.
func (t *Tier) connect(ctx context.Context) (*engine, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.engine != nil {
		return t.engine, nil
	}
	want := t.o.runtime()
	list := places(os.Getuid(), homeDir())
	var reasons []error
	switch {
	case t.o.Socket == "" && want != RuntimePodman:
		var why error
		if list, why = byContext(list, homeDir(), t.o.Contexts, t.o.Context); why != nil {
			reasons = append(reasons, why)
		}
	case t.o.Socket != "":
		list = []place{{socket: t.o.Socket, kind: want, own: !strings.HasPrefix(t.o.Socket, "/run/") && !strings.HasPrefix(t.o.Socket, "/var/run/")}}
	}
	for _, p := range list {
		if want != RuntimeAuto && p.kind != want {
			continue
		}
		e, err := meet(ctx, p.socket)
		switch {
		case err == nil && want != RuntimeAuto && e.kind != want:
			err = fmt.Errorf("%s answers, not %s; set the runtime to %s or auto", e, title(want), e.kind)
		case err == nil:
			e.local, e.context = e.local && !t.elsewhere, p.context
			t.engine = e
			return e, nil
		default:
			err = withAdvice(p, err)
		}
		if t.o.Socket == "" && p.context == "" && errors.Is(err, fs.ErrNotExist) {
			continue // summed up below
		}
		reasons = append(reasons, err)
	}
	if len(reasons) == 0 {
		return nil, noEngine(want)
	}
	return nil, errors.Join(reasons...)
}

func homeDir() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return "/nonexistent"
	}
	return home
}

// places lists where engines listen by default, those of our own user first
// because what gets out of their boxes is nobody but us.
func places(uid int, home string) []place {
	own := "/run/user/" + strconv.Itoa(uid)
	return []place{
		{socket: own + "/podman/podman.sock", kind: RuntimePodman, own: true},
		{socket: filepath.Join(home, ".local/share/containers/podman/machine/podman.sock"), kind: RuntimePodman, own: true}, // macOS
		{socket: "/run/podman/podman.sock", kind: RuntimePodman, own: false},
		{socket: own + "/docker.sock", kind: RuntimeDocker, own: true},
		{socket: filepath.Join(home, ".docker/run/docker.sock"), kind: RuntimeDocker, own: true},     // Docker Desktop, macOS
		{socket: filepath.Join(home, ".docker/desktop/docker.sock"), kind: RuntimeDocker, own: true}, // Docker Desktop, Linux
		{socket: "/var/run/docker.sock", kind: RuntimeDocker, own: false},
	}
}

// meet asks who listens at socket and what it is like.
func meet(ctx context.Context, socket string) (*engine, error) {
	e := &engine{client: client{socket: socket}, kind: RuntimeDocker}
	head, err := e.ping(ctx)
	if err != nil {
		return nil, err
	}
	if v := head.Get("Libpod-Api-Version"); v != "" {
		e.kind, e.release = RuntimePodman, v
	} else {
		// "Docker/20.10.24 (linux)"
		_, v, _ := strings.Cut(head.Get("Server"), "/")
		e.release, _, _ = strings.Cut(v, " ")
	}
	if e.version, err = chooseVersion(head.Get("Api-Version")); err != nil {
		return nil, fmt.Errorf("%s: %w", e, err)
	}
	var i infoAnswer
	if err := e.call(ctx, http.MethodGet, "/info", nil, &i); err != nil {
		return nil, err
	}
	if i.OSType != "linux" {
		return nil, fmt.Errorf("%s makes containers of %s; only those of Linux can be confined here", e, i.OSType)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(i.SecurityOptions, func(o string) bool { return o == name || strings.HasPrefix(o, name+",") })
	}
	if !has("name=seccomp") || slices.Contains(i.SecurityOptions, "name=seccomp,profile=unconfined") {
		return nil, fmt.Errorf("%s does not filter system calls; start it with its default seccomp profile", e)
	}
	e.system = i.OperatingSystem
	e.rootless = i.Rootless || has("name=rootless")
	e.remapped = has("name=userns")
	e.selinux = has("name=selinux")
	e.stock = slices.ContainsFunc(i.SecurityOptions, func(o string) bool { return o == "name=seccomp,profile=default" || o == "name=seccomp,profile=builtin" })
	e.hasInit = e.kind == RuntimePodman || i.InitBinary != ""
	e.local = i.OperatingSystem != "Docker Desktop" && i.KernelVersion != "" && i.KernelVersion == kernelRelease()
	return e, nil
}

// chooseVersion returns the version of the API to speak with an engine that knows
// those up to newest.
func chooseVersion(newest string) (string, error) {
	high, err := minorOf(newest)
	if err != nil {
		return "", err
	}
	if high < oldestAPI {
		return "", fmt.Errorf("its API %s is too old; at least Docker 20.10 or Podman 4 is needed", newest)
	}
	return fmt.Sprintf("1.%d", min(high, newestAPI)), nil
}

func minorOf(version string) (int, error) {
	digits, ok := strings.CutPrefix(version, "1.")
	n, err := wholeNumber(digits)
	if !ok || err != nil || n > 1000 {
		return 0, fmt.Errorf("%q is no version of an engine's API", version)
	}
	return int(n), nil
}

// withAdvice adds to an error of meeting the engine at p what a person can do.
func withAdvice(p place, err error) error {
	var advice string
	switch {
	case errors.Is(err, fs.ErrPermission):
		advice = "let your user use the engine (Docker: sudo usermod -aG docker \"$USER\", then log in again; who is in that group is as good as root), or use a rootless engine (systemctl --user enable --now podman.socket)"
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ECONNREFUSED):
		advice = "start it: " + startCommand(p)
	default:
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

func startCommand(p place) string {
	kind := p.kind
	if kind == RuntimeAuto {
		kind = RuntimeDocker
		if strings.Contains(p.socket, "podman") {
			kind = RuntimePodman
		}
	}
	return startCommands(kind, p.own)
}

func noEngine(want Runtime) error {
	switch want {
	case RuntimeDocker, RuntimePodman:
		return fmt.Errorf("%w: %s does not listen at any of its usual sockets; start it: %s", errNoEngine, title(want), startCommands(want, false))
	case RuntimeAuto:
	}
	return fmt.Errorf("%w: neither Podman nor Docker listens at any of the usual sockets; start one: %s, or %s",
		errNoEngine, startCommands(RuntimePodman, true), startCommands(RuntimeDocker, false))
}

var errNoEngine = errors.New("no container engine")

// image asks for the image called name, which [checkImage] has passed.
func (e *engine) image(ctx context.Context, name string) (imageAnswer, error) {
	var a imageAnswer
	err := e.call(ctx, http.MethodGet, "/images/"+name+"/json", nil, &a)
	if answered(err, http.StatusNotFound) {
		return a, fmt.Errorf("%s has no image %s, and none is pulled here; get it: %s pull %s", e, name, e.command(), name)
	}
	if err == nil && a.ID == "" {
		err = fmt.Errorf("%s describes the image %s without an id", e, name)
	}
	return a, err
}

// command is how a person speaks to this engine.
func (e *engine) command() string {
	usual := slices.ContainsFunc(places(os.Getuid(), homeDir()), func(p place) bool { return p.socket == e.socket })
	switch {
	case e.kind == RuntimePodman && usual && !e.rootless:
		return "sudo podman"
	case e.kind == RuntimePodman && usual:
		return "podman"
	case e.kind == RuntimePodman:
		return "podman --url unix://" + e.socket
	case usual:
		return "docker"
	}
	return "docker -H unix://" + e.socket
}

// digest names an image so that it can only be that one.
func digest(name string, a imageAnswer) string {
	if len(a.RepoDigests) > 0 {
		return a.RepoDigests[0]
	}
	id := a.ID
	if !strings.Contains(id, ":") {
		id = "sha256:" + id
	}
	return name + " " + id
}

// evidence says where a box comes from.
func (e *engine) evidence() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, API %s, on %s", e, e.version, e.system)
	if e.context != "" {
		fmt.Fprintf(&b, ", by the context %q of docker", e.context)
	}
	if e.rootless {
		b.WriteString(", rootless")
	}
	if e.remapped {
		b.WriteString(", users remapped")
	}
	if !e.local {
		b.WriteString(", on another kernel than ours, so that only the engine could be asked")
	}
	if e.selinux {
		b.WriteString(", without a label of SELinux, because labelling would change the files of the workspace")
	}
	return b.String()
}
