package config

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
)

// The environment variables of boxes. Each is also read with the prefix ECTO_
// in place of RINGFENCE_, after it; [EnvTier] is not.
const (
	EnvTier        = "RINGFENCE_TIER"
	EnvPermissive  = "RINGFENCE_SANDBOX_PERMISSIVE"
	EnvImage       = "RINGFENCE_DOCKER_IMAGE" // being set, it selects the tier container
	EnvRuntime     = "RINGFENCE_DOCKER_RUNTIME"
	EnvMemory      = "RINGFENCE_DOCKER_MEMORY"
	EnvCPUs        = "RINGFENCE_DOCKER_CPUS"
	EnvTimeout     = "RINGFENCE_DOCKER_TIMEOUT"
	EnvFirecracker = "RINGFENCE_FC_BINARY" // being set, it selects the tier microvm
	envDockerHost  = "DOCKER_HOST"
	// Those of the command docker that say which of its contexts counts, and where they are.
	envDockerContext = "DOCKER_CONTEXT"
	envDockerConfig  = "DOCKER_CONFIG"
)

// The tiers that a setting can name.
const (
	TierNative    = "native"
	TierContainer = "container"
	TierMicroVM   = "microvm"
	TierNone      = "none"
)

// A Box is what boxes are made of where no flag says otherwise.
type Box struct {
	// Tier is the one tier that is used, or the effect does not happen: the one
	// that the file names, else the one that the environment selects, else native.
	Tier string
	// Permissive says that the operator wants what cannot be boxed to run all the
	// same, with a warning and an entry on record. Default false.
	Permissive bool
	// Passed is the variable that selects another tier than Tier, and that does not count
	// because the file names Tier; "" is none.
	Passed    string
	Container Container
}

// A Container is how containers are made.
type Container struct {
	Image   string        // default "alpine:3.19"
	Runtime string        // "auto", "docker" or "podman"; default "auto"
	Memory  int64         // bytes; default 256 MiB
	CPUs    float64       // default 1
	Timeout time.Duration // of wall-clock time; default 30 s
	Host    string        // of the engine's API, "unix:///…"; "" is the runtime's usual one
	// Context is the name of the context of docker that says where its engine is, if Host does
	// not; "" is its current one. Contexts is docker's directory of them; "" is ~/.docker.
	Context, Contexts string
}

type box struct {
	Tier       *string    `json:"tier"`
	Permissive *bool      `json:"permissive"` // false: the variable is refused
	Container  *container `json:"container"`
}

type container struct {
	Image   *string `json:"image"`
	Runtime *string `json:"runtime"`
	Memory  *string `json:"memory"`
	CPUs    *string `json:"cpus"`
	Seconds *int    `json:"seconds"`
	Host    *string `json:"host"`
	Context *string `json:"context"`
}

func (l *loader) box(b *box, env func(string) (string, bool)) error {
	if b == nil {
		b = &box{}
	}
	if b.Container == nil {
		b.Container = &container{}
	}
	return errors.Join(l.tier(b.Tier, env), l.permissive(b.Permissive, env), l.container(b.Container, env))
}

// either looks a variable up, then the one with the other prefix.
func either(env func(string) (string, bool), name string) (value, from string, ok bool) {
	for _, n := range []string{name, "ECTO_" + strings.TrimPrefix(name, "RINGFENCE_")} {
		if v, ok := env(n); ok {
			return v, n, true
		}
	}
	return "", "", false
}

func (l *loader) tier(given *string, env func(string) (string, bool)) error {
	set := l.setting("box.tier", TierNative, given != nil)
	check := func(where, tier string) error {
		names := []string{TierNative, TierContainer, TierMicroVM, TierNone}
		if slices.Contains(names, tier) {
			return nil
		}
		hint := "; there are " + strings.Join(names, ", ")
		if near := strictjson.Nearest(tier, names); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return fmt.Errorf("%w: %s: %q is no tier%s", ErrInvalid, where, tier, hint)
	}
	selected, by := selects(env)
	if by == EnvTier && given == nil {
		if err := check(EnvTier, selected); err != nil {
			return err
		}
	}
	switch {
	case given != nil:
		set.Value = *given
		if err := check(l.where("/box/tier"), *given); err != nil {
			return err
		}
		if by != "" && selected != *given {
			l.config.Box.Passed = by
		}
	case by != "":
		set.Value, set.Source, set.Where = selected, FromEnvironment, by
	}
	l.config.Box.Tier = set.Value
	l.settings = append(l.settings, set)
	return nil
}

