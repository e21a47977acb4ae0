package constitution

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

func itoa(n int) string { return strconv.Itoa(n) }

// nearest returns the word of valid that was probably meant: the one with the
// fewest letters added, left out, changed or swapped, if these are at most a
// third of them; "" if there is none, or word is one of them.
func nearest(word string, valid []string) string {
	best, least := "", len(word)/3
	for _, v := range valid {
		if v == word {
			return ""
		}
		if len(v) > len(word)+least || len(word) > len(v)+least || len(word) > 64 {
			continue
		}
		d := distance(word, v)
		if d < least || d == least && (best == "" || v[0] == word[0] && best[0] != word[0]) {
			best, least = v, d
		}
	}
	return best
}

// distance is the optimal string alignment distance of a and b, in bytes.
func distance(a, b string) int {
	before, row := make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			next[j+1] = min(row[j]+cost, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}

// unenforceable are words that no gate can test, and what to write instead.
var unenforceable = map[string]string{
	"sensitive": "name the files: files named .env, credentials, or a list such as @private-files",
	"important": "name the files or places", "dangerous": "name the programs, or say \"destructive operations\"",
	"suspicious": "name the sites or files", "appropriate": "say when", "reasonable": "say when", "necessary": "say when", "needed": "say when",
	"large": "sizes are not known", "larger": "sizes are not known", "big": "sizes are not known", "bigger": "sizes are not known",
	"small": "sizes are not known", "usually": "leave it out, or write an exception", "normally": "leave it out, or write an exception",
	"sometimes": "say when", "generally": "leave it out, or write an exception", "mostly": "write an exception",
	"some": "name the files or places", "most": "write an exception", "protected": "name the branches: main, release/*",
	"etc.": "write the whole list", "etc": "write the whole list", "system": "name the places: /etc, /usr",
	"config": "name the files or their place", "configuration": "name the files or their place",
	"production": "name the hosts or places", "temporary": "name the place: /tmp", "generated": "name the place: ./build",
	"build": "name the programs: go, make, npm", "test": "name the programs: go, make, npm", "tests": "name the files or programs: ./tests, go, npm",
	"spend": "budgets are settings, not part of a constitution", "cost": "budgets are settings, not part of a constitution",
	"publish": "say where to: send anything to registry.example.com", "deploy": "name the program or tool that does it",
	"release": "name the program or tool that does it", "weekdays": "days are not known; hours are: between 9 and 17 UTC",
	"weekends": "days are not known; hours are: between 9 and 17 UTC", "night": "write between 22 and 6 UTC",
	"origin": "write the place: github.com/me/repo", "upstream": "write the place: github.com/me/repo",
	"customers": "name the addresses: @customers, *.example.org", "kill": "say \"run kill\"", "sign": "name the tool that does it",
	"log":    "what a message or file holds is not known: say what may not be read, or where nothing may be sent",
	"expose": "what a message or file holds is not known: say what may not be read, or where nothing may be sent",
	"leak":   "what a message or file holds is not known: say what may not be read, or where nothing may be sent",
	"share":  "say where to: send anything to …", "main": "branches are known where something is pushed to them: push to main",
	"master":  "branches are known where something is pushed to them: push to master",
	"trusted": "use a list such as @trusted-sites", "untrusted": "use a list such as @trusted-sites", "internal": "name the hosts: *.corp.example.org",
	"personal": "name the files or places", "private": "name the files or places", "confidential": "name the files or places",
}

// forms are one sentence of each form that is understood: what a sentence that
// is not is compared with.
var forms = strings.Split(strings.TrimSpace(`
The agent may read and search files in ./src.
The agent may create and edit files in the workspace without approval.
The agent may delete files in ./build with approval.
The agent must ask before deleting anything.
The agent must never read files in ~/.ssh.
The agent must never read files named .env.
The agent may do anything in the workspace.
Writing files outside the workspace needs approval.
Files in /etc must never be changed.
The agent may write files in the workspace except in ./vendor.
The agent may use read-only git operations (status, diff, log).
The agent may commit and create branches.
The agent may push to branches named agent/*.
Pushing to main needs approval.
No force pushes.
No destructive git operations without approval.
Two owners must approve pushes to main.
The agent may fetch pages from docs.python.org and @docs-sites.
Any other site needs approval.
The agent may send requests to api.example.org.
The agent must never contact evil.example.org.
No network access.
The agent may install npm packages that are at least two days old.
The agent may run go, git and make.
The agent may run the programs in ./scripts.
Any other program needs approval.
The agent may use memory.* and everything.echo.
The agent may use tools that only read.
The agent must ask before using git.git_push with force.
The agent must not send email to anyone outside example.com.
The agent must ask before sending anything after reading a web page.
The agent may fetch pages from a.org at most 20 times an hour.
The agent may push until 2027-01-31.
The agent may push between 9 and 17 UTC.
The reviewer may read files in the workspace.
The agent may remember and recall.
The agent may use any model.
Anything that contacts a remote needs approval.
Everything else is forbidden.
`), "\n")

// notUnderstood reports a sentence that is not understood: where, what was
// probably meant, and the nearest form.
func (c *compiler) notUnderstood(m *miss, toks []token) {
	hint := m.hint
	if hint == "" {
		hint = nearestForm(toks)
	}
	c.fail(m.at, hint, "%s", c.explain(m, toks))
}

// explain says what is wrong at m.
func (c *compiler) explain(m *miss, toks []token) string {
	if m.why != "" {
		return m.why
	}
	if !hasFrame(toks) {
		return fmt.Sprintf("%q does not say what may or must not be done", clip(textOf(toks)))
	}
	if m.word == "" {
		return fmt.Sprintf("%q breaks off: what is allowed or forbidden?", clip(textOf(toks)))
	}
	low := lower(m.word)
	if instead, ok := unenforceable[low]; ok {
		return fmt.Sprintf("%q cannot be enforced: %s", m.word, instead)
	}
	if near := nearest(low, words().vocab); near != "" && !strings.Contains(low, " ") {
		return fmt.Sprintf("%q is not understood: did you mean %q?", m.word, near)
	}
	if contains(adviceLeads, toks[0].low) && !contains(" must should always when the this it you we ", toks[0].low) {
		return fmt.Sprintf("%q begins like advice and speaks of a rule: say \"must not\", \"must ask before\" or \"may\"", clip(textOf(toks)))
	}
	return fmt.Sprintf("%q is not understood in %q", m.word, clip(textOf(toks)))
}

func hasFrame(toks []token) bool {
	for _, t := range toks {
		if contains(" may can must should never not no ask needs need require requires forbidden allowed ", t.low) {
			return true
		}
	}
	return false
}

func clip(s string) string {
	if len(s) > 80 {
		return strings.ToValidUTF8(s[:77], "") + "…"
	}
	return s
}

// maxCompared bounds how many words of a sentence are compared with the forms.
const maxCompared = 24

// nearestForm returns the form that is about what a sentence is about: of those that
// share the most words with it that are no frame, the one with the smallest edit
// distance in words. "" if none shares any: an unrelated sentence helps nobody.
func nearestForm(toks []token) string {
	var sentence []string
	for _, t := range toks[:min(len(toks), maxCompared)] {
		w := t.low
		if near := nearest(w, words().vocab); near != "" {
			w = near
		}
		sentence = append(sentence, stem(w))
	}
	best, most, least := "", 0, 0
	for _, f := range forms {
		var of []string
		shared := 0
		for w := range strings.FieldsSeq(lower(strings.TrimSuffix(f, "."))) {
			w = stem(strings.Trim(w, ",()"))
			of = append(of, w)
			if !contains(frameWords, w) && slices.Contains(sentence, w) {
				shared++
			}
		}
		if d := wordDistance(sentence, of); shared > most || shared == most && most > 0 && d < least {
			best, most, least = f, shared, d
		}
	}
	return best
}

// frameWords are in sentences about anything.
const frameWords = " the a an agent may must never not no any anything everything other else in on at to of from and or with without before after that than is are be by it "

// stem makes the forms of a verb and of a noun equal.
func stem(w string) string {
	if v, ok := words().verbs[w]; ok {
		return v.sense
	}
	if n, ok := words().nouns[w]; ok {
		return n
	}
	return w
}

// wordDistance is the edit distance in words; a word of the form that is missing
// costs less than one that is not understood.
func wordDistance(a, b []string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = 2 * (i + 1)
		for j := range b {
			cost := diagonal
			if a[i] != b[j] {
				cost = min(diagonal+2, row[j]+1, row[j+1]+2)
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
