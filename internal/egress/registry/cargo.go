package registry

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/act/weburl"
)

// cargo is the protocol of sparse indexes of crates
// (https://doc.rust-lang.org/cargo/reference/registry-index.html).
type cargo struct{}

// read knows the configuration of the index and the file of a crate.
func (cargo) read(_, path string) ask {
	if path == "config.json" {
		return ask{kind: settings}
	}
	name := path[strings.LastIndexByte(path, '/')+1:]
	if !plainName(name) || path != cargoPath(name) {
		return refuse("%q is no entry of an index of crates", path)
	}
	return ask{kind: metadata, name: name}
}

// cargoPath is where in the index a crate is.
func cargoPath(name string) string {
	name = strings.ToLower(name)
	switch {
	case len(name) <= 2:
		return fmt.Sprintf("%d/%s", len(name), name)
	case len(name) == 3:
		return "3/" + name[:1] + "/" + name
	}
	return name[:2] + "/" + name[2:4] + "/" + name
}

// crates is one entry of the index: a line for each version.
type crates struct {
	lines [][]byte
	all   []version
}

func (cargo) versions(h *Handler, t trip, a ask, _ http.Header, body []byte) (page, error) {
	if !h.knowsFiles(t.place) {
		at := t.place.URL
		at.Path = strings.TrimSuffix(at.Path, "/") + "/config.json"
		conf, _, err := h.get(t.r.Context(), at.String(), "*/*")
		if err != nil {
			return nil, err
		}
		if _, err := h.cargoConfig(t.place, conf); err != nil {
			return nil, err
		}
	}
	c := &crates{}
	for line := range bytes.SplitSeq(body, []byte("\n")) {
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		if err := strictjson.Check(line); err != nil {
			return nil, err
		}
		var entry struct {
			Name    string `json:"name"`
			Vers    string `json:"vers"`
			Cksum   string `json:"cksum"`
			Pubtime string `json:"pubtime"`
		}
		if err := json.Unmarshal(line, &entry); err != nil {
			return nil, err
		}
		if !strings.EqualFold(entry.Name, a.name) {
			return nil, fmt.Errorf("a line is of %q", entry.Name)
		}
		v := version{
			name: entry.Name, version: entry.Vers, published: timeOf(entry.Pubtime),
			hash: hexHash("sha256", entry.Cksum), place: len(c.lines),
		}
		if v.hash.kind != "" {
			v.file = h.crateURL(t.place, entry.Name, entry.Vers, entry.Cksum)
		}
		c.lines, c.all = append(c.lines, line), append(c.all, v)
	}
	return c, nil
}

func (c *crates) versions() []version { return c.all }

func (c *crates) write(withheld func(int) bool, _ string) ([]byte, string, error) {
	var out []byte
	for i, line := range c.lines {
		if !withheld(i) {
			out = append(append(out, line...), '\n')
		}
	}
	return out, "text/plain", nil
}

// settings answers a read of the configuration of an index.
func (h *Handler) settings(t trip) {
	done, err := t.judge.Pass(t.r.Context(), t.at.String())
	if err != nil {
		t.fail(err)
		return
	}
	body, _, err := h.get(t.r.Context(), t.at.Request().String(), "*/*")
	if err == nil {
		body, err = h.cargoConfig(t.place, body)
	}
	if err != nil {
		t.fail(err)
		done(Outcome{Error: err.Error()})
		return
	}
	t.send(body, "application/json")
	done(Outcome{Status: http.StatusOK, Bytes: int64(len(body))})
}

// knowsFiles reports whether p has said where its files are.
func (h *Handler) knowsFiles(p Place) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.dl[p.URL] != ""
}

// cargoConfig takes in where the files of an index are, and returns its configuration
// without what needs an account.
func (h *Handler) cargoConfig(p Place, body []byte) ([]byte, error) {
	if err := strictjson.Check(body); err != nil {
		return nil, err
	}
	var conf struct {
		DL string `json:"dl"`
	}
	if err := json.Unmarshal(body, &conf); err != nil {
		return nil, err
	}
	u, err := weburl.Parse(strings.NewReplacer("{", "", "}", "").Replace(conf.DL))
	if err != nil || u.Scheme != p.URL.Scheme {
		return nil, fmt.Errorf("the place of its files, %q, is no address", conf.DL)
	}
	h.mu.Lock()
	h.hosts[u.Host] = p
	h.dl[p.URL] = conf.DL
	h.mu.Unlock()
	return json.Marshal(map[string]any{"dl": conf.DL})
}

// crateURL is where the file of a crate is, "" before the index said where its files are.
func (h *Handler) crateURL(p Place, name, vers, cksum string) string {
	h.mu.Lock()
	dl := h.dl[p.URL]
	h.mu.Unlock()
	if dl == "" {
		return ""
	}
	lower := strings.ToLower(name)
	dir := cargoPath(name)
	lowerDir := cargoPath(lower)
	at := strings.NewReplacer(
		"{crate}", name, "{version}", vers, "{sha256-checksum}", cksum,
		"{prefix}", strings.TrimSuffix(dir, "/"+lower), "{lowerprefix}", strings.TrimSuffix(lowerDir, "/"+lower),
	).Replace(dl)
	if !strings.Contains(dl, "{") {
		at += "/" + name + "/" + vers + "/download"
	}
	u, err := weburl.Parse(at)
	if err != nil {
		return ""
	}
	return u.Request().String()
}
