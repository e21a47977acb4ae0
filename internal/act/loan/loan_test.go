package loan

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"ringfence/internal/act/weburl"
)

// rows returns the rows of a table: cells between bars.
func rows(t *testing.T, file string, cells int) (out [][]string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		row := strings.Split(line, " | ")
		if len(row) != cells {
			t.Fatalf("%s: %q has %d cells", file, line, len(row))
		}
		out = append(out, row)
	}
	return out
}

func TestCovers(t *testing.T) {
	for _, row := range rows(t, "testdata/covers.txt", 3) {
		var b Binding
		if err := json.Unmarshal([]byte(row[0]), &b); err != nil {
			t.Fatal(err)
		}
		method, text, _ := strings.Cut(row[1], " ")
		u, err := weburl.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		got := "error"
		if c, err := b.Canonical(); err == nil {
			if again, err := c.Canonical(); err != nil || again.String() != c.String() {
				t.Errorf("%s: %v is not canonical, %v", row[0], again, err)
			}
			got = map[bool]string{true: "yes", false: "no"}[c.Covers(method, u)]
		} else if !errors.Is(err, ErrBinding) {
			t.Errorf("%s: %v", row[0], err)
		}
		if got != row[2] {
			t.Errorf("%s and %s: %s, want %s", row[0], row[1], got, row[2])
		}
	}
	if (Binding{}).Covers("GET", weburl.URL{}) {
		t.Error("the zero binding covers something")
	}
}

func TestPosition(t *testing.T) {
	bearer, key := Position{Header: "authorization", Form: "Bearer {}"}, Position{Header: "x-api-key", Form: "{}"}
	anybody, someone := Position{Header: "authorization", Form: basicForm}, Position{Header: "authorization", Form: basicForm, User: "me"}
	for _, c := range []struct {
		p                 Position
		value, want, back string
		ok                bool
	}{
		{bearer, "Bearer abc", "abc", "Bearer X", true},
		{bearer, "bearer  abc ", "abc", "Bearer X", true},
		{bearer, "Basic abc", "", "", false},
		{bearer, "Bearer", "", "", false},
		{key, "abc", "abc", "X", true},
		{key, "", "", "", false},
		{anybody, "Basic bWU6YWJj", "abc", "Basic bWU6WA==", true},
		{someone, "basic bWU6YWJj", "abc", "Basic bWU6WA==", true},
		{someone, "Basic eW91OmFiYw==", "", "", false},
		{anybody, "Basic !", "", "", false},
		{Position{Query: "key"}, "abc", "", "", false},
	} {
		user, got, ok := c.p.Read(c.value)
		if ok != c.ok || ok && (got != c.want || c.p.Write(user, "X") != c.back) {
			t.Errorf("%s: %q is %q, %v; and back %q", c.p.Place(), c.value, got, ok, c.p.Write(user, "X"))
		}
	}
	for _, c := range []struct{ query, want string }{
		{"a=1&key=SENT&b=%20", "a=1&key=v%26l&b=%20"},
		{"%6bey=SE%4eT", "key=v%26l"},
		{"key=SENT&key=SENT", ""},
		{"key=SENT&key=other", ""},
		{"key=SENTx", ""},
		{"a=SENT", ""},
		{"", ""},
	} {
		if got, ok := SwapQuery(c.query, "key", "SENT", "v&l"); ok != (c.want != "") || ok && got != c.want {
			t.Errorf("%q became %q, %v", c.query, got, ok)
		}
	}
}

// TestSentinelShape: clients that look at a key accept what stands for it.
func TestSentinelShape(t *testing.T) {
	for value, form := range map[string]string{
		"sk-ant-api03-aB3dEf6hIj9lMn-pQrStUv_xYz012345AAA": `^sk-ant-api03-[A-Za-z0-9]{14}-[A-Za-z0-9]{7}_[A-Za-z0-9]{12}$`,
		"ghp_aB3dEf6hIj9lMnpQrStUvxYz012345AAAbbb":         `^ghp_[A-Za-z0-9]{36}$`,
		"AKIAABCDEFGHIJKLMNOP":                             `^AKIA[A-Z]{16}$`,
		"0123456789abcdef0123456789abcdef":                 `^[0-9a-f]{32}$`,
		"hunter2-hunter2":                                  `^[a-z0-9]{7}-[a-z0-9]{7}$`,
		"p@ss w/ord\"é!":                                   `^[a-z]@[a-z]{2}-[a-z]/[a-z]{3}---![a-z]{21}$`,
		"--------":                                         `^--------[a-z0-9]{25}$`,
	} {
		got, err := NewSentinel([]byte(value), rand.Reader)
		if err != nil || !regexp.MustCompile(form).MatchString(got) {
			t.Errorf("%s: %q, %v", value, got, err)
		}
	}
}

