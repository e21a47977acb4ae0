package constitution

import (
	"slices"
	"strconv"
	"strings"
	"sync"
)

// verbWords are the verbs of the controlled English: the sense, then the words
// that have it. What a sense does to what is in [senseRows].
const verbWords = `
read       read view see inspect examine consult print display show
list       list enumerate
search     search grep scan find
browse     browse visit
open       open load
create     create make
write      write save
edit       edit change modify update alter patch
overwrite  overwrite replace truncate
append     append
delete     delete remove erase wipe destroy trash unlink
move       move rename
copy       copy duplicate
run        run execute start launch spawn
use        use
call       call invoke
fetch      fetch download get retrieve crawl scrape
send       send post put upload submit transmit
email      email mail message
reply      reply respond
contact    contact reach connect
access     access touch
install    install upgrade
add        add
commit     commit
branch     branch
merge      merge
stash      stash
stage      stage
tag        tag
checkout   checkout switch
revert     revert
cherry-pick cherry-pick
rebase     rebase
reset      reset
clean      clean
amend      amend
rewrite    rewrite
push       push
force-push force-push
pull       pull
clone      clone
remember   remember store memorize
forget     forget
review     review
comment    comment
close      close reopen
recall     recall
ask        ask
do         do perform take
resolve    resolve
`

// verbForms are forms that the rules of [formsOf] do not give. The second word
// of a line has them.
const verbForms = `
delete     deletion deletions deletes
delete     removal removals
create     creation creations made making
create     created
edit       modification modifications
install    installation installations installs
run        ran execution
send       sent
write      wrote written
read       read
find       found
do         done did doing does taken took taking performed
see        saw seen seeing
show       shown
get        got gotten getting
put        put putting
make       made making
overwrite  overwritten overwrote
forget     forgot forgotten forgetting
rewrite    rewrote rewritten
reset      reset resetting
`

// doubling are verbs whose last letter is doubled before -ing and -ed.
const doubling = " run get put grep scan commit tag submit transmit stash-pop "

// nounWords are the nouns: the class, then the words in the singular.
const nounWords = `
file       file document source-file text-file
folder     folder directory subfolder subdirectory
any        anything everything something
op         operation action thing activity
change     change
git        git-operation git-command git-action
commit     commit
branch     branch
tag        tag
history    history
repo       repository repo
remote     remote
site       site website host domain server endpoint service api address
page       page url link webpage documentation
network    network internet web online
request    request web-request http-request
program    program command script binary executable shell-command process
tool       tool
package    package dependency library software
email      email mail message
person     anyone anybody someone person people recipient contact everybody everyone
data       data information content
code       code
secret     secret password token api-key
pull-request pull-request pr
issue      issue ticket
credential credential
keys       ssh-key private-key
model      model
memory     memory
question   question
`

// languageWords name files by what they are written in.
const languageWords = `
go         *.go
python     *.py
markdown   *.md
json       *.json
yaml       *.yaml *.yml
toml       *.toml
javascript *.js *.mjs *.cjs
typescript *.ts *.tsx
rust       *.rs
java       *.java
csv        *.csv
html       *.html
css        *.css
log        *.log
text       *.txt
pdf        *.pdf
hidden     .*
`

// programWords are programs that may be named without quotation marks.
const programWords = ` ansible apt apt-get awk aws az bash bazel brew bun bundle cargo cat chmod chown clang cmake cp crontab curl dd deno
diff docker docker-compose dotnet echo env eslint find gcc gcloud gem gh git go gofmt golangci-lint gradle grep head helm java javac jest
jq kill kubectl less ls make mkfs mocha mv mvn mypy nc ncat netcat ninja node npm npx openssl pip pip3 pipx pkill pnpm podman poetry
prettier psql pytest python python3 rake rg rm rsync ruby ruff rustc rustup scp sed sh sha256sum ssh sudo su systemctl tail tar
terraform tox tsc uv vim vitest wc wget xargs yarn zip unzip zsh doas sort uniq cut tr tee mkdir rmdir touch date which printf stat file realpath dirname basename
basename mktemp ln du df ps top env sleep true false go-task just nox poetry hatch composer php perl lua swift swiftc mix elixir zig dune stack cabal ghc
dart flutter vite webpack rollup esbuild turbo nx lerna clang-format clang-tidy shellcheck hadolint black isort flake8 pylint pyright tsx ts-node nodemon `

