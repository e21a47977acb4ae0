package constitution

import (
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act"
)

// senseRows say which kinds of effect a verb means on a class of nouns: the
// verb's sense, then class=kinds. The class "-" is a verb without an object.
// Where a permission and a restriction read a word differently, the kinds after
// "|" are those of the restriction: what is granted is read narrowly, what is
// held back widely. Nothing before "|" means that a permission must say more.
//
// R, W, P, G, M and N are abbreviations; see [senseSets].
const senseRows = `
read       file=R folder=R code=R data=R any=R,git-read git=git-read history=git-read repo=git-read commit=git-read branch=git-read tag=git-read page=fetch credential=R secret=|use-secret,R memory=recall
list       file=list,stat folder=list,stat any=list,stat git=git-read history=git-read commit=git-read branch=git-read tag=git-read remote=git-read memory=recall
search     file=R folder=R code=R any=R,git-read history=git-read commit=git-read memory=recall
browse     file=R folder=R page=fetch site=fetch network=fetch
open       file=R folder=R page=fetch site=fetch
create     file=create|create,move folder=create|create,move any=create|create,move code=create|create,move branch=git-branch tag=git-branch commit=git-commit memory=remember request=fetch,send
write      file=W|W,move folder=W|W,move any=W|W,move code=W|W,move data=W|W,move credential=W|W,move memory=remember
edit       file=W|W,move folder=W|W,move any=W|W,move code=W|W,move data=W|W,move credential=W|W,move package=install history=git-rewrite memory=remember
overwrite  file=overwrite any=overwrite code=overwrite credential=overwrite
append     file=append any=append
delete     -=delete data=delete file=delete folder=delete any=delete code=delete credential=delete branch=git-rewrite tag=git-rewrite history=git-rewrite commit=git-rewrite memory=remember
move       -=move file=move folder=move any=move code=move branch=git-branch
copy       file=R,create,overwrite folder=R,create,overwrite any=R,create,overwrite
run        program=execute any=execute code=execute
use        program=execute tool=call secret=use-secret model=infer memory=recall,remember network=N|N,G,install,message page=fetch site=N request=fetch,send
call       tool=call model=infer
fetch      page=fetch site=fetch file=fetch data=fetch any=fetch package=install remote=git-fetch
send       -=send request=send any=send,message data=send,message code=send,message file=send,message email=message
reply      -=message email=message person=message
email      -=message person=message any=message
contact    site=N|N,G page=N|N,G network=N|N,G,install,message any=N|N,G,install,message person=message remote=G
access     file=|P,M folder=|P,M code=|P any=|P,M credential=|P,M secret=|use-secret,P page=N|N,G site=N|N,G network=N|N,G,install,message tool=call memory=recall,remember repo=|M
install    package=install any=install program=install
add        package=install file=create folder=create branch=git-branch tag=git-branch memory=remember
commit     -=git-commit change=git-commit file=git-commit any=git-commit code=git-commit
branch     -=git-branch
merge      branch=git-commit
tag        -=git-branch commit=git-branch
checkout   -=git-branch branch=git-branch
rebase     -=git-rewrite branch=git-rewrite commit=git-rewrite
reset      -=git-rewrite branch=git-rewrite change=git-rewrite repo=git-rewrite
amend      -=git-rewrite commit=git-rewrite
rewrite    history=git-rewrite|git-rewrite,git-force commit=git-rewrite branch=git-rewrite
push       -=git-push|git-push,git-force change=git-push|git-push,git-force commit=git-push|git-push,git-force branch=git-push|git-push,git-force tag=git-push|git-push,git-force code=git-push|git-push,git-force any=git-push|git-push,git-force
force-push -=git-force change=git-force commit=git-force branch=git-force any=git-force code=git-force tag=git-force
pull       -=git-fetch change=git-fetch branch=git-fetch commit=git-fetch any=git-fetch code=git-fetch
clone      -=git-fetch repo=git-fetch any=git-fetch
remember   -=remember memory=remember any=remember data=remember op=remember
forget     -=remember memory=remember any=remember
recall     -=recall memory=recall any=recall
ask        person=ask question=ask
resolve    site=resolve
do         any=P,M folder=P,M file=P
`

// senseSets are the abbreviations of [senseRows].
var senseSets = map[string][]act.Kind{
	"R": {act.Read, act.List, act.Stat},
	"W": {act.Create, act.Overwrite, act.Append},
	"P": {act.Read, act.List, act.Stat, act.Create, act.Overwrite, act.Append, act.Delete, act.Move},
	"M": {act.GitRead, act.GitCommit, act.GitBranch, act.GitRewrite},
	"G": {act.GitFetch, act.GitPush, act.GitForce},
	"N": {act.Resolve, act.Connect, act.Fetch, act.Send},
}

type sense struct{ narrow, wide []act.Kind }

