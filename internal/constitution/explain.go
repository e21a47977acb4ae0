package constitution

import (
	"fmt"
	"strconv"
	"strings"

	"ringfence/internal/act/strictjson"
)

func itoa(n int) string { return strconv.Itoa(n) }

// nearest returns the word of valid that was probably meant, or "".
func nearest(word string, valid []string) string {
	if len(word) < 3 {
		return ""
	}
	near := strictjson.Nearest(word, valid)
	if near == word {
		return ""
	}
	return near
}

// vague are words that have no fixed meaning here, and what to write instead.
var vague = map[string]string{
	"sensitive": "files named .env, credentials, or a list such as @private-files", "important": "the files or places by name",
	"dangerous": "the programs by name, destructive operations", "suspicious": "the sites or files by name",
	"appropriate": "the condition itself", "reasonable": "the condition itself", "necessary": "the condition itself",
	"large": "sizes are not known here", "big": "sizes are not known here", "small": "sizes are not known here",
	"usually": "leave it out, or write an exception", "normally": "leave it out, or write an exception",
	"sometimes": "the condition itself", "generally": "leave it out, or write an exception", "mostly": "an exception",
	"some": "the files or places by name", "most": "an exception", "protected": "the branches by name: main, release/*",
	"protected-branches": "the branches by name", "etc.": "the whole list", "etc": "the whole list",
	"system": "the places by path: /etc, /usr", "config": "the files by name or place", "configuration": "the files by name or place",
	"production": "the hosts or places by name", "temporary": "a place such as /tmp", "generated": "a place such as ./build",
	"build": "the programs by name: go, make, npm", "test": "the programs by name: go, make, npm", "tests": "the programs by name: go, make, npm",
	"destructively": "destructive operations", "online": "fetch pages from …", "sudo": "run sudo",
	"spend": "budgets are settings, not part of a constitution", "cost": "budgets are settings, not part of a constitution",
	"publish": "send anything to registry.npmjs.org", "deploy": "run the program by name", "release": "run the program by name",
	"weekdays": "between 9 and 17 UTC", "night": "between 9 and 17 UTC", "weekends": "between 9 and 17 UTC",
	"megabytes": "sizes are not known here", "mb": "sizes are not known here", "kb": "sizes are not known here",
	"origin": "the remote by its place: github.com/me/repo", "upstream": "the remote by its place: github.com/me/repo",
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
	if m.word == "" {
		return fmt.Sprintf("%q breaks off: what is allowed or forbidden?", clip(textOf(toks)))
	}
	low := lower(m.word)
	if instead, ok := vague[low]; ok {
		return fmt.Sprintf("%q has no fixed meaning here; name %s", m.word, instead)
	}
	if near := nearest(low, words().vocab); near != "" && !contains(" "+strings.Join(words().vocab, " ")+" ", low) {
		return fmt.Sprintf("%q is not understood: did you mean %q?", m.word, near)
	}
	if m.at == toks[0].at && !hasFrame(toks) {
		return fmt.Sprintf("%q does not say what may or must not be done", clip(textOf(toks)))
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

// nearestForm returns the form that shares most with a sentence: the one with the
// smallest edit distance in words.
func nearestForm(toks []token) string {
	var sentence []string
	for _, t := range toks[:min(len(toks), maxCompared)] {
		sentence = append(sentence, stem(t.low))
	}
	best, least := "", 1<<30
	for _, f := range forms {
		var of []string
		for w := range strings.FieldsSeq(lower(strings.TrimSuffix(f, "."))) {
			of = append(of, stem(strings.Trim(w, ",()")))
		}
		if d := wordDistance(sentence, of); d < least {
			best, least = f, d
		}
	}
	return best
}

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