// selects returns the tier that the environment selects, and the variable that does; "" if
// none does.
func selects(env func(string) (string, bool)) (tier, by string) {
	if v, ok := env(EnvTier); ok {
		return v, EnvTier
	}
	if _, from, ok := either(env, EnvImage); ok {
		return TierContainer, from
	}
	if _, from, ok := either(env, EnvFirecracker); ok {
		return TierMicroVM, from
	}
	return "", ""
}

// permissive reads the one variable that loosens. What is neither yes nor unset
// is refused, so that nobody is mistaken about it.
func (l *loader) permissive(given *bool, env func(string) (string, bool)) error {
	set := l.setting("box.permissive", "false", given != nil)
	if given != nil && *given {
		return l.invalid("/box/permissive", "it can only be false: to run what cannot be boxed, set %s=true for that one run", EnvPermissive)
	}
	v, from, ok := either(env, EnvPermissive)
	if ok {
		yes := strings.EqualFold(v, "true") || v == "1"
		switch {
		case !yes:
			return fmt.Errorf("%w: %s is %q; it can only be \"true\" or \"1\": unset it for boxes that hold", ErrInvalid, from, v)
		case given != nil:
			return fmt.Errorf("%w: %s is set, and %s forbids it", ErrInvalid, from, l.where("/box/permissive"))
		}
		l.config.Box.Permissive = true
		set.Value, set.Source, set.Where = "true", FromEnvironment, from
	}
	l.settings = append(l.settings, set)
	return nil
}

func (l *loader) container(c *container, env func(string) (string, bool)) error {
	out := &l.config.Box.Container
	var seconds *string
	if c.Seconds != nil {
		seconds = new(strconv.Itoa(*c.Seconds))
	}
	for _, s := range []struct {
		key, otherwise, variable string
		given                    *string
		take                     func(string) error
	}{
		{"image", "alpine:3.19", EnvImage, c.Image, func(v string) error {
			if out.Image = v; v == "" || strings.ContainsAny(v, " \t\n") {
				return errors.New("it names no image")
			}
			return nil
		}},
		{"runtime", "auto", EnvRuntime, c.Runtime, func(v string) error {
			if out.Runtime = v; !slices.Contains([]string{"auto", "docker", "podman"}, v) {
				return errors.New(`it can only be "auto", "docker" or "podman"`)
			}
			return nil
		}},
		{"memory", "256m", EnvMemory, c.Memory, func(v string) (err error) { out.Memory, err = parseMemory(v); return err }},
		{"cpus", "1", EnvCPUs, c.CPUs, func(v string) (err error) {
			if out.CPUs, err = strconv.ParseFloat(v, 64); err != nil || !(out.CPUs >= 0.01 && out.CPUs <= 1024) {
				return errors.New(`it must be a number of processors such as "1" or "0.5"`)
			}
			return nil
		}},
		{"seconds", "30", EnvTimeout, seconds, func(v string) error {
			n, err := strconv.Atoi(v)
			if out.Timeout = time.Duration(n) * time.Second; err != nil || n < 1 || n > 86400 {
				return errors.New("it must be a number of seconds from 1 to 86400")
			}
			return nil
		}},
		{"host", "", envDockerHost, c.Host, func(v string) error {
			out.Host = v // the tier refuses what it cannot use: others need not care
			return nil
		}},
		{"context", "", envDockerContext, c.Context, func(v string) error {
			out.Context = v
			return nil
		}},
	} {
		if err := l.text("box.container."+s.key, s.otherwise, s.variable, s.given, env, s.take); err != nil {
			return err
		}
	}
	out.Contexts, _ = env(envDockerConfig)
	return nil
}

// text settles one setting that is a text: of the file, else of the environment,
// else its default.
func (l *loader) text(key, otherwise, variable string, given *string, env func(string) (string, bool), take func(string) error) error {
	set := l.setting(key, otherwise, given != nil)
	if given != nil {
		set.Value = *given
	} else if v, from, ok := either(env, variable); ok {
		set.Value, set.Source, set.Where = v, FromEnvironment, from
	}
	if err := take(set.Value); err != nil {
		where := set.Where
		if where == "" {
			where = key
		}
		return fmt.Errorf("%w: %s is %q: %w", ErrInvalid, where, set.Value, err)
	}
	l.settings = append(l.settings, set)
	return nil
}

// parseMemory reads a size as Docker writes it: bytes, or a number with b, k, m
// or g, in powers of 1,024.
func parseMemory(v string) (int64, error) {
	number, unit := v, int64(1)
	if v != "" {
		if shift := strings.IndexByte("bkmg", v[len(v)-1]|0x20); shift >= 0 {
			number, unit = v[:len(v)-1], 1<<(10*shift)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n <= 0 || n > (1<<50)/unit || n*unit < 6<<20 {
		return 0, errors.New(`it must be a size of at least 6 MiB such as "256m" or "1g"`)
	}
	return n * unit, nil
}