// branchWords are branches that may be named without the word branch.
const branchWords = " main master develop dev staging production prod trunk release "

// registryWords are the package registries.
const registryWords = " npm pypi cargo go debian "

// fileWords are files that may be named without quotation marks.
const fileWords = " makefile dockerfile jenkinsfile license readme changelog vagrantfile procfile gemfile rakefile justfile codeowners "

// fillers say nothing that changes a rule; they are skipped before verbs and
// after objects.
const fillers = " also always freely please simply directly automatically explicitly ever then itself themselves anyway "

// determiners are skipped before nouns.
const determiners = " the a an any all each every its their my your our this these those that "

// titles may head a list; they say nothing themselves.
const titleWords = ` agent agents and clause clauses constitution details email external file files filesystem folders for general git hosts mail memory
network notes of on other packages permissions policies policy principles programs project projects repositories repository rule rules
security sites the tools web workspace `

// compounds are words that are written apart as often as together.
const compounds = `
force push, force-push
force pushes, force-push
force pushing, force-push
force pushed, force-push
force-pushes, force-push
force-pushing, force-push
force-pushed, force-push
read only, read-only
read write, read-write
e-mail, email
e-mails, email
emails, email
web site, site
web sites, site
web page, page
web pages, page
webpages, page
source code, files
source file, file
source files, files
git operation, git-operation
git operations, git-operation
git command, git-command
git commands, git-command
git action, git-action
git actions, git-action
shell command, command
shell commands, commands
shell script, script
shell scripts, scripts
http request, request
http requests, requests
web request, request
web requests, requests
pull request, pull-request
pull requests, pull-requests
prs, pull-requests
comment on, comment
comments on, comment
commenting on, comment
network request, request
network requests, requests
api key, api-key
api keys, api-key
api-keys, api-key
ssh key, ssh-key
ssh keys, ssh-key
private key, private-key
private keys, private-key
cherry picking, cherry-picking
cherry pick, cherry-pick
check out, checkout
checking out, checkout
switch to, switch
connect to, contact
connects to, contact
connecting to, contact
connections to, contact
talk to, contact
talking to, contact
look at, view
looking at, view
look up, resolve
no one, nobody
no-one, nobody
has to, must
have to, must
needs to, must
need to, must
got to, must
ought to, should
must be able to, may
should be able to, may
is able to, may
are able to, may
is free to, may
are free to, may
is welcome to, may
are welcome to, may
is allowed to, may
are allowed to, may
be allowed to, may-be
is permitted to, may
are permitted to, may
is authorized to, may
are authorized to, may
has permission to, may
have permission to, may
feel free to, may
sign off, sign-off
go ahead, go-ahead
off limits, off-limits
third party, third-party
as well as, and
as well, also
along with, and
together with, and
and also, and
and then, and
and/or, or
at any time, ever
under no circumstances, no-circumstances
under no circumstance, no-circumstances
at no time, no-circumstances
in no case, no-circumstances
on no account, no-circumstances
for any reason, ever
under any circumstances, ever
in any case, ever
by itself, itself
on its own, itself
at least, at-least
at most, at-most
no more than, at-most
not more than, at-most
up to, at-most
a maximum of, at-most
more than, more-than
home directory, home
home folder, home
working directory, workspace
current directory, workspace
project directory, workspace
project folder, workspace
workspace directory, workspace
workspace folder, workspace
temp directory, /tmp
temporary directory, /tmp
temp folder, /tmp
temporary folder, /tmp
anywhere else, elsewhere
anywhere outside, outside
other than, except
apart from, except
aside from, except
except for, except
but not, except
with the exception of, except
excluding, except
save for, except
outside of, outside
inside of, inside
starting with, starting
beginning with, starting
that start with, starting
that begin with, starting
whose name starts with, starting
whose names start with, starting
ending in, ending
ending with, ending
that end in, ending
that end with, ending
with the extension, ending
with extension, ending
named like, named
called, named
with the name, named
with names like, named
matching, named
that match, named
that are named, named
untrusted content, untrusted-content
`

