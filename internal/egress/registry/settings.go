package registry

import (
	"bufio"
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"ringfence/internal/act/weburl"
)

// A Client is a package manager whose settings say where its registries are.
type Client struct {
	Ecosystem Ecosystem
	// Files are where its settings are; "~/" is the home of the person. A name with
	// a star is every file of that pattern. Those of a project are not read: it is the
	// agent that writes there.
	// Variables are not read either: whoever starts us may have them from there.
	Files []string
	// Ask is the command that prints what is in force, its own default too; nil: none.
	Ask  []string
	read func(text []byte) ([]string, error)
}

// Clients returns the package managers that are known.
func Clients() []Client {
	return []Client{
		{NPM, []string{"/etc/npmrc", "~/.npmrc"}, []string{"npm", "config", "get", "registry"}, npmrc},
		{
			PyPI,
			[]string{"/etc/pip.conf", "~/.pip/pip.conf", "~/.config/pip/pip.conf"},
			[]string{"python3", "-I", "-c", "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"},
			pipConf,
		},
		{Cargo, []string{"~/.cargo/config.toml", "~/.cargo/config"}, nil, cargoToml},
		{Go, []string{"~/.config/go/env"}, []string{"go", "env", "GOPROXY"}, goEnv},
		{Debian, []string{"/etc/apt/sources.list", "/etc/apt/sources.list.d/*.list", "/etc/apt/sources.list.d/*.sources"}, nil, aptSources},
	}
}

// Settings returns the registries that a file of settings of c names. An address that
// cannot be one is in the error, and the others are returned all the same.
func (c Client) Settings(text []byte) ([]Place, error) {
	if len(text) > 1<<20 {
		return nil, fmt.Errorf("settings of %s: more than 1 MiB", c.Ecosystem)
	}
	found, err := c.read(text)
	if err != nil {
		return nil, fmt.Errorf("settings of %s: %w", c.Ecosystem, err)
	}
	return c.places(found)
}

// Said returns the registries in what the command of c printed.
func (c Client) Said(text string) ([]Place, error) {
	return c.places(strings.FieldsFunc(text, func(r rune) bool { return r == ',' || r == '|' || r <= ' ' }))
}

func (c Client) places(found []string) (places []Place, err error) {
	for _, text := range found {
		text = strings.TrimPrefix(strings.Trim(text, `"'`), "sparse+")
		if c.Ecosystem == Go && (text == "direct" || text == "off" || text == "") || strings.HasPrefix(text, "file:") {
			continue
		}
		u, bad := weburl.Parse(text)
		if bad != nil || u.HasQuery || u.Scheme != "http" && u.Scheme != "https" {
			err = fmt.Errorf("settings of %s: %q is no address of a registry", c.Ecosystem, redacted(text))
			continue
		}
		p := Place{Ecosystem: c.Ecosystem, URL: u.Request()}
		if !slices.ContainsFunc(places, func(q Place) bool { return q.URL == p.URL }) {
			places = append(places, p)
		}
	}
	return places, err
}

// redacted is an address without user name and password.
func redacted(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "(unreadable)"
	}
	return u.Redacted()
}

// lines visits the lines of text that are no comments, trimmed.
func lines(text []byte, visit func(line string, indented bool)) {
	s := bufio.NewScanner(bytes.NewReader(text))
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		line := s.Text()
		trimmed := strings.TrimSpace(line)
		if trimmed == "" || trimmed[0] == '#' || trimmed[0] == ';' {
			continue
		}
		visit(trimmed, line[0] == ' ' || line[0] == '\t')
	}
}

// npmrc reads https://docs.npmjs.com/cli/configuring-npm/npmrc: the registry, and those of scopes.
func npmrc(text []byte) (found []string, err error) {
	lines(text, func(line string, _ bool) {
		key, value, ok := strings.Cut(line, "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		if ok && (key == "registry" || strings.HasPrefix(key, "@") && strings.HasSuffix(key, ":registry")) {
			found = append(found, value)
		}
	})
	return found, nil
}

// pipConf reads https://pip.pypa.io/en/stable/topics/configuration/: addresses of indexes,
// which may go on in lines that are indented.
func pipConf(text []byte) (found []string, err error) {
	index := false
	lines(text, func(line string, indented bool) {
		key, value, ok := strings.Cut(line, "=")
		switch key = strings.ReplaceAll(strings.TrimSpace(key), "_", "-"); {
		case indented && index:
			found = append(found, strings.Fields(line)...)
			return
		case ok:
			index = key == "index-url" || key == "extra-index-url"
		default:
			index = false
		}
		if index {
			found = append(found, strings.Fields(value)...)
		}
	})
	return found, nil
}

// cargoToml reads https://doc.rust-lang.org/cargo/reference/config.html: sparse indexes.
func cargoToml(text []byte) (found []string, err error) {
	var conf struct {
		Source     map[string]struct{ Registry string }
		Registries map[string]struct{ Index string }
	}
	if _, err := toml.Decode(string(text), &conf); err != nil {
		return nil, err
	}
	for _, name := range sortedKeys(conf.Source) {
		found = append(found, conf.Source[name].Registry)
	}
	for _, name := range sortedKeys(conf.Registries) {
		found = append(found, conf.Registries[name].Index)
	}
	return slices.DeleteFunc(found, func(s string) bool { return !strings.HasPrefix(s, "sparse+") }), nil
}

// goEnv reads what "go env -w" wrote.
func goEnv(text []byte) (found []string, err error) {
	lines(text, func(line string, _ bool) {
		if value, ok := strings.CutPrefix(line, "GOPROXY="); ok {
			found = append(found, strings.FieldsFunc(value, func(r rune) bool { return r == ',' || r == '|' })...)
		}
	})
	return found, nil
}

// aptSources reads sources.list(5), in both its forms.
func aptSources(text []byte) (found []string, err error) {
	uris := false
	lines(text, func(line string, indented bool) {
		key, value, ok := strings.Cut(line, ":")
		switch {
		case strings.HasPrefix(line, "deb ") || strings.HasPrefix(line, "deb\t"):
			for _, word := range strings.Fields(line)[1:] {
				if strings.Contains(word, "://") && !strings.Contains(word, "=") {
					found = append(found, word)
				}
			}
			return
		case indented && uris:
			found = append(found, strings.Fields(line)...)
			return
		}
		uris = ok && strings.EqualFold(key, "URIs")
		if uris {
			found = append(found, strings.Fields(value)...)
		}
	})
	return slices.DeleteFunc(found, func(s string) bool { return strings.HasPrefix(s, "cdrom:") || strings.HasPrefix(s, "mirror") }), nil
}
