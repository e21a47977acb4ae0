package draft

import (
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"

	"ringfence/internal/policy"
)

// A sense is what a name usually stands for.
type sense struct {
	role policy.Role
	why  string // why that is in doubt, "" if it is not
}

var (
	aPath      = sense{policy.RolePath, ""}
	aURL       = sense{policy.RoleURL, ""}
	aHost      = sense{policy.RoleHost, "a host without a port is refused, and a port in another argument is not seen"}
	aCommand   = sense{policy.RoleCommand, ""}
	aRecipient = sense{policy.RoleRecipient, ""}
	aRepo      = sense{policy.RolePath, "it is taken for a local path, and may be the name of a repository elsewhere"}
	aPackage   = sense{policy.RolePlain, "it seems to name a package, and nothing says of which registry"}
	aSecret    = sense{policy.RolePlain, "it seems to hold a secret, which the agent would have to know and the record would show"}
	aRemote    = sense{policy.RolePlain, "it seems to name a remote, and nothing says of which repository"}
	aLanguage  = sense{policy.RolePlain, "it seems to hold text that the server runs, which ringfence does not read"}
	aTarget    = sense{policy.RolePlain, "its name does not say what it names"}
)

// nouns are what the last word of a name says.
var nouns = sync.OnceValue(func() map[string]sense {
	return map[string]sense{
		"path": aPath, "file": aPath, "filename": aPath, "filepath": aPath, "pathname": aPath, "dir": aPath, "dirname": aPath,
		"directory": aPath, "folder": aPath, "cwd": aPath, "root": aPath, "workdir": aPath,
		"url": aURL, "uri": aURL, "href": aURL, "endpoint": aURL, "webhook": aURL,
		"link": {policy.RoleURL, "it is taken for a URL"},
		"host": aHost, "hostname": aHost, "ip": aHost, "domain": aHost,
		"command": aCommand, "cmd": aCommand, "argv": aCommand, "shell": aCommand, "commandline": aCommand,
		"script": {policy.RoleCommand, "it is taken for a shell command, and refused if it is none"},
		"email":  aRecipient, "recipient": aRecipient, "mailto": aRecipient, "cc": aRecipient, "bcc": aRecipient,
		"repo": aRepo, "repository": aRepo,
		"package": aPackage, "pkg": aPackage, "dependency": aPackage,
		"secret": aSecret, "token": aSecret, "password": aSecret, "passwd": aSecret, "passphrase": aSecret,
		"credential": aSecret, "apikey": aSecret,
		"remote": aRemote,
		"sql":    aLanguage, "statement": aLanguage, "cypher": aLanguage, "graphql": aLanguage, "javascript": aLanguage,
		"target": aTarget, "server": aTarget, "address": aTarget,
	}
})

// facts are last words of names that speak of a thing and do not name it: the
// size of a file, the text of a mail.
var facts = wordset(`id type kind count size content text format mode encoding extension ext limit number index
	length body subject hash sha order sort title description message query data prompt value label line offset`)

// texts are names of what is written for people or into files, whose
// descriptions speak of paths and addresses that they do not hold.
var texts = wordset(`content text body message query data prompt title description subject code comment note value`)

// selectors are names of arguments that choose what a tool does; those of
// selectsFreely do so even if the schema lists no choices.
var (
	selectors     = wordset(`mode action operation op method command cmd subcommand verb task`)
	selectsFreely = wordset(`action operation op method subcommand verb`)
)

// What the last word of a name says in some tools only, or never.
var (
	endWords     = wordset(`source src destination dest dst`)
	argWords     = wordset(`arg argument`)
	programWords = wordset(`code program expression`)
	envWords     = wordset(`env environment`)
	patternWords = wordset(`pattern glob`)
	refWords     = wordset(`branch ref revision commit commitish tag`)
	unmatched    = wordset(`exclude excluded ignore ignored regex regexp`) // before a pattern: it opens nothing
	cursors      = wordset(`page next continuation cursor sync max`)       // before a token: it is none that is secret
	keys         = wordset(`api access private secret auth`)               // before a key: it is secret
)