type verbEntry struct {
	sense string
	form  verbForm
}

type verbForm uint8

const (
	plain verbForm = iota
	gerund
	participle
	nominal // "deletion", and the -s form, which is also a plural: "pushes"
)

type lexicon struct {
	verbs     map[string]verbEntry
	nouns     map[string]string
	languages map[string][]string
	compounds map[string][]compoundWords // by first word
	vocab     []string                   // every word that means something, sorted
}

type compoundWords struct {
	from []string
	to   string
}

// words returns the lexicon, built on first use.
var words = sync.OnceValue(func() *lexicon {
	l := &lexicon{
		verbs: map[string]verbEntry{}, nouns: map[string]string{},
		languages: map[string][]string{}, compounds: map[string][]compoundWords{},
	}
	for _, row := range rows(verbForms) {
		for _, w := range row[1:] {
			l.verbs[w] = verbEntry{row[0], irregular(w)}
		}
	}
	for _, row := range rows(verbWords) {
		for _, w := range row[1:] {
			for form, text := range formsOf(w) {
				if _, ok := l.verbs[text]; !ok {
					l.verbs[text] = verbEntry{row[0], verbForm(form)}
				}
			}
			l.verbs[w] = verbEntry{row[0], plain}
		}
	}
	for _, row := range rows(verbForms) { // forms of words that are not senses themselves
		for _, w := range row[1:] {
			l.verbs[w] = verbEntry{l.verbs[row[0]].sense, l.verbs[w].form}
		}
	}
	for _, row := range rows(nounWords) {
		for _, w := range row[1:] {
			l.nouns[w], l.nouns[plural(w)] = row[0], row[0]
		}
	}
	for _, row := range rows(languageWords) {
		l.languages[row[0]] = row[1:]
	}
	for line := range strings.Lines(strings.TrimSpace(compounds)) {
		from, to, _ := strings.Cut(strings.TrimSpace(line), ", ")
		f := strings.Fields(from)
		l.compounds[f[0]] = append(l.compounds[f[0]], compoundWords{f, to})
	}
	for _, c := range l.compounds {
		slices.SortStableFunc(c, func(a, b compoundWords) int { return len(b.from) - len(a.from) })
	}
	l.collect()
	return l
})

func irregular(w string) verbForm {
	switch {
	case strings.HasSuffix(w, "ing"):
		return gerund
	case strings.HasSuffix(w, "ion"), strings.HasSuffix(w, "al"), strings.HasSuffix(w, "s"):
		return nominal
	}
	return participle
}

// collect lists the words that an unknown word is compared with.
func (l *lexicon) collect() {
	seen := map[string]bool{}
	for w := range l.verbs {
		seen[w] = true
	}
	for w := range l.nouns {
		seen[w] = true
	}
	for _, table := range []string{branchWords, registryWords, determiners, grammarWords} {
		for _, w := range strings.Fields(table) {
			seen[w] = true
		}
	}
	for w := range seen {
		if len(w) > 2 {
			l.vocab = append(l.vocab, w)
		}
	}
	slices.Sort(l.vocab)
}

// rows splits a table into lines and words.
func rows(table string) [][]string {
	var out [][]string
	for line := range strings.Lines(table) {
		if f := strings.Fields(line); len(f) > 0 {
			out = append(out, f)
		}
	}
	return out
}

