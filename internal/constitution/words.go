package constitution

import (
	"strings"
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

// possessives are determiners that narrow a noun to something not said here.
const possessives = " its their my your our his her these those "

// titles may head a list; they say nothing themselves.
const titleWords = ` agent agents and clause clauses constitution details email file files filesystem folders general git hosts mail memory
network notes other packages permissions policies policy principles programs rule rules security sites the tools web `

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

var numberWords = strings.Fields("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen nineteen twenty")

var tens = strings.Fields("twenty thirty forty fifty sixty seventy eighty ninety")
