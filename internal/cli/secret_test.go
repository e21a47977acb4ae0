package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/act/loan"
	"ringfence/internal/sys/paths"
)

// TestSecretFlags: what flags say is the place that is meant, or a mistake in them.
func TestSecretFlags(t *testing.T) {
	for _, c := range []struct {
		name string
		f    secretFlags
		want string // the places, with commas; "" for a mistake
	}{
		{"plain", secretFlags{scheme: "https", hosts: []string{"a.example"}}, "https://a.example in Authorization: Bearer {}"},
		{"two hosts", secretFlags{scheme: "https", hosts: []string{"a.example", "b.example"}, path: "/v1"}, "https://a.example/v1 in Authorization: Bearer {},https://b.example/v1 in Authorization: Bearer {}"},
		{"basic", secretFlags{scheme: "https", hosts: []string{"a.example"}, basic: true}, "https://a.example in Authorization: Basic {}"},
		{"narrow", secretFlags{scheme: "http", hosts: []string{"A.example"}, port: 81, methods: []string{"get"}, header: "X-Key"}, "GET http://a.example:81 in X-Key: {}"},
		{"query", secretFlags{scheme: "https", hosts: []string{"a.example"}, query: "key"}, "https://a.example in ?key={}"},
		{"openai", secretFlags{scheme: "https"}, "https://api.openai.com/v1 in Authorization: Bearer {}"},
		{"bound to nothing", secretFlags{scheme: "https"}, "-"},
		{"a path without a host", secretFlags{scheme: "https", path: "/v1"}, ""},
		{"two forms", secretFlags{scheme: "https", hosts: []string{"a.example"}, basic: true, header: "x"}, ""},
		{"another scheme", secretFlags{scheme: "ftp", hosts: []string{"a.example"}}, ""},
		{"no host", secretFlags{scheme: "https", hosts: []string{"a b"}}, ""},
	} {
		_, bound, err := c.f.bindings(c.name)
		var texts []string
		for _, b := range bound {
			texts = append(texts, b.String())
		}
		got := strings.Join(texts, ",")
		if err == nil && got == "" {
			got = "-"
		}
		if e, ok := errors.AsType[*exitError](err); got != c.want || (c.want == "") != (ok && e.code == codeUsage) {
			t.Errorf("%s: %q, %v", c.name, got, err)
		}
	}
}

// TestReadSecret: the value is one line.
func TestReadSecret(t *testing.T) {
	for in, want := range map[string]string{"a secret\n": "a secret", "a secret": "a secret", "a secret\r\n\n": "a secret", "two\nlines\n": "", "": ""} {
		s := &streams{in: strings.NewReader(in)}
		got, err := s.readSecret(context.Background(), "x")
		if string(got) != want || (err != nil) != strings.HasPrefix(in, "two") || err != nil && strings.Contains(err.Error(), "two") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// TestOwnSecrets: the environment wins over --env-file, that over .env of the home; the
// working directory is not looked at, and no error tells a value.
func TestOwnSecrets(t *testing.T) {
	dir := t.TempDir()
	for _, p := range loan.Providers() {
		for _, v := range p.Variables {
			t.Setenv(v, "")
		}
	}
	t.Setenv(paths.EnvHome, filepath.Join(dir, "home"))
	t.Chdir(dir)
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
		return path
	}
	look := func(envFile string) string {
		own, err := ownSecrets(loan.Providers(), envFile)
		var out []string
		for _, o := range own {
			out = append(out, o.Name+"="+string(o.Value))
		}
		return fmt.Sprint(strings.Join(out, " "), err)
	}
	file(".env", "OPENAI_API_KEY=of-the-working-directory\n")
	if got := look(""); got != "<nil>" {
		t.Errorf("nothing: %s", got)
	}
	file("home/.env", "OPENAI_API_KEY=of-the-home\nOTHER=x\nANTHROPIC_API_KEY=of-the-home\n")
	named := file("named", "export OPENAI_API_KEY='of-the-file'\n")
	t.Setenv("GOOGLE_GENERATIVE_AI_API_KEY", "of-the-environment")
	if got := look(named); got != "anthropic=of-the-home openai=of-the-file google=of-the-environment<nil>" {
		t.Errorf("all three: %s", got)
	}
	t.Setenv("OPENAI_API_KEY", "of-the-environment")
	if got := look(named); !strings.Contains(got, "openai=of-the-environment") {
		t.Errorf("the environment: %s", got)
	}
	if _, err := ownSecrets(loan.Providers(), filepath.Join(dir, "missing")); err == nil {
		t.Error("a named file that is not there was passed over")
	}
	file("named", "OPENAI_API_KEY=\"of-the-file\n")
	_, err := ownSecrets(loan.Providers(), named)
	if err == nil || bytes.Contains([]byte(err.Error()), []byte("of-the-file")) {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
