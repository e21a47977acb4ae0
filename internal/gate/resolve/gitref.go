package resolve

import (
	"strings"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// A refSubject is the name of a branch, tag or revision: an argument without
// effects of its own.
type refSubject struct {
	full string // "refs/heads/x", "" if only git can tell
}

func (refSubject) on(k act.Kind, _ bool) ([]act.Effect, error) { return nil, noEffect(k, "ref") }
func (s refSubject) real() (string, bool)                      { return s.full, s.full != "" }

// ref reads a branch, tag or revision. Where a remote of this call takes it as
// the branch, it must be the name of one.
func (r *resolver) ref(t *target, text string) (subject, error) {
	local, remote := r.isBranchOfRemote(t.pattern)
	if !local && !remote {
		return refSubject{}, checkRevision(text)
	}
	if err := checkBranch(text); err != nil {
		return nil, err
	}
	if remote {
		full, err := remoteRef(text)
		return refSubject{full}, err
	}
	if t.arg.Base == "" {
		return refSubject{}, nil
	}
	repo, err := r.repoOf(t)
	if err != nil {
		return nil, err
	}
	full, err := repo.branchRef(text)
	return refSubject{full}, err
}

// isPath reports whether git would read the revision at pointer as a path in the
// repository that it belongs to. One that is absent is none.
func (r *resolver) isPath(pointer string) (bool, error) {
	t, ok := r.targets[pointer]
	if !ok {
		return false, nil
	}
	repo, err := r.repoOf(t)
	if err != nil {
		return false, valueError(err, pointer, r.given(t))
	}
	is, err := repo.namesPath(r.given(t))
	if err != nil {
		return false, valueError(err, pointer, r.given(t))
	}
	return is, nil
}

// isBranchOfRemote reports whether a remote of this tool takes the argument as
// the local or the remote branch.
func (r *resolver) isBranchOfRemote(pattern string) (local, remote bool) {
	for _, a := range r.call.Annotation.Args {
		if a.Role == policy.RoleRemote {
			local = local || a.Ref == pattern
			remote = remote || a.RefTo == pattern
		}
	}
	return local, remote
}

// checkRevision refuses what git could read as an option.
func checkRevision(s string) error {
	switch {
	case s == "":
		return bad("", "an empty name is no revision")
	case s[0] == '-':
		return bad("", "could be read as an option")
	case len(s) > maxPath, hasControl(s):
		return bad("", "is no revision")
	}
	return nil
}

// checkBranch refuses what git push would read as more than the name of one
// branch or tag: "+x" forces, "x:y" goes elsewhere, "*" is all.
func checkBranch(s string) error {
	if err := checkRevision(s); err != nil {
		return err
	}
	if s == "HEAD" || s == "@" {
		return nil
	}
	if s[0] == '+' {
		return bad("use the argument of this tool that forces", `begins with "+", which forces`)
	}
	return checkRefName(s)
}

// checkRefName is git-check-ref-format(1) with one level allowed.
func checkRefName(s string) error {
	no := bad("", "is no name of a branch or tag")
	if s == "" || s == "@" || len(s) > maxPath || strings.HasSuffix(s, ".") || strings.Contains(s, "..") || strings.Contains(s, "@{") {
		return no
	}
	if strings.ContainsAny(s, " ~^:?*[\\") || hasControl(s) {
		return no
	}
	for part := range strings.SplitSeq(s, "/") {
		if part == "" || part[0] == '.' || strings.HasSuffix(part, ".lock") {
			return no
		}
	}
	return nil
}

// remoteRef returns the ref that a push changes at the other end.
func remoteRef(name string) (string, error) {
	if name == "HEAD" || name == "@" {
		return "", bad("write the name of the branch", "names no branch of the remote")
	}
	return fullRef(name), nil
}

func fullRef(name string) string {
	if strings.HasPrefix(name, "refs/") {
		return name
	}
	return "refs/heads/" + name
}

// branchRef returns the ref that git push means by a local name, "" if HEAD is
// meant and names none.
func (s repoSubject) branchRef(name string) (string, error) {
	if name == "HEAD" || name == "@" {
		return s.head()
	}
	if strings.HasPrefix(name, "refs/") {
		return name, nil
	}
	direct, err := s.hasRef("refs/" + name)
	if err != nil {
		return "", err
	}
	head, err := s.hasRef("refs/heads/" + name)
	if err != nil {
		return "", err
	}
	tag, err := s.hasRef("refs/tags/" + name)
	if err != nil {
		return "", err
	}
	switch {
	case (head && tag) || direct && (head || tag):
		return "", bad("write it in full, as in refs/heads/"+name, "is the name of more than one ref of this repository")
	case direct:
		return "refs/" + name, nil
	case tag:
		return "refs/tags/" + name, nil
	}
	return "refs/heads/" + name, nil
}
