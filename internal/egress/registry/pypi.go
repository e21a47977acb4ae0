package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"mime"
	"net/http"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// pypi is the simple API of Python's indexes (PEP 503, 691, 700, 714). Upstream is asked
// for JSON, which has times and hashes; an index that has only HTML is not served.
type pypi struct{}

func (pypi) read(_, path string) ask {
	name := strings.TrimSuffix(path, "/")
	switch {
	case name == "":
		return refuse("the list of all packages is not handed out")
	case !plainName(name):
		return refuse("%q is no name of a package", path)
	}
	return ask{kind: metadata, name: normalised(name)}
}

// normalised is the normal form of a name (PEP 503).
func normalised(s string) string {
	parts := strings.FieldsFunc(strings.ToLower(s), func(r rune) bool { return r == '-' || r == '_' || r == '.' })
	return strings.Join(parts, "-")
}

const simpleJSON = "application/vnd.pypi.simple.v1+json"

// project is the page of one project.
type project struct {
	name  string
	meta  json.RawMessage
	files []pypiFile
	raw   []json.RawMessage
	all   []version
}

// pypiFile is one file of a project.
type pypiFile struct {
	Filename string            `json:"filename"`
	URL      string            `json:"url"`
	Hashes   map[string]string `json:"hashes"`
	Requires *string           `json:"requires-python"`
	Yanked   any               `json:"yanked"`
	Upload   string            `json:"upload-time"`
	Core     any               `json:"core-metadata"`
}

func (pypi) versions(h *Handler, t trip, a ask, header http.Header, body []byte) (page, error) {
	if media, _, err := mime.ParseMediaType(header.Get("Content-Type")); err != nil || media != simpleJSON && media != "application/json" {
		return nil, errors.New("the index has no JSON, so no times and hashes")
	}
	if err := strictjson.CheckLimits(body, limits); err != nil {
		return nil, err
	}
	var doc struct {
		Meta  json.RawMessage   `json:"meta"`
		Name  string            `json:"name"`
		Files []json.RawMessage `json:"files"`
	}
	if err := json.Unmarshal(body, &doc); err != nil {
		return nil, err
	}
	if normalised(doc.Name) != a.name {
		return nil, errors.New("it is of another package")
	}
	p := &project{name: doc.Name, meta: doc.Meta}
	for _, raw := range doc.Files {
		var f pypiFile
		if err := json.Unmarshal(raw, &f); err != nil {
			return nil, err
		}
		if err := p.add(h, t, a.name, f, raw); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// add takes in one file; one whose name says no version, or that is elsewhere than at an
// address of the web, is left out.
func (p *project) add(h *Handler, t trip, name string, f pypiFile, raw json.RawMessage) error {
	number := pypiVersion(name, f.Filename)
	if strings.HasPrefix(f.URL, "/") && !strings.HasPrefix(f.URL, "//") {
		f.URL = t.place.URL.Scheme + "://" + t.place.URL.HostPort() + f.URL
	} else if !strings.Contains(f.URL, "://") {
		return fmt.Errorf("file %q: %q is no address", f.Filename, f.URL)
	}
	u, err := weburl.Parse(f.URL)
	if err != nil || number == "" {
		return nil //nolint:nilerr // what cannot be named is not offered
	}
	at := u.Request().String()
	place := len(p.files)
	v := version{name: name, version: number, published: timeOf(f.Upload), hash: hexHash("sha256", f.Hashes["sha256"]), place: place}
	if v.hash.kind != "" {
		v.file = at
		h.serves(t.place, u.Host)
	}
	p.files, p.raw, p.all = append(p.files, f), append(p.raw, raw), append(p.all, v)
	if core := coreHash(f.Core); core.kind != "" && v.file != "" {
		side := v
		side.hash, side.file = core, at+".metadata"
		p.all = append(p.all, side)
	}
	return nil
}

// serves takes in that files of p are at host.
func (h *Handler) serves(p Place, host weburl.Host) {
	if host == p.URL.Host {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.hosts[host]; !ok && len(h.hosts) < 64 {
		h.hosts[host] = p
	}
}

// coreHash is the hash of a file's metadata, where the index has it apart (PEP 714).
func coreHash(core any) hash {
	m, ok := core.(map[string]any)
	if !ok {
		return hash{}
	}
	sum, _ := m["sha256"].(string)
	return hexHash("sha256", sum)
}

// pypiVersion is the version in the name of a file of a project, "" if there is none.
func pypiVersion(project, file string) string {
	stem, wheel := strings.CutSuffix(file, ".whl")
	if !wheel {
		for _, end := range []string{".tar.gz", ".zip", ".tar.bz2"} {
			if s, ok := strings.CutSuffix(file, end); ok {
				stem = s
				break
			}
		}
		if stem == file {
			return ""
		}
	}
	for i := range stem {
		if stem[i] != '-' || normalised(stem[:i]) != project {
			continue
		}
		number := stem[i+1:]
		if wheel {
			number, _, _ = strings.Cut(number, "-")
		}
		if number == "" || strings.Trim(number, "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.+_!-") != "" {
			return ""
		}
		return strings.ReplaceAll(number, "!", "_")
	}
	return ""
}

func (p *project) versions() []version { return p.all }

func (p *project) write(withheld func(int) bool, accept string) ([]byte, string, error) {
	if strings.Contains(accept, simpleJSON) {
		files := []json.RawMessage{}
		numbers := map[string]bool{}
		for _, v := range p.all {
			if !withheld(v.place) && !strings.HasSuffix(v.file, ".metadata") {
				files = append(files, p.raw[v.place])
				numbers[v.version] = true
			}
		}
		body, err := json.Marshal(map[string]any{"meta": p.meta, "name": p.name, "files": files, "versions": sortedKeys(numbers)})
		return body, simpleJSON, err
	}
	var b strings.Builder
	b.WriteString("<!DOCTYPE html>\n<html><head><meta name=\"pypi:repository-version\" content=\"1.1\"></head><body>\n")
	for i, f := range p.files {
		if withheld(i) {
			continue
		}
		link := f.URL
		if sum := f.Hashes["sha256"]; sum != "" {
			link += "#sha256=" + sum
		}
		fmt.Fprintf(&b, "<a href=\"%s\"", html.EscapeString(link))
		if f.Requires != nil {
			fmt.Fprintf(&b, " data-requires-python=\"%s\"", html.EscapeString(*f.Requires))
		}
		if why, ok := f.Yanked.(string); ok {
			fmt.Fprintf(&b, " data-yanked=\"%s\"", html.EscapeString(why))
		} else if f.Yanked == true {
			b.WriteString(" data-yanked=\"\"")
		}
		if core := coreHash(f.Core); core.kind != "" {
			fmt.Fprintf(&b, " data-core-metadata=\"sha256=%x\"", core.sum)
		}
		fmt.Fprintf(&b, ">%s</a><br>\n", html.EscapeString(f.Filename))
	}
	b.WriteString("</body></html>\n")
	return []byte(b.String()), "application/vnd.pypi.simple.v1+html", nil
}