// senses returns the table of [senseRows] by verb and class.
var senses = sync.OnceValue(func() map[string]map[string]sense {
	all := map[string]map[string]sense{}
	for _, row := range rows(senseRows) {
		of := map[string]sense{}
		for _, cell := range row[1:] {
			class, kinds, _ := strings.Cut(cell, "=")
			narrow, wide, differ := strings.Cut(kinds, "|")
			s := sense{narrow: kindSet(narrow), wide: kindSet(wide)}
			if !differ {
				s.wide = s.narrow
			}
			of[class] = s
		}
		all[row[0]] = of
	}
	return all
})

func kindSet(list string) []act.Kind {
	var kinds []act.Kind
	if list == "" {
		return nil
	}
	for name := range strings.SplitSeq(list, ",") {
		if set, ok := senseSets[name]; ok {
			kinds = append(kinds, set...)
			continue
		}
		kinds = append(kinds, act.Kind(name))
	}
	return ordered(kinds)
}

// ordered returns kinds without repetition, in the order of the table.
func ordered(kinds []act.Kind) []act.Kind {
	var out []act.Kind
	for _, k := range act.Kinds() {
		if slices.Contains(kinds, k) {
			out = append(out, k)
		}
	}
	return out
}

// gitOps are the operations of git that are named after the word git: the kinds
// that a permission gives, and whether the operation is the whole meaning of
// these kinds. Where it is not, the clause is about the tool git.git_<name>.
var gitOps = map[string]struct {
	kinds []act.Kind
	whole bool
}{
	"status": {kinds: []act.Kind{act.GitRead}}, "diff": {kinds: []act.Kind{act.GitRead}},
	"log": {kinds: []act.Kind{act.GitRead}}, "show": {kinds: []act.Kind{act.GitRead}},
	"blame": {kinds: []act.Kind{act.GitRead}}, "reflog": {kinds: []act.Kind{act.GitRead}},
	"add": {kinds: []act.Kind{act.GitCommit}}, "merge": {kinds: []act.Kind{act.GitCommit}},
	"cherry-pick": {kinds: []act.Kind{act.GitCommit}}, "revert": {kinds: []act.Kind{act.GitCommit}},
	"stash": {kinds: []act.Kind{act.GitCommit}}, "init": {kinds: []act.Kind{act.GitBranch}},
	"checkout": {kinds: []act.Kind{act.GitBranch}}, "tag": {kinds: []act.Kind{act.GitBranch}},
	"worktree": {kinds: []act.Kind{act.GitBranch}},
	"rebase":   {kinds: []act.Kind{act.GitRewrite}}, "reset": {kinds: []act.Kind{act.GitRewrite}},
	"clean":  {kinds: []act.Kind{act.Delete}},
	"commit": {kinds: []act.Kind{act.GitCommit}, whole: true},
	"branch": {kinds: []act.Kind{act.GitBranch}, whole: true},
	"push":   {kinds: []act.Kind{act.GitPush}, whole: true},
	"pull":   {kinds: []act.Kind{act.GitFetch}, whole: true},
	"fetch":  {kinds: []act.Kind{act.GitFetch}, whole: true},
	"clone":  {kinds: []act.Kind{act.GitFetch}, whole: true},
}

// credentialPlaces are where the keys and tokens of a person lie: what the word
// credentials stands for. They are directories and files with fixed places, so
// that a search elsewhere is not held up by them.
var credentialPlaces = []string{
	"${home}/.ssh", "${home}/.gnupg", "${home}/.aws", "${home}/.azure", "${home}/.config/gcloud", "${home}/.kube",
	"${home}/.docker/config.json", "${home}/.config/gh", "${home}/.netrc", "${home}/.git-credentials", "${home}/.npmrc",
	"${home}/.pypirc", "${home}/.cargo/credentials.toml", "${home}/.password-store", "${home}/.local/share/keyrings",
	"${home}/.mozilla", "${home}/.config/google-chrome", "${home}/Library/Keychains", "/etc/shadow", "/etc/ssh",
}

// inGroup returns the kinds that are in group g. Observe is about this machine
// only: no phrase about reading reaches what is remote.
func inGroup(g act.Group) []act.Kind {
	var kinds []act.Kind
	for _, k := range act.Kinds() {
		if k.In(g) && (g != act.Observe || !k.In(act.RemoteGroup)) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func ofType(types ...act.ResourceType) []act.Kind {
	var kinds []act.Kind
	for _, k := range act.Kinds() {
		if slices.Contains(types, k.On()) {
			kinds = append(kinds, k)
		}
	}
	return kinds
}

func common(a, b []act.Kind) []act.Kind {
	var out []act.Kind
	for _, k := range a {
		if slices.Contains(b, k) {
			out = append(out, k)
		}
	}
	return out
}