// TestSentinel is N3.
func TestSentinel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SliceOfN(rapid.Byte(), 8, 200).Draw(t, "value")
		a, err := NewSentinel(value, rand.Reader)
		b, err2 := NewSentinel(value, rand.Reader)
		if err != nil || err2 != nil || a == b || a == string(value) || len(a) < len(value) {
			t.Fatalf("%q %q: %v %v", a, b, err, err2)
		}
		if strings.ContainsFunc(a, func(r rune) bool { return r <= ' ' || r > '~' }) {
			t.Fatalf("%q has what no header has", a)
		}
	})
}

func TestDotEnv(t *testing.T) {
	for _, row := range rows(t, "testdata/dotenv.txt", 2) {
		var text string
		if err := json.Unmarshal([]byte(row[0]), &text); err != nil {
			t.Fatal(err)
		}
		got, err := DotEnv([]byte(text))
		if row[1] == "error" {
			if err == nil || strings.Contains(err.Error(), "c") && strings.Contains(err.Error(), text) {
				t.Errorf("%s: %v, %v", row[0], got, err)
			}
			continue
		}
		var want map[string]string
		if err := json.Unmarshal([]byte(row[1]), &want); err != nil {
			t.Fatal(err)
		}
		if err != nil || !maps.Equal(got, want) {
			t.Errorf("%s: %q, %v", row[0], got, err)
		}
	}
}

func FuzzDotEnv(f *testing.F) {
	f.Add([]byte("A=\"b\\n\"\nexport B='c'"))
	f.Fuzz(func(t *testing.T, text []byte) {
		set, err := DotEnv(text)
		for name, value := range set {
			if err != nil || !envForm().MatchString(name) || len(value) > len(text) {
				t.Errorf("%q=%q, %v", name, value, err)
			}
		}
	})
}

// TestProviders: the data is whole, and keys are found where people put them.
func TestProviders(t *testing.T) {
	for _, p := range Providers() {
		for i, b := range p.Bindings {
			if c, err := b.Canonical(); err != nil || c.String() != b.String() {
				t.Errorf("%s: %v is not canonical: %v", p.Name, b, err)
			}
			if q, ok := ProviderOf(p.Bindings[i].Host); !ok || q.Name != p.Name {
				t.Errorf("%s is not found by its host", p.Name)
			}
		}
		if CheckName(p.Name) != nil || slices.ContainsFunc(slices.Concat(p.Variables, p.Shown), func(v string) bool { return CheckEnv(v) != nil }) {
			t.Errorf("%s cannot be kept", p.Name)
		}
	}
	for _, in := range []string{"GOOGLE_GENERATIVE_AI_API_KEY", "GEMINI_API_KEY"} {
		own := FromVariables(Providers(), func(name string) (string, bool) { return " k \n", name == in })
		if len(own) != 1 || own[0].Name != "google" || string(own[0].Value) != "k" || own[0].Env[1] != "GEMINI_API_KEY" {
			t.Errorf("found %+v", own)
		}
	}
	p, _ := ProviderOf("api.anthropic.com")
	for credential, want := range map[string]bool{
		"sk-ant-api03-of-somebody-else": true, "A0-foreign_token.of-another": true, "dummy": false, "not-needed": false, "xxxxxxxxxxxxxxxxxxxxxxxx": false,
	} {
		if p.Foreign(credential) != want {
			t.Errorf("%s: foreign %v", credential, !want)
		}
	}
	env := Environment([]Sentinel{{Text: "1", Env: []string{"A", "B"}}, {Text: "2", Env: []string{"B", "C"}}}, []string{"A=x"})
	if !slices.Equal(env, []string{"B=1", "C=2"}) {
		t.Errorf("environment %q", env)
	}
}
