package container

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// maxContext bounds the files that docker keeps of its contexts.
const maxContext = 1 << 20

// defaultContext is the name of that which is none: the usual places.
const defaultContext = "default"

// A dockerContext is where the command docker speaks to by itself: "docker context use".
type dockerContext struct {
	name string
	host string // as DOCKER_HOST has it
}

// contextOf reads the context of docker that is called name, or its current one, in its
// directory dir; a zero one says that there is none. The files are config.json, which has
// the current one's name, and contexts/meta/SHA256-OF-NAME/meta.json
// (https://docs.docker.com/engine/manage-resources/contexts/).
func contextOf(dir, name string) (dockerContext, error) {
	if name == "" {
		var err error
		if name, err = currentContext(dir); err != nil {
			return dockerContext{}, fmt.Errorf("reading which context docker has: %w", err)
		}
	}
	if name == "" || name == defaultContext {
		return dockerContext{}, nil
	}
	c := dockerContext{name: name}
	sum := sha256.Sum256([]byte(c.name))
	var meta struct {
		Name      string
		Endpoints struct {
			Docker struct{ Host string } `json:"docker"`
		}
	}
	err := readContext(filepath.Join(dir, "contexts", "meta", hex.EncodeToString(sum[:]), "meta.json"), &meta)
	switch {
	case err != nil:
		return dockerContext{}, fmt.Errorf("reading the context %q of docker: %w; choose another: docker context use default", c.name, err)
	case meta.Name != c.name:
		return dockerContext{}, fmt.Errorf("reading the context %q of docker: it is that of %q; choose another: docker context use default", c.name, meta.Name)
	}
	c.host = meta.Endpoints.Docker.Host
	return c, nil
}

func currentContext(dir string) (string, error) {
	var conf struct {
		CurrentContext string `json:"currentContext"`
	}
	err := readContext(filepath.Join(dir, "config.json"), &conf)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	return conf.CurrentContext, err
}

func readContext(name string, into any) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxContext+1))
	if err == nil && len(text) > maxContext {
		err = fmt.Errorf("%s has more than %d bytes", name, maxContext)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// byContext puts the context of docker that is called name, or its current one, in the place
// of those where a Docker listens by default: it is the one that its user has chosen. One
// that leads to another machine is a place where nobody listens, which why says. dir is
// where docker keeps contexts, "" what it has in home.
func byContext(list []place, home, dir, name string) (changed []place, why error) {
	if dir == "" {
		dir = filepath.Join(home, ".docker")
	}
	c, err := contextOf(dir, name)
	if err == nil && c.name == "" {
		return list, nil
	}
	for _, p := range list {
		if p.kind != RuntimeDocker {
			changed = append(changed, p)
		}
	}
	if err != nil {
		return changed, err
	}
	socket, err := ParseHost(c.host)
	if err != nil {
		return changed, fmt.Errorf("the context %q of docker: %w; choose another: docker context use default", c.name, err)
	}
	return append(changed, place{socket: socket, kind: RuntimeDocker, own: beneathHome(socket, home), context: c.name}), nil
}

// beneathHome reports whether a socket is one of our own user's.
func beneathHome(socket, home string) bool {
	return isBeneath(socket, home) || isBeneath(socket, fmt.Sprintf("/run/user/%d", os.Getuid()))
}
