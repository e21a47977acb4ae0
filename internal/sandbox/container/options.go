package container

import (
	"errors"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// A Runtime is a kind of engine.
type Runtime string

// The runtimes. The zero Runtime is RuntimeAuto: the first engine that answers,
// Podman before Docker and one of our own user before one of root.
const (
	RuntimeAuto   Runtime = "auto"
	RuntimeDocker Runtime = "docker"
	RuntimePodman Runtime = "podman"
)

// What applies where nothing is set: RINGFENCE_DOCKER_IMAGE, …_MEMORY, …_CPUS and
// …_TIMEOUT.
const (
	DefaultImage   = "alpine:3.19"
	DefaultMemory  = 256 << 20     // bytes
	DefaultCPUs    = 1_000_000_000 // billionths of a processor
	DefaultTimeout = 30 * time.Second
)

// Options are the settings of a [Tier]. The zero value is that of the constants
// above, at the usual sockets.
type Options struct {
	Runtime Runtime
	// Socket is the absolute path of the engine's Unix socket; "" looks in the
	// usual places. See [ParseHost].
	Socket string
	// Context is the name of the context of docker that says where, if Socket is ""; "" is
	// its current one. Contexts is docker's directory of them, "" the usual one.
	Context, Contexts string
	// Image is the name or digest of an image that the engine has; none is pulled.
	Image string
	// Memory (bytes) bounds boxes for commands and code; for others it applies
	// where neither the Spec nor its profile says anything.
	Memory int64
	CPUs   int64 // billionths of a processor, for every box
	// Timeout is the longest that a box for a command or for code may run.
	Timeout time.Duration
	// Home is the absolute path of whose containers these are; [Tier.Sweep] removes
	// only those of the same Home.
	Home string
	// Own are the files and trees that no box gets to see, whatever its Spec says.
	Own []string
	// Dir is where sockets of boxes are put while they are set up, an absolute
	// path that the engine can see; "" is the system's directory for temporary
	// files. The path should be short.
	Dir string
	// Init is the absolute path of a static Linux binary that calls [Child]; "" is
	// the running program.
	Init string
}

// Validate reports the first setting that makes no sense.
func (o Options) Validate() error {
	if _, err := ParseRuntime(string(o.Runtime)); o.Runtime != "" && err != nil {
		return err
	}
	if o.Image != "" {
		if err := checkImage(o.Image); err != nil {
			return err
		}
	}
	for what, p := range map[string]string{"socket": o.Socket, "directory of contexts": o.Contexts, "home": o.Home, "directory": o.Dir, "init": o.Init} {
		if p != "" && (!filepath.IsAbs(p) || strings.ContainsRune(p, 0)) {
			return fmt.Errorf("container engine: %s %q is not an absolute path", what, p)
		}
	}
	switch {
	case o.Memory != 0 && o.Memory < minMemory:
		return fmt.Errorf("container engine: %d bytes of memory, at least %d", o.Memory, int64(minMemory))
	case o.CPUs != 0 && (o.CPUs < minCPUs || o.CPUs > maxCPUs):
		return fmt.Errorf("container engine: %d billionths of a processor, from %d to %d", o.CPUs, int64(minCPUs), int64(maxCPUs))
	case o.Timeout != 0 && (o.Timeout < time.Second || o.Timeout > maxTimeout):
		return fmt.Errorf("container engine: a time limit of %v, from 1s to %v", o.Timeout, maxTimeout)
	}
	return nil
}

const (
	minMemory  = 16 << 20 // below, our own init has no room
	minCPUs    = 10_000_000
	maxCPUs    = 1024 * 1_000_000_000
	maxTimeout = 24 * time.Hour
)

func (o Options) image() string {
	if o.Image == "" {
		return DefaultImage
	}
	return o.Image
}

func (o Options) runtime() Runtime {
	if o.Runtime == "" {
		return RuntimeAuto
	}
	return o.Runtime
}

// orElse returns set, or what applies without it.
func orElse[T ~int64](set, otherwise T) T {
	if set == 0 {
		return otherwise
	}
	return set
}

// ParseRuntime reads "auto", "docker" or "podman".
func ParseRuntime(text string) (Runtime, error) {
	switch r := Runtime(text); r {
	case RuntimeAuto, RuntimeDocker, RuntimePodman:
		return r, nil
	}
	return "", fmt.Errorf("container runtime %q is none of auto, docker, podman", text)
}

// ParseImage reads the name of an image, with tag or digest. "" is an error: an
// image is what turns this tier on.
func ParseImage(text string) (string, error) { return text, checkImage(text) }

func checkImage(name string) error {
	odd := func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || strings.ContainsRune(`\?#%`, r)
	}
	if name == "" || len(name) > 512 || strings.HasPrefix(name, "-") || strings.ContainsFunc(name, odd) {
		return fmt.Errorf("%q is no name of an image; one is %s", name, DefaultImage)
	}
	return nil
}

