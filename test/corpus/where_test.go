package corpus

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// mcpCases are the requirements and attacks about MCP that must each be shown.
const mcpCases = `R1 R2 R3 R4 R5 R6 R7 R8 R9 R16 R17 R18 MC-02 MC-03 MC-04 MC-06 MC-07 MC-08 MC-10 MC-11 MC-12
MC-14 MC-15 MC-16 MC-18 MC-19 MC-20 MC-22 MC-23 MC-24`

// deskCases are those about policies and approvals.
const deskCases = `PO-02 PO-03 PO-04 PO-06 PO-07 PO-08 AP-01 AP-02 AP-03 AP-05 AP-06 AP-07`

// TestWhere : each case is where where.txt says, in a test or a file that is named
// after it, and each attack has a harmless twin.
func TestWhere(t *testing.T) {
	data, err := os.ReadFile("where.txt")
	if err != nil {
		t.Fatal(err)
	}
	shown, twins := map[string]bool{}, map[string]bool{}
	for at, line := range strings.Split(string(data), "\n") {
		words := strings.Fields(line)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		kind := ""
		if words[1] == "twin" || words[1] == "suite" {
			kind = words[1]
			words = append(words[:1], words[2:]...)
		}
		id, file, what := words[0], words[1], strings.Join(words[2:], " ")
		text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(file)))
		if err != nil {
			t.Errorf("line %d: %s is not there: %v", at+1, id, err)
			continue
		}
		if strings.HasPrefix(what, "Test") {
			what = "func " + what + "("
		}
		if !strings.Contains(string(text), what) {
			t.Errorf("line %d: %s: %s has no %s", at+1, id, file, what)
		}
		switch {
		case kind == "twin":
			twins[id] = true
		case kind == "suite" && id != "R1" && id != "R3":
		case kind == "suite", strings.Contains(file+what, id), strings.Contains(what, strings.ReplaceAll(id, "-", "")):
			shown[id] = true
		}
		if !strings.Contains(" "+strings.Join(strings.Fields(mcpCases+" "+deskCases), " ")+" ", " "+id+" ") {
			t.Errorf("line %d: %s is no case that must be shown", at+1, id)
		}
	}
	for id := range strings.FieldsSeq(mcpCases + " " + deskCases) {
		if !shown[id] && id != "MC-03" { // which is R6
			t.Errorf("%s is shown nowhere under its name", id)
		}
		if strings.HasPrefix(id, "MC-") && !twins[id] {
			t.Errorf("%s has no harmless twin", id)
		}
	}
}
