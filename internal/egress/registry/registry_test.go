package registry

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

var today = time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC)

// A world is a set of registries, a judge and a client, which write down what happens.
type world struct {
	mu     sync.Mutex
	files  map[string][]byte
	media  map[string]string
	denied []string // patterns of packages
	hours  int64    // packages must be that old
	log    strings.Builder
}

func (w *world) say(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fmt.Fprintf(&w.log, format+"\n", args...)
}

// RoundTrip is the registries.
func (w *world) RoundTrip(r *http.Request) (*http.Response, error) {
	var with []string
	for _, name := range []string{"Authorization", "Cookie", "Range"} {
		if r.Header.Get(name) != "" {
			with = append(with, name)
		}
	}
	w.say("  up %s %s %v", r.Method, r.URL, with)
	rec := httptest.NewRecorder()
	body, ok := w.files[r.URL.String()]
	switch {
	case !ok:
		http.NotFound(rec, r)
	case strings.HasPrefix(string(body), "redirect "):
		rec.Header().Set("Location", strings.TrimSpace(strings.TrimPrefix(string(body), "redirect ")))
		rec.WriteHeader(http.StatusFound)
	default:
		rec.Header().Set("Content-Type", w.media[r.URL.String()])
		if r.Method != http.MethodHead {
			rec.Write(body) //nolint:errcheck // it is memory
		}
	}
	resp := rec.Result()
	resp.Request = r
	return resp, nil
}

func (w *world) allows(r act.Resource) bool {
	name := strings.ReplaceAll(r.Text, "/", "|")
	for _, p := range w.denied {
		if ok, err := path.Match(strings.ReplaceAll(p, "/", "|"), name); ok || err != nil {
			return false
		}
	}
	age, known := r.Facts[act.FactAgeHours].(int64)
	return w.hours == 0 || !strings.Contains(r.Text[5:], "@") || known && age >= w.hours
}

func (w *world) Offered(_ context.Context, at string, offers []act.Resource) (withheld []int, err error) {
	var said []string
	for i, o := range offers {
		mark := "+"
		if !w.allows(o) {
			withheld, mark = append(withheld, i), "-"
		}
		age := "?"
		if a, ok := o.Facts[act.FactAgeHours]; ok {
			age = fmt.Sprint(a, "h")
		}
		said = append(said, mark+o.Text+" "+age)
	}
	w.say("  offered %s", strings.Join(said, ", "))
	return withheld, nil
}

func (w *world) Install(_ context.Context, at string, pkg act.Resource) (func(Outcome), error) {
	if !w.allows(pkg) {
		w.say("  install %s: denied", pkg)
		return nil, &DeniedError{pkg.Text + " may not be installed"}
	}
	w.say("  install %s: allowed", pkg)
	return func(o Outcome) { w.say("  done %d %d %s", o.Status, o.Bytes, o.Error) }, nil
}

func (w *world) Pass(_ context.Context, at string) (func(Outcome), error) {
	w.say("  pass %s", at)
	return func(o Outcome) { w.say("  done %d %d %s", o.Status, o.Bytes, o.Error) }, nil
}

func (w *world) Refuse(_ context.Context, at, why string) { w.say("  refused %s: %s", at, why) }

var sumOf = regexp.MustCompile(`\{(sha256|sri) ([^}]*)\}`)

// expand puts in the hashes of files.
func (w *world) expand(text []byte) []byte {
	return sumOf.ReplaceAllFunc(text, func(m []byte) []byte {
		part := sumOf.FindSubmatch(m)
		body := w.files[string(part[2])]
		if string(part[1]) == "sri" {
			sum := sha512.Sum512(body)
			return []byte("sha512-" + base64.StdEncoding.EncodeToString(sum[:]))
		}
		return fmt.Appendf(nil, "%x", sha256.Sum256(body))
	})
}

// run makes the requests of a case and returns what happened.
func (w *world) run(t *testing.T, script string) string {
	t.Helper()
	var o Options
	var h *Handler
	for line := range strings.Lines(script) {
		word := strings.Fields(line)
		switch {
		case len(word) == 0 || word[0] == "#":
		case word[0] == "place":
			u, err := weburl.Parse(word[2])
			if err != nil {
				t.Fatal(err)
			}
			o.Places = append(o.Places, Place{Ecosystem: Ecosystem(word[1]), URL: u})
		case word[0] == "deny":
			w.denied = word[1:]
		case word[0] == "age":
			fmt.Sscan(word[1], &w.hours) //nolint:errcheck // zero fails the case
		default:
			if h == nil {
				o.Upstream, o.Now = w, func() time.Time { return today }
				var err error
				if h, err = New(o); err != nil {
					t.Fatal(err)
				}
			}
			w.ask(t, h, word)
		}
	}
	return w.log.String()
}