// webWords in the name of a tool, and speaksOfWeb in its description, say that it
// reaches beyond this machine.
var (
	webWords    = wordset(`web internet online http https website api cloud remote url`)
	speaksOfWeb = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)\b(web|internet|online|https?|website|api|cloud|remote|urls?)\b`)
	})
)

// What descriptions say that names do not.
var (
	aboutPath = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\bpaths?\b|\bfile ?names?\b|\b(name|location)s? of (a|an|the) ([a-z]+ )?(file|directory|folder)`)
	})
	aboutURL = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\bur[li]s?\b`)
	})
	aboutEmail = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\be-?mail address|\brecipients?\b`)
	})
	aboutCommand = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\bshell command|\bcommand line\b|\bcommands? to (run|execute)`)
	})
)

// formats are formats of JSON Schema, and those that servers made up.
var formats = sync.OnceValue(func() map[string]policy.Role {
	return map[string]policy.Role{
		"uri": policy.RoleURL, "url": policy.RoleURL, "iri": policy.RoleURL, "uri-reference": policy.RoleURL,
		"email": policy.RoleRecipient, "idn-email": policy.RoleRecipient,
		"hostname": policy.RoleHost, "idn-hostname": policy.RoleHost, "ipv4": policy.RoleHost, "ipv6": policy.RoleHost,
		"path": policy.RolePath, "file-path": policy.RolePath, "directory-path": policy.RolePath, "file": policy.RolePath,
	}
})

// A wordset is words with spaces between them. There is nothing to make of it when the
// program starts.
type wordset string

func (s wordset) has(word string) bool {
	for w := range strings.FieldsSeq(string(s)) {
		if w == word {
			return true
		}
	}
	return false
}

// split returns the words of a name in lower case: "filePath", "file_path" and
// "file-path" are "file" and "path", "HTTPServer" is "http" and "server".
func split(name string) []string {
	var all []string
	var word []rune
	end := func() {
		if len(word) > 0 {
			all = append(all, strings.ToLower(string(word)))
		}
		word = word[:0]
	}
	runes := []rune(name)
	for i, r := range runes {
		switch {
		case !unicode.IsLetter(r):
			end()
			continue
		case unicode.IsUpper(r) && i > 0 && (unicode.IsLower(runes[i-1]) || i+1 < len(runes) && unicode.IsLower(runes[i+1])):
			end()
		}
		word = append(word, r)
	}
	end()
	return all
}

// singular returns word without the ending of an English plural.
func singular(word string) string {
	switch stem, plural := strings.CutSuffix(word, "s"); {
	case strings.HasSuffix(word, "ies") && len(word) > 4:
		return strings.TrimSuffix(word, "ies") + "y"
	case strings.HasSuffix(word, "sses"):
		return strings.TrimSuffix(word, "es")
	case plural && !strings.HasSuffix(stem, "s") && len(stem) > 1:
		return stem
	}
	return word
}

func noun(word string) (sense, bool) {
	if s, ok := nouns()[word]; ok {
		return s, true
	}
	s, ok := nouns()[singular(word)]
	return s, ok
}

func isPathWord(word string) bool { s, _ := noun(word); return s == aPath }

// speaksOfFiles reports whether a word in the name of a tool says that what it
// works on are files.
func speaksOfFiles(word string) bool { return isPathWord(word) && singular(word) != "root" }

func isRepo(name []string) bool {
	for _, w := range name {
		if s, _ := noun(w); s == aRepo {
			return true
		}
	}
	return false
}

// guess returns the role of l, and why that is in doubt, "" if it is not.
func (t *tool) guess(l leaf) (policy.Role, string) {
	if !l.text {
		return policy.RolePlain, ""
	}
	s := t.byName(l.words)
	if s.role == policy.RolePlain {
		if told := byWords(l); told.role != policy.RolePlain || s.why == "" {
			s = told
		}
	}
	if l.closed && s.role != policy.RolePlain && s.role != policy.RolePattern {
		return policy.RolePlain, "its name suggests more, and its schema lists what it may be, so it is taken for a choice"
	}
	if t.hosted && s.role == policy.RolePath {
		return policy.RolePlain, "it is taken for a name in a repository that a service keeps, not for a local path"
	}
	if s.role == policy.RoleRecipient && t.does&sends == 0 && s.why == "" {
		s.why = "it is taken for somebody a message goes to, and the name of the tool does not say so"
	}
	return s.role, s.why
}

// byName returns what a name stands for in t.
func (t *tool) byName(name []string) sense {
	if len(name) == 0 {
		return sense{role: policy.RolePlain}
	}
	if s, ok := t.inContext(name); ok {
		return s
	}
	last := name[len(name)-1]
	if s, ok := noun(last); ok {
		return qualified(name, s)
	}
	if len(name) > 1 && singular(last) == "name" {
		if s, ok := noun(name[len(name)-2]); ok {
			return s
		}
	}
	if len(name) > 1 && last == "key" && keys.has(name[len(name)-2]) {
		return aSecret
	}
	if facts.has(singular(last)) {
		return sense{role: policy.RolePlain}
	}
	for _, w := range name[:len(name)-1] {
		if s, ok := noun(w); ok && s.role != policy.RoleHost && s != aTarget && s != aRemote && s != aLanguage {
			return sense{s.role, orElse(s.why, "its name hints at that, and may mean something else")}
		}
	}
	return compound(last)
}

// qualified is s, which the last word of name says, unless the words before it
// say otherwise.
func qualified(name []string, s sense) sense {
	if s == aSecret && len(name) > 1 && cursors.has(name[len(name)-2]) {
		return sense{role: policy.RolePlain}
	}
	return s
}

// inContext returns what names stand for that mean something in some tools only.
func (t *tool) inContext(name []string) (sense, bool) {
	last := singular(name[len(name)-1])
	moving := t.does&(moves|copies) != 0
	side := sideOf(name)
	switch {
	case side != eitherSide && len(name) == 1 && moving:
		return aPath, true
	case endWords.has(last):
		return sense{policy.RolePath, "it is taken for a path"}, true
	case last == "name" && t.files && (len(name) == 1 || len(name) == 2 && side != eitherSide):
		return sense{policy.RolePath, "it is taken for the path of what the tool works on"}, true
	case len(name) == 1 && last == "to" && t.does&sends != 0:
		return aRecipient, true
	case len(name) == 1 && last == "to":
		return aTarget, true
	case argWords.has(last) && (t.does&runs != 0 || t.has("command")):
		return sense{policy.RoleCommand, "it is part of a command that another argument begins, and refused unless it is one itself"}, true
	case programWords.has(last) && t.does&runs != 0:
		return sense{policy.RoleCommand, "it is taken for a shell command, and refused if it is none"}, true
	case envWords.has(last) && t.does&runs != 0:
		return sense{policy.RolePlain, "variables can change what a command does"}, true
	case patternWords.has(last):
		return t.pattern(name), true
	case t.git && refWords.has(last):
		return sense{policy.RoleRef, ""}, true
	}
	return sense{}, false
}

func (t *tool) pattern(name []string) sense {
	if slices.ContainsFunc(name, unmatched.has) {
		return sense{role: policy.RolePlain}
	}
	for _, l := range t.leaves {
		if l.text && len(l.words) > 0 && isPathWord(l.words[len(l.words)-1]) {
			return sense{policy.RolePattern, ""}
		}
	}
	return sense{policy.RolePattern, "no argument says beneath what it is applied"}
}

// compound finds a noun at the end of a word that was written without a gap, as
// in "outputdir".
func compound(word string) sense {
	word = singular(word)
	for _, n := range []string{"path", "dir", "file", "folder", "directory", "url", "uri"} {
		if before, ok := strings.CutSuffix(word, n); ok && len(before) > 2 && word != "profile" {
			return sense{nouns()[n].role, "its name hints at that, and may mean something else"}
		}
	}
	return sense{role: policy.RolePlain}
}

// byWords returns what the format and the descriptions of l say.
func byWords(l leaf) sense {
	if role, ok := formats()[l.format]; ok {
		if role == policy.RoleHost {
			return aHost
		}
		return sense{role, ""}
	}
	if l.format == "password" {
		return aSecret
	}
	const why = "only its description says so"
	told := sense{role: policy.RolePlain}
	switch {
	case aboutCommand().MatchString(l.about):
		told = sense{policy.RoleCommand, why}
	case aboutPath().MatchString(l.about):
		told = sense{policy.RolePath, why}
	case aboutURL().MatchString(l.about):
		told = sense{policy.RoleURL, why}
	case aboutEmail().MatchString(l.about):
		told = sense{policy.RoleRecipient, why}
	}
	if told.role == policy.RolePlain || l.closed {
		return sense{role: policy.RolePlain}
	}
	if len(l.words) > 0 && (texts.has(l.words[len(l.words)-1]) || texts.has(singular(l.words[len(l.words)-1]))) {
		return sense{policy.RolePlain, "its description speaks of a path, an address or a command, and its name does not"}
	}
	return told
}

func orElse(s, otherwise string) string {
	if s == "" {
		return otherwise
	}
	return s
}
