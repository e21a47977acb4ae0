package registry

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/module"
	"golang.org/x/mod/semver"

	"ringfence/internal/act"
	"ringfence/internal/act/strictjson"
)

// golang is the protocol of module proxies (https://go.dev/ref/mod#goproxy-protocol).
// The client checks what it gets against go.sum and the checksum database.
type golang struct{}

func (golang) read(_, path string) ask {
	if strings.HasPrefix(path, "sumdb/") {
		return ask{kind: passed}
	}
	escaped, rest, ok := strings.Cut(path, "/@")
	name, err := module.UnescapePath(escaped)
	if !ok || err != nil {
		return refuse("%q is no module", path)
	}
	switch file, isVersion := strings.CutPrefix(rest, "v/"); {
	case rest == "latest", rest == "v/list":
		return ask{kind: metadata, name: name}
	case !isVersion:
		return refuse("%q is no file of a module", path)
	default:
		dot := strings.LastIndexByte(file, '.')
		if dot < 0 {
			return refuse("%q is no file of a module", path)
		}
		number, err := module.UnescapeVersion(file[:dot])
		switch kind := file[dot+1:]; {
		case err != nil || !semver.IsValid(number) && kind != "info":
			return refuse("%q is no version of a module", path)
		case kind == "info" || kind == "mod":
			return ask{kind: metadata, name: name, version: number, file: kind}
		case kind == "zip":
			return ask{kind: artifact, name: name, version: number, file: name + "@" + number}
		}
	}
	return refuse("%q is no file of a module", path)
}

// maxDated is how many versions of a module, the greatest first, are asked for their time.
const maxDated = 40

// modules is what a proxy said: one text that goes as it came, or a list.
type modules struct {
	all   []version
	list  []string
	body  []byte
	media string
}

func (golang) versions(h *Handler, t trip, a ask, header http.Header, body []byte) (page, error) {
	m := &modules{body: body, media: header.Get("Content-Type")}
	if strings.HasSuffix(t.path, "/@v/list") {
		m.list = strings.Fields(string(body))
		slices.SortFunc(m.list, func(a, b string) int { return semver.Compare(b, a) })
		for i, number := range m.list {
			if !semver.IsValid(number) {
				return nil, errors.New("the list has what is no version")
			}
			v := version{name: a.name, version: number, place: i}
			if i < maxDated {
				v.published = h.dated(t, a.name, number)
			}
			m.all = append(m.all, v)
		}
		return m, nil
	}
	if a.file == "mod" {
		m.all = []version{{name: a.name, version: a.version, published: h.dated(t, a.name, a.version)}}
		return m, nil
	}
	number, when, err := infoOf(body)
	if err != nil {
		return nil, err
	}
	m.all = []version{{name: a.name, version: number, published: when, file: a.name + "@" + number}}
	if strings.HasSuffix(t.path, "/@latest") {
		return h.latestModule(t, a, m)
	}
	return m, nil
}

func (m *modules) versions() []version { return m.all }

func (m *modules) write(withheld func(int) bool, _ string) ([]byte, string, error) {
	if m.list == nil {
		if len(m.all) > 0 && withheld(m.all[0].place) {
			return nil, "", &DeniedError{"go:" + m.all[0].name + "@" + m.all[0].version + " may not be installed"}
		}
		return m.body, m.media, nil
	}
	var out strings.Builder
	for i, number := range m.list {
		if !withheld(i) {
			out.WriteString(number + "\n")
		}
	}
	return []byte(out.String()), "text/plain; charset=utf-8", nil
}

// infoOf reads the answer to a question for a version.
func infoOf(body []byte) (number string, when time.Time, err error) {
	var info struct {
		Version string
		Time    time.Time
	}
	if err := strictjson.Check(body); err != nil {
		return "", time.Time{}, err
	}
	if err := json.Unmarshal(body, &info); err != nil {
		return "", time.Time{}, err
	}
	if !semver.IsValid(info.Version) {
		return "", time.Time{}, errors.New("it names no version")
	}
	return info.Version, info.Time, nil
}

// dated is when a version was published, zero if the proxy does not say. It remembers
// the file, so that it is asked for once.
func (h *Handler) dated(t trip, name, number string) time.Time {
	if v, ok := h.known(t.place, name+"@"+number); ok {
		return v.published
	}
	path, err := escapedModule(name)
	escaped, errVersion := module.EscapeVersion(number)
	if err != nil || errVersion != nil {
		return time.Time{}
	}
	at := t.place.URL
	at.Path = strings.TrimSuffix(at.Path, "/") + "/" + path + "/@v/" + escaped + ".info"
	body, _, err := h.get(t.r.Context(), at.String(), "*/*")
	if err != nil {
		return time.Time{}
	}
	got, when, err := infoOf(body)
	if err != nil || got != number {
		return time.Time{}
	}
	h.remember(t.place, []version{{name: name, version: number, published: when, file: name + "@" + number}})
	return when
}

func escapedModule(name string) (string, error) { return module.EscapePath(name) }

// latestModule answers what the latest version is with one that may be had: the one the
// proxy says, or the greatest of its list.
func (h *Handler) latestModule(t trip, a ask, m *modules) (page, error) {
	ctx := t.r.Context()
	if ok, err := h.mayHave(ctx, t, m.all[0]); err != nil || ok {
		return m, err
	}
	path, err := escapedModule(a.name)
	if err != nil {
		return nil, err
	}
	at := t.place.URL
	base := strings.TrimSuffix(at.Path, "/") + "/" + path + "/@v/"
	at.Path = base + "list"
	body, _, err := h.get(ctx, at.String(), "*/*")
	if err != nil {
		return nil, err
	}
	numbers := strings.Fields(string(body))
	slices.SortFunc(numbers, func(a, b string) int { return semver.Compare(b, a) })
	for _, number := range numbers[:min(len(numbers), maxDated)] {
		if !semver.IsValid(number) || semver.Prerelease(number) != "" {
			continue
		}
		v := version{name: a.name, version: number, published: h.dated(t, a.name, number)}
		ok, err := h.mayHave(ctx, t, v)
		if err != nil {
			return nil, err
		}
		if ok {
			raw, err := json.Marshal(map[string]any{"Version": number, "Time": v.published})
			return &modules{all: []version{v}, body: raw, media: "application/json"}, err
		}
	}
	return m, nil
}

// mayHave asks whether one version may be shown.
func (h *Handler) mayHave(ctx context.Context, t trip, v version) (bool, error) {
	withheld, err := t.judge.Offered(ctx, t.at.String(), []act.Resource{v.resource(t.place.Ecosystem, h.o.Now())})
	return len(withheld) == 0, err
}