// ask makes one request: a method, an address, and headers as name=value.
func (w *world) ask(t *testing.T, h *Handler, word []string) {
	t.Helper()
	u, err := weburl.Parse(word[1])
	if err != nil {
		t.Fatal(err)
	}
	r := httptest.NewRequest(word[0], u.String(), http.NoBody)
	for _, one := range word[2:] {
		name, value, _ := strings.Cut(one, "=")
		r.Header.Set(name, value)
	}
	w.say("%s", strings.Join(word, " "))
	if !h.Serves(u) {
		w.say("< not a registry")
		return
	}
	rec := httptest.NewRecorder()
	h.Serve(rec, r, u, w)
	body, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	w.say("< %d %s %d bytes\n%s", rec.Code, rec.Header().Get("Content-Type"), len(body), bytes.TrimSpace(body))
}

func TestCases(t *testing.T) {
	files, err := filepath.Glob("testdata/cases/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no cases: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			w := &world{files: map[string][]byte{}, media: map[string]string{}}
			want, at := "", -1
			for i, f := range a.Files {
				if f.Name == "want" {
					want, at = string(f.Data), i
					continue
				}
				name, media, _ := strings.Cut(f.Name, " ")
				w.files[name], w.media[name] = bytes.TrimSuffix(f.Data, []byte("\n")), media
			}
			for name, body := range w.files {
				w.files[name] = w.expand(body)
			}
			got := w.run(t, string(a.Comment))
			if got == want {
				return
			}
			if os.Getenv("RINGFENCE_TEST_UPDATE") == "" || at < 0 {
				t.Fatalf("happened:\n%s\nwanted:\n%s", got, want)
			}
			a.Files[at].Data = []byte(got)
			if err := os.WriteFile(file, txtar.Format(a), 0o644); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// FuzzMetadata: whatever a registry answers, nothing panics, and a file whose hash is
// not the promised one is never whole.
func FuzzMetadata(f *testing.F) {
	f.Add("npm", "left-pad", "application/json", []byte(`{"name":"left-pad","versions":{"1.0.0":{"dist":{"integrity":"sha512-AA=="}}},"dist-tags":{"latest":"2.0.0"}}`))
	f.Add("pypi", "x/", simpleJSON, []byte(`{"name":"x","files":[{"filename":"x-1.0.tar.gz","url":"/f/x-1.0.tar.gz","hashes":{"sha256":"00"}}]}`))
	f.Add("cargo", "se/rd/serde", "text/plain", []byte(`{"name":"serde","vers":"1.0.0","cksum":"00"}`))
	f.Add("go", "a.test/m/@v/list", "text/plain", []byte("v1.0.0\nv1.1.0-rc.1\n"))
	f.Add("debian", "pool/main/a/a_1_all.deb", "text/plain", []byte("x"))
	f.Fuzz(func(t *testing.T, ecosystem, below, media string, body []byte) {
		u, err := weburl.Parse("https://r.test/" + below)
		if err != nil || protocols[Ecosystem(ecosystem)] == nil {
			return
		}
		w := &world{files: map[string][]byte{}, media: map[string]string{}, hours: 48}
		for _, at := range []string{u.String(), "https://r.test/config.json"} {
			w.files[at], w.media[at] = body, media
		}
		root, err := weburl.Parse("https://r.test/")
		if err != nil {
			t.Fatal(err)
		}
		h, err := New(Options{Places: []Place{{Ecosystem: Ecosystem(ecosystem), URL: root}}, Upstream: w, Now: func() time.Time { return today }})
		if err != nil {
			t.Fatal(err)
		}
		rec := httptest.NewRecorder()
		h.Serve(rec, httptest.NewRequest(http.MethodGet, "https://r.test/", http.NoBody), u, w)
		if rec.Code == http.StatusOK && !strings.Contains(w.log.String(), "+") && !strings.Contains(w.log.String(), "pass ") && rec.Body.String() != "{}" {
			t.Fatalf("answered without anybody's leave: %s", rec.Body)
		}
	})
}
