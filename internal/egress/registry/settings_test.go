package registry

import (
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
)

// TestSettings reads each file of testdata/settings.txtar, whose name begins with the
// ecosystem, and finds what "want" says.
func TestSettings(t *testing.T) {
	a, err := txtar.ParseFile("testdata/settings.txtar")
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	want := ""
	for _, f := range a.Files {
		if f.Name == "want" {
			want = string(f.Data)
			continue
		}
		for _, c := range Clients() {
			if !strings.HasPrefix(f.Name, string(c.Ecosystem)+" ") {
				continue
			}
			places, err := c.Settings(f.Data)
			if strings.HasSuffix(f.Name, " variable") {
				places, err = c.Said(string(f.Data))
			}
			got.WriteString(f.Name + "\n")
			for _, p := range places {
				got.WriteString("  " + p.URL.String() + "\n")
			}
			if err != nil {
				got.WriteString("  " + err.Error() + "\n")
			}
		}
	}
	if got.String() != want {
		t.Errorf("found\n%swanted\n%s", got.String(), want)
	}
}

func FuzzSettings(f *testing.F) {
	f.Add("registry=https://a.test/")
	f.Add("[global]\nindex-url =\n  https://a.test/simple")
	f.Add("[registries.x]\nindex = \"sparse+https://a.test/\"")
	f.Add("deb [signed-by=/x] https://a.test/debian bookworm main\nURIs: https://b.test")
	f.Fuzz(func(t *testing.T, text string) {
		for _, c := range Clients() {
			places, err := c.Settings([]byte(text))
			for _, p := range places {
				if p.URL.Host.IsZero() || p.URL.HasQuery {
					t.Fatalf("%v is no registry", p)
				}
			}
			if err != nil && strings.Contains(err.Error(), "hunter2") && strings.Contains(text, ":hunter2@") {
				t.Fatalf("a password is in the error: %v", err)
			}
		}
	})
}
