package constitution

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/txtar"
)

// FuzzCompile feeds documents to the compiler: it never panics, takes no more
// than linear time, and names a place for everything that is wrong.
func FuzzCompile(f *testing.F) {
	data, err := os.ReadFile("testdata/sentences.txt")
	if err != nil {
		f.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		if line[0] != '\t' && line[0] != '#' {
			f.Add([]byte(line), true)
		}
	}
	files, err := filepath.Glob("testdata/compile/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(txtar.Parse(text).Files[0].Data, false)
	}
	for _, name := range ShippedNames() {
		text, _, err := Shipped(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text []byte, granting bool) {
		src := Source{Name: "fuzz", Text: text}
		if !granting {
			src.Layer = "lower"
		}
		began := time.Now()
		c, err := Compile(src, Options{Granting: granting})
		if took := time.Since(began); took > 10*time.Second {
			t.Fatalf("%d bytes took %s", len(text), took)
		}
		var bad *Errors
		switch {
		case errors.As(err, &bad):
			for _, finding := range bad.Findings {
				if finding.Line < 1 || finding.Column < 1 || finding.Message == "" {
					t.Fatalf("a finding without a place: %+v", finding)
				}
				if strings.HasPrefix(finding.Message, "scenario") {
					t.Fatalf("the policy decides otherwise than the clauses say: %s", finding.Message)
				}
			}
		case err != nil:
			t.Fatalf("an error without a place: %v", err)
		default:
			for _, cl := range c.Clauses {
				if cl.Line < 1 || cl.Text == "" {
					t.Fatalf("a clause without a place: %+v", cl)
				}
			}
		}
	})
}
