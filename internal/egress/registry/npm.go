package registry

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/mod/semver"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// npm is the protocol of npm registries
// (https://github.com/npm/registry/blob/main/docs/REGISTRY-API.md).
type npm struct{}

// read knows the document of a package, its files, the keys of signatures, and the
// reports of audits, which are answered here: they would name everything installed.
func (npm) read(method, path string) ask {
	switch {
	case path == "-/ping":
		return ask{kind: answered, answer: "{}"}
	case method == http.MethodPost && (path == "-/npm/v1/security/advisories/bulk" || path == "-/npm/v1/security/audits/quick" || path == "-/npm/v1/security/audits"):
		return ask{kind: answered, answer: "{}"}
	case path == "-/npm/v1/keys":
		return ask{kind: passed}
	case strings.HasPrefix(path, "-/"):
		return refuse("%q reads no package: search, accounts and tokens of the registry are out of reach", path)
	}
	path = strings.Replace(path, "%2F", "/", 1)
	path = strings.Replace(path, "%2f", "/", 1)
	path = strings.TrimSuffix(path, "/")
	if name, file, ok := strings.Cut(path, "/-/"); ok {
		version, isFile := strings.CutSuffix(strings.TrimPrefix(file, name[strings.LastIndexByte(name, '/')+1:]+"-"), ".tgz")
		if !npmName(name) || !isFile || strings.Contains(file, "/") || !semver.IsValid("v"+version) {
			return refuse("%q is no file of a package", path)
		}
		return ask{kind: artifact, name: name, version: version, file: name + "@" + version}
	}
	if !npmName(path) {
		return refuse("%q is no name of a package", path)
	}
	return ask{kind: metadata, name: path}
}

// npmName reports whether s is a name, with its scope or without.
func npmName(s string) bool {
	if scope, base, ok := strings.Cut(s, "/"); ok {
		return strings.HasPrefix(scope, "@") && plainName(scope[1:]) && plainName(base)
	}
	return plainName(s)
}

// plainName reports whether s has only letters that every registry allows in a name.
func plainName(s string) bool {
	return s != "" && len(s) <= 214 && s[0] != '.' && s[0] != '-' &&
		strings.Trim(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-~") == ""
}

// packument is the document of a package.
type packument struct {
	rest map[string]json.RawMessage
	tags map[string]string
	each map[string]json.RawMessage
	time map[string]json.RawMessage
	all  []version
}

var limits = strictjson.Limits{Size: MaxMetadata, Depth: strictjson.MaxDepth}

func (npm) versions(_ *Handler, t trip, a ask, _ http.Header, body []byte) (page, error) {
	if err := strictjson.CheckLimits(body, limits); err != nil {
		return nil, err
	}
	p := &packument{}
	if err := json.Unmarshal(body, &p.rest); err != nil {
		return nil, err
	}
	for name, into := range map[string]any{"versions": &p.each, "time": &p.time, "dist-tags": &p.tags} {
		if raw := p.rest[name]; raw != nil {
			if err := json.Unmarshal(raw, into); err != nil {
				return nil, fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	var own string
	if err := json.Unmarshal(p.rest["name"], &own); err != nil || own != a.name {
		return nil, errors.New("it is of another package")
	}
	for _, number := range sortedKeys(p.each) {
		v, err := p.version(t, a.name, number)
		if err != nil {
			return nil, err
		}
		v.place = len(p.all)
		p.all = append(p.all, v)
	}
	return p, nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// version reads one entry. A version without a hash has none of its files known.
func (p *packument) version(_ trip, name, number string) (version, error) {
	var entry struct {
		Dist struct {
			Integrity string `json:"integrity"`
			Shasum    string `json:"shasum"`
		} `json:"dist"`
	}
	if err := json.Unmarshal(p.each[number], &entry); err != nil {
		return version{}, fmt.Errorf("version %q: %w", number, err)
	}
	v := version{name: name, version: number, hash: integrity(entry.Dist.Integrity)}
	if v.hash.kind == "" {
		v.hash = hexHash("sha1", entry.Dist.Shasum)
	}
	if v.hash.kind != "" {
		v.file = name + "@" + number
	}
	var when string
	if json.Unmarshal(p.time[number], &when) == nil {
		v.published = timeOf(when)
	}
	return v, nil
}

// timeOf reads a time as registries write it; what it cannot read is unknown.
func timeOf(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return time.Time{}
	}
	return t
}

func (p *packument) versions() []version { return p.all }

func (p *packument) write(withheld func(int) bool, _ string) ([]byte, string, error) {
	var left []version
	for _, v := range p.all {
		if withheld(v.place) {
			delete(p.each, v.version)
			delete(p.time, v.version)
			continue
		}
		left = append(left, v)
	}
	for tag, number := range p.tags {
		if p.each[number] != nil {
			continue
		}
		delete(p.tags, tag)
		if best := latest(left, number); tag == "latest" && best != "" {
			p.tags[tag] = best
		}
	}
	for name, part := range map[string]any{"versions": p.each, "time": p.time, "dist-tags": p.tags} {
		if p.rest[name] == nil {
			continue
		}
		raw, err := json.Marshal(part)
		if err != nil {
			return nil, "", err
		}
		p.rest[name] = raw
	}
	body, err := json.Marshal(p.rest)
	return body, "application/json", err
}

// latest is the greatest of left that is not above was and no pre-release; else the
// greatest that is no pre-release, else the one published last.
func latest(left []version, was string) (best string) {
	above := ""
	var last version
	for _, v := range left {
		number := "v" + v.version
		if last.version == "" || v.published.After(last.published) {
			last = v
		}
		if !semver.IsValid(number) || semver.Prerelease(number) != "" {
			continue
		}
		if semver.Compare(number, "v"+was) <= 0 {
			if best == "" || semver.Compare(number, "v"+best) > 0 {
				best = v.version
			}
		} else if above == "" || semver.Compare(number, "v"+above) > 0 {
			above = v.version
		}
	}
	switch {
	case best != "":
		return best
	case above != "":
		return above
	}
	return last.version
}

// acceptOf is what metadata is asked for: npm's short form has no times.
func acceptOf(e Ecosystem) string {
	switch e {
	case NPM:
		return "application/json"
	case PyPI:
		return "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
	case Cargo, Go, Debian:
	}
	return "*/*"
}

// metadataOf is where the metadata of a package is; of Go and Debian there is none.
func metadataOf(p Place, name string) weburl.URL {
	path := name + "/"
	if p.Ecosystem == NPM {
		path = strings.Replace(name, "/", "%2F", 1)
	}
	if p.Ecosystem == Cargo {
		path = cargoPath(name)
	}
	u := p.URL
	u.Path = strings.TrimSuffix(u.Path, "/") + "/" + path
	return u
}
