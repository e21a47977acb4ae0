package weburl

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

type vector struct {
	In  string `json:"in"`
	Out string `json:"out"`
	Err string `json:"err"` // a word of the error
}

func vectors(t testing.TB, name string) []vector {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []vector
	for sc := bufio.NewScanner(f); sc.Scan(); {
		var v vector
		if err := json.Unmarshal(sc.Bytes(), &v); err != nil {
			t.Fatalf("%s: %v in %s", name, err, sc.Text())
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		t.Fatalf("%s holds no vectors", name)
	}
	return all
}

func check(t *testing.T, file string, f func(in string) (string, error)) {
	t.Helper()
	for _, v := range vectors(t, file) {
		got, err := f(v.In)
		switch {
		case v.Err == "" && err != nil:
			t.Errorf("%q: %v, want %q", v.In, err, v.Out)
		case v.Err == "" && got != v.Out:
			t.Errorf("%q: got %q, want %q", v.In, got, v.Out)
		case v.Err != "" && err == nil:
			t.Errorf("%q: got %q, want an error with %q", v.In, got, v.Err)
		case v.Err != "" && !strings.Contains(err.Error(), v.Err):
			t.Errorf("%q: error %q does not mention %q", v.In, err, v.Err)
		}
	}
}

func TestVectors(t *testing.T) {
	check(t, "urls.jsonl", func(in string) (string, error) {
		u, err := Parse(in)
		return u.String(), err
	})
	check(t, "plain.jsonl", func(in string) (string, error) {
		u, err := Parse(in)
		return u.Plain().String(), err
	})
	check(t, "hostports.jsonl", func(in string) (string, error) {
		h, port, err := ParseHostPort(in)
		return h.WithPort(port), err
	})
	check(t, "embedded.jsonl", func(in string) (string, error) {
		h, err := ParseHost(in)
		if v4, ok := h.Embedded(); ok {
			return v4.String(), err
		}
		return "", err
	})
}

func TestBounds(t *testing.T) {
	long := strings.Repeat("a", MaxLen)
	if _, err := Parse("http://a/" + long); err == nil {
		t.Error("an overlong URL was accepted")
	}
	if _, err := ParseHost(long + "a"); err == nil {
		t.Error("an overlong host was accepted")
	}
	for _, in := range []string{"http://a/\xff", "http://\xff/"} {
		if _, err := Parse(in); err == nil {
			t.Errorf("%q: invalid UTF-8 was accepted", in)
		}
	}
	if _, err := ParseHost("%ff.example"); err == nil {
		t.Error("a host that unescapes to invalid UTF-8 was accepted")
	}
}

func TestRequest(t *testing.T) {
	u, err := Parse("https://a.org/x?y#z")
	if err != nil {
		t.Fatal(err)
	}
	if got := u.Request().String(); got != "https://a.org/x?y" {
		t.Errorf("Request: %s", got)
	}
	if got := u.HostPort(); got != "a.org:443" {
		t.Errorf("HostPort: %s", got)
	}
	if got := Escape("a/b ü~"); got != "a%2Fb%20%C3%BC~" {
		t.Errorf("Escape: %s", got)
	}
}

// FuzzParse checks U1 and U2, and that Plain is stable.
func FuzzParse(f *testing.F) {
	for _, v := range vectors(f, "urls.jsonl") {
		f.Add(v.In)
	}
	f.Fuzz(func(t *testing.T, s string) {
		u, err := Parse(s)
		if err != nil {
			return
		}
		again, err := Parse(u.String())
		if err != nil || again != u {
			t.Fatalf("U1: %q gives %q, which gives %q, %v", s, u, again, err)
		}
		p := u.Plain()
		if q, err := Parse(p.String()); err != nil || q != p || q.Plain() != p {
			t.Fatalf("Plain of %q is %q, which gives %q, %v", s, p, q, err)
		}
		host := u.Host.String()
		h, err := ParseHost(host)
		if err != nil || h != u.Host {
			t.Fatalf("U2: host %q gives %q, %v", host, h, err)
		}
		if strings.ToLower(host) != host || strings.ContainsAny(host, "@/\\?# ") {
			t.Fatalf("U2: host %q", host)
		}
	})
}

func BenchmarkParse(b *testing.B) {
	for b.Loop() {
		if _, err := Parse("https://Docs.Example.org/a/b/../c?q=1"); err != nil {
			b.Fatal(err)
		}
	}
}
