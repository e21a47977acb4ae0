package constitution

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"ringfence/internal/act"
)

const docFile = "../../docs/constitution.md"

// TestDocument runs the examples of docs/constitution.md, and checks its tables
// of words against those of the grammar.
func TestDocument(t *testing.T) {
	data, err := os.ReadFile(docFile)
	if err != nil {
		t.Fatal(err)
	}
	want := string(data)
	got := docTables(docExamples(t, strings.Split(want, "\n")))
	if got == want {
		return
	}
	if *update {
		if err := os.WriteFile(docFile, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	wants := strings.Split(want, "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(wants) || line != wants[i] {
			t.Fatalf("docs/constitution.md:%d: the grammar says\n%s\nand the document\n%s", i+1, line, strings.Join(wants[min(i, len(wants)):min(i+1, len(wants))], ""))
		}
	}
}

// docExamples returns the document with what the grammar makes of its examples:
// each line of a block "constitution", and each whole block "document".
func docExamples(t *testing.T, lines []string) string {
	t.Helper()
	var out []string
	block, whole, count := "", "", 0
	for i := 0; i < len(lines); i++ {
		line := lines[i]
		switch {
		case block == "" && strings.HasPrefix(line, "```"):
			block, whole = line, ""
		case block != "" && line == "```":
			out = append(out, line)
			if block == "```document" {
				for i+1 < len(lines) && (lines[i+1] == "" || strings.HasPrefix(lines[i+1], "\t")) {
					i++
				}
				out = append(out, "")
				for _, o := range outcome(whole) {
					out = append(out, "\t"+o)
				}
				out = append(out, "")
			}
			block = ""
			continue
		case block == "```document":
			whole += line + "\n"
		case block == "```constitution" && strings.HasPrefix(line, "\t"):
			continue
		case block == "```constitution":
			out = append(out, line)
			count++
			for _, o := range outcome(line) {
				out = append(out, "\t"+o)
			}
			continue
		}
		out = append(out, line)
	}
	if count < 50 {
		t.Errorf("only %d examples found", count)
	}
	return strings.Join(out, "\n")
}

// docTables returns the document with the tables of words between their marks.
func docTables(doc string) string {
	for name, table := range map[string]string{"verbs": verbTable(), "nouns": nounTable()} {
		head, rest, ok := strings.Cut(doc, "<!-- "+name+" -->\n")
		_, tail, ok2 := strings.Cut(rest, "<!-- end "+name+" -->")
		if ok && ok2 {
			doc = head + "<!-- " + name + " -->\n" + table + "<!-- end " + name + " -->" + tail
		}
	}
	return doc
}

func verbTable() string {
	var b strings.Builder
	b.WriteString("| verbs | done to | is |\n|---|---|---|\n")
	senseWords := map[string][]string{}
	for _, row := range rows(verbWords) {
		senseWords[row[0]] = row[1:]
	}
	for _, row := range rows(senseRows) {
		by := map[string][]string{} // meaning to classes
		var order []string
		for _, cell := range row[1:] {
			class, _, _ := strings.Cut(cell, "=")
			s := senses()[row[0]][class]
			meaning := kindText(s.narrow)
			if !slices.Equal(s.narrow, s.wide) {
				meaning += " or " + kindText(s.wide)
			}
			if by[meaning] == nil {
				order = append(order, meaning)
			}
			if class == "-" {
				class = "*nothing*"
			}
			by[meaning] = append(by[meaning], class)
		}
		for i, meaning := range order {
			verbs := ""
			if i == 0 {
				verbs = strings.Join(senseWords[row[0]], ", ")
			}
			fmt.Fprintf(&b, "| %s | %s | %s |\n", verbs, strings.Join(by[meaning], ", "), meaning)
		}
	}
	return b.String()
}

func kindText(kinds []act.Kind) string {
	if len(kinds) == 0 {
		return "–"
	}
	return strings.Join(kindNames(kinds), ", ")
}

func nounTable() string {
	var b strings.Builder
	b.WriteString("| in the table | words |\n|---|---|\n")
	for _, row := range rows(nounWords) {
		fmt.Fprintf(&b, "| %s | %s |\n", row[0], strings.Join(row[1:], ", "))
	}
	return b.String()
}
