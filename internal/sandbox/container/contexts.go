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

// contextOf reads the current context of docker in the home directory of a user; a zero one
// says that there is none. The files are config.json, whose currentContext it is, and
// contexts/meta/SHA256-OF-NAME/meta.json (https://docs.docker.com/engine/manage-resources/contexts/).
func contextOf(home string) (dockerContext, error) {
	dir := filepath.Join(home, ".docker")
	var conf struct {
		CurrentContext string `json:"currentContext"`
	}
	switch err := readContext(filepath.Join(dir, "config.json"), &conf); {
	case errors.Is(err, fs.ErrNotExist):
		return dockerContext{}, nil
	case err != nil:
		return dockerContext{}, fmt.Errorf("reading which context docker has: %w", err)
	case conf.CurrentContext == "" || conf.CurrentContext == defaultContext:
		return dockerContext{}, nil
	}
	c := dockerContext{name: conf.CurrentContext}
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

// byContext puts the current context of docker in the place of those where a Docker listens
// by default: it is the one that its user has chosen. One that leads to another machine is
// a place where nobody listens, which why says.
func byContext(list []place, home string) (changed []place, why error) {
	c, err := contextOf(home)
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
