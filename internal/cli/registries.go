package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/config"
	"ringfence/internal/egress/registry"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/paths"
	"ringfence/internal/sys/proc"
)

// A knownRegistry is one registry, and what named it.
type knownRegistry struct {
	registry.Place
	By string // "/etc/pip.conf", "npm config get registry", "config.json"
}

// registriesOf returns the registries that this machine is set up for: those of the
// configuration, of the settings of package managers, and those that the managers
// themselves say they use. wrong says what could not be read.
func registriesOf(ctx context.Context, conf config.Config) (all []knownRegistry, wrong []string) {
	add := func(by string, places []registry.Place, err error) {
		if err != nil {
			wrong = append(wrong, by+": "+err.Error())
		}
		for _, p := range places {
			if !slices.ContainsFunc(all, func(f knownRegistry) bool { return f.Ecosystem == p.Ecosystem && f.URL == p.URL }) {
				all = append(all, knownRegistry{p, by})
			}
		}
	}
	add("config.json", conf.Network.Registries, nil)
	asked := newManagers()
	for _, c := range registry.Clients() {
		for _, file := range settingsFiles(c) {
			text, err := readSettings(file)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			var places []registry.Place
			if err == nil {
				asked.saw(file, text)
				places, err = c.Settings(text)
			}
			add(file, places, err)
		}
	}
	for _, c := range registry.Clients() {
		if said, ok := asked.say(ctx, c); ok {
			places, err := c.Said(said)
			add(strings.Join(c.Ask[:min(len(c.Ask), 4)], " "), places, err)
		}
	}
	return all, append(wrong, asked.wrong...)
}

// placesOf are the registries alone.
func placesOf(all []knownRegistry) []registry.Place {
	out := make([]registry.Place, len(all))
	for i, f := range all {
		out[i] = f.Place
	}
	return out
}

// settingsFiles are the files of c on this machine, by name.
func settingsFiles(c registry.Client) (files []string) {
	home, err := paths.UserHome()
	for _, f := range c.Files {
		rest, own := strings.CutPrefix(f, "~/")
		if own && err != nil {
			continue
		}
		if own {
			f = filepath.Join(home, rest)
		}
		if !strings.Contains(f, "*") {
			files = append(files, f)
			continue
		}
		if all, err := filepath.Glob(f); err == nil { // the patterns are ours
			files = append(files, all...)
		}
	}
	return files
}

func readSettings(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(io.LimitReader(f, 1<<20+1))
}

// managers are the package managers of this machine, which are asked once for as long as
// they and their settings stay as they are: some take half a second.
type managers struct {
	file  string
	sum   []byte
	kept  map[string]string // by what was asked and of whom
	wrong []string
}

func newManagers() *managers {
	m := &managers{kept: map[string]string{}}
	home, err := paths.Home()
	if err != nil {
		return m
	}
	m.file = paths.RegistriesFile(home)
	if raw, err := os.ReadFile(m.file); err == nil {
		if strictjson.Unmarshal(raw, &m.kept) != nil {
			m.kept = map[string]string{} // it is only what was asked before
		}
	}
	return m
}

// saw takes in what settings there are.
func (m *managers) saw(file string, text []byte) {
	sum := sha256.Sum256(slices.Concat(m.sum, []byte(file), []byte{0}, text))
	m.sum = sum[:]
}

// say returns what c says of itself; ok is false if it is not here, or says nothing.
func (m *managers) say(ctx context.Context, c registry.Client) (said string, ok bool) {
	if len(c.Ask) == 0 {
		return "", false
	}
	program := programOf(c.Ask[0])
	if program == "" {
		return "", false
	}
	info, err := os.Stat(program)
	if err != nil {
		return "", false
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%x %s %d %d %q", m.sum, program, info.Size(), info.ModTime().UnixNano(), c.Ask))
	key := string(c.Ecosystem) + " " + hex.EncodeToString(sum[:16])
	if said, ok := m.kept[key]; ok {
		return said, said != ""
	}
	said, err = askManager(ctx, program, c.Ask[1:])
	if err != nil {
		m.wrong = append(m.wrong, strings.Join(c.Ask[:min(len(c.Ask), 4)], " ")+": "+err.Error())
		said = ""
	}
	for old := range m.kept {
		if strings.HasPrefix(old, string(c.Ecosystem)+" ") {
			delete(m.kept, old)
		}
	}
	m.kept[key] = said
	m.keep()
	return said, said != ""
}

// keep writes what was said for the next time. Where it cannot, they are asked again.
func (m *managers) keep() {
	raw, err := json.Marshal(m.kept)
	if err == nil && m.file != "" {
		err = atomicfile.Write(m.file, append(raw, '\n'), 0o600)
	}
	if err != nil {
		m.wrong = append(m.wrong, "keeping what package managers said: "+err.Error())
	}
}

// programOf is the program of that name of the system, "" if there is none.
func programOf(name string) string {
	for _, dir := range paths.SystemPath() {
		p := filepath.Join(dir, name)
		if info, err := os.Stat(p); err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0 {
			return p
		}
	}
	return ""
}

// managerTime is how long a package manager may take to say where its registry is.
const managerTime = 5 * time.Second

// askManager runs a package manager of this system, outside any project and any box, with
// nothing of the environment that could have been made by an agent.
func askManager(ctx context.Context, program string, args []string) (string, error) {
	dir, err := os.MkdirTemp("", "ringfence-ask-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an empty directory with one text
	home, err := paths.UserHome()
	if err != nil {
		return "", err
	}
	out := filepath.Join(dir, "said")
	child, err := proc.Detach(proc.Command{
		Argv: append([]string{program}, args...), Log: out,
		Env: []string{"HOME=" + home, "PATH=" + strings.Join(paths.SystemPath(), ":"), "LC_ALL=C", "NO_UPDATE_NOTIFIER=1", "GOTOOLCHAIN=local"},
	})
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, managerTime)
	defer cancel()
	select {
	case <-child.Done():
		if err := child.Err(); err != nil {
			return "", err
		}
	case <-ctx.Done():
		return "", errors.Join(ctx.Err(), child.Kill())
	}
	text, err := readSettings(out)
	return strings.TrimSpace(string(text)), err
}