// ParseMemory reads a number of bytes as docker's --memory has it: a whole number
// with b, k, m or g, of 1024, after it. A bare number is bytes.
func ParseMemory(text string) (int64, error) {
	digits, unit := text, int64(1)
	if i := strings.IndexAny(strings.ToLower(text), "bkmg"); i >= 0 && i == len(text)-1 {
		digits = text[:i]
		unit = 1 << (10 * strings.IndexByte("bkmg", strings.ToLower(text)[i]))
	}
	n, err := wholeNumber(digits)
	if err != nil || n > (1<<50)/unit {
		return 0, fmt.Errorf("%q is no amount of memory; one is 256m", text)
	}
	if n*unit < minMemory {
		return 0, fmt.Errorf("%s of memory is too little for a container; at least 16m", text)
	}
	return n * unit, nil
}

// ParseCPUs reads a number of processors, "1" or "1.5", in billionths.
func ParseCPUs(text string) (int64, error) {
	whole, fraction, dotted := strings.Cut(text, ".")
	n, err := wholeNumber(whole)
	if !dotted {
		fraction = "0"
	}
	var f int64
	if fraction == "" || len(fraction) > 9 {
		err = strconv.ErrSyntax
	} else {
		var e error
		f, e = wholeNumber(fraction + strings.Repeat("0", 9-len(fraction)))
		err = errors.Join(err, e)
	}
	if err != nil || n > maxCPUs/1_000_000_000 || n*1_000_000_000+f < minCPUs || n*1_000_000_000+f > maxCPUs {
		return 0, fmt.Errorf("%q is no number of processors from 0.01 to 1024; one is 1.5", text)
	}
	return n*1_000_000_000 + f, nil
}

// ParseTimeout reads a whole number of seconds.
func ParseTimeout(text string) (time.Duration, error) {
	n, err := wholeNumber(text)
	if err != nil || n == 0 || n > int64(maxTimeout/time.Second) {
		return 0, fmt.Errorf("%q is no number of seconds from 1 to %d; one is 30", text, maxTimeout/time.Second)
	}
	return time.Duration(n) * time.Second, nil
}

// wholeNumber reads up to ten decimal digits and nothing else.
func wholeNumber(text string) (int64, error) {
	if text == "" || len(text) > 10 || strings.Trim(text, "0123456789") != "" {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseInt(text, 10, 64)
}

// ParseHost reads where an engine listens, as DOCKER_HOST and the contexts of
// docker have it, and returns the path of the socket. Only Unix sockets are spoken
// to: over a network the paths of a workspace would mean another machine's.
func ParseHost(text string) (string, error) {
	p := text
	if scheme, rest, ok := strings.Cut(text, "://"); ok {
		if scheme != "unix" {
			return "", fmt.Errorf("container engine at %q: only unix:///PATH is spoken to", text)
		}
		p = rest
	}
	if !strings.HasPrefix(p, "/") || strings.ContainsRune(p, 0) {
		return "", fmt.Errorf("container engine at %q: not the absolute path of a socket; one is unix:///var/run/docker.sock", text)
	}
	return filepath.Clean(p), nil
}
