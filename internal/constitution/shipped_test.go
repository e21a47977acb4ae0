package constitution

import (
	"testing"
	"time"
)

// TestShipped compiles the shipped constitutions, which also runs their
// scenarios, within the time that is promised.
func TestShipped(t *testing.T) {
	for _, name := range ShippedNames() {
		text, lists, err := Shipped(name)
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		c, err := Compile(Source{Name: name + ".md", Text: text}, Options{Granting: true, Lists: lists})
		if err != nil {
			t.Fatal(err)
		}
		took := time.Since(began)
		t.Logf("%s: %d clauses, %d scenarios, %s", name, len(c.Clauses), len(c.Scenarios), took)
		for _, f := range c.Findings {
			if f.Severity != Info {
				t.Errorf("%s:%d: %s", name, f.Line, f.Message)
			}
		}
		if testing.Verbose() {
			for _, cl := range c.Clauses {
				t.Log(cl.ID, brief(cl))
			}
		}
	}
	if _, _, err := Shipped("readonyl"); err == nil {
		t.Error("a constitution that does not exist")
	}
}