// formsOf returns the forms of a regular verb, indexed by [verbForm].
func formsOf(w string) [4]string {
	stem := w
	switch {
	case strings.Contains(doubling, " "+w+" "):
		stem = w + w[len(w)-1:]
	case strings.HasSuffix(w, "e") && !strings.HasSuffix(w, "ee"):
		stem = w[:len(w)-1]
	}
	past := stem + "ed"
	if strings.HasSuffix(w, "y") && !vowel(w[len(w)-2]) {
		past = w[:len(w)-1] + "ied"
	}
	return [4]string{w, stem + "ing", past, plural(w)}
}

func plural(w string) string {
	switch {
	case strings.HasSuffix(w, "y") && !vowel(w[len(w)-2]):
		return w[:len(w)-1] + "ies"
	case strings.HasSuffix(w, "s"), strings.HasSuffix(w, "sh"), strings.HasSuffix(w, "ch"), strings.HasSuffix(w, "x"):
		return w + "es"
	}
	return w + "s"
}

func vowel(c byte) bool { return strings.IndexByte("aeiou", c) >= 0 }

// contains reports whether w is one of the words of a table, which begins and
// ends with a space.
func contains(table, w string) bool {
	if w == "" || strings.ContainsAny(w, " \n") {
		return false
	}
	for from := 0; ; {
		i := strings.Index(table[from:], w)
		if i < 0 {
			return false
		}
		i += from
		end := i + len(w)
		if i > 0 && isSpace(table[i-1]) && end < len(table) && isSpace(table[end]) {
			return true
		}
		from = i + 1
	}
}

func isSpace(c byte) bool { return c == ' ' || c == '\n' }

// known reports whether w means something by itself: a verb, a noun or a
// conjunction.
func known(w string) bool {
	l := words()
	_, verb := l.verbs[w]
	_, noun := l.nouns[w]
	return verb || noun || w == "and" || w == "or"
}

func allKnown(parts []string) bool {
	return !slices.ContainsFunc(parts, func(p string) bool { return !known(lower(p)) })
}

var numberWords = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty")

var tens = strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety")

// numberOf reads a number in digits or words, up to a million.
func numberOf(w string) (int64, bool) {
	if i := slices.Index(numberWords, w); i >= 0 {
		return int64(i), true
	}
	head, tail, _ := strings.Cut(w, "-")
	if i := slices.Index(tens, head); i >= 0 {
		n := int64(i+2) * 10
		if tail == "" {
			return n, true
		}
		j := slices.Index(numberWords, tail)
		return n + int64(j), j > 0 && j < 10
	}
	switch w {
	case "hundred":
		return 100, true
	case "thousand":
		return 1000, true
	case "dozen":
		return 12, true
	}
	digits := strings.ReplaceAll(w, ",", "")
	if digits == "" || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	return n, err == nil && n <= 1_000_000
}

// compound joins words that the tables know as one, and reads numbers.
func compound(toks []token) []token {
	table := words().compounds
	out := toks[:0:0]
	for i := 0; i < len(toks); {
		t := toks[i]
		n := 1
		for _, c := range table[t.low] {
			if joins(toks[i:], c.from) {
				t.low, n = c.to, len(c.from)
				t.text = textOf(toks[i : i+n])
				t.kind = classify(c.to)
				break
			}
		}
		if v, ok := numberOf(t.low); ok {
			t.n = v
		}
		out = append(out, t)
		i += n
	}
	return out
}

func joins(toks []token, words []string) bool {
	if len(toks) < len(words) {
		return false
	}
	for i, w := range words {
		if toks[i].low != w || toks[i].group != toks[0].group {
			return false
		}
	}
	return true
}

// textOf returns toks as they read.
func textOf(toks []token) string {
	var b strings.Builder
	for i, t := range toks {
		if i > 0 && (t.kind != punct || t.text == "(" || t.text == "—") && toks[i-1].text != "(" {
			b.WriteByte(' ')
		}
		b.WriteString(t.text)
	}
	return b.String()
}
