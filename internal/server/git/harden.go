package git

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// always are the settings that every git gets on its command line, where they win
// over every file (git-config(1), "FILES"). Those of the first group name
// programs; those of the second make git start something, write somewhere or talk
// to someone that the call does not mention; those of the third would change the
// form of what we read.
var always = []string{
	"core.fsmonitor=false",
	"core.hooksPath=" + devNull,
	"core.pager=cat",
	"core.editor=:",
	"core.askPass=" + devNull,
	"core.alternateRefsCommand=:",
	"core.attributesFile=" + devNull,
	"credential.helper=",
	"gpg.program=" + devNull,
	"gpg.openpgp.program=" + devNull,
	"gpg.x509.program=" + devNull,
	"gpg.ssh.program=" + devNull,
	"gpg.ssh.defaultKeyCommand=",

	"commit.gpgSign=false",
	"tag.gpgSign=false",
	"tag.forceSignAnnotated=false",
	"push.gpgSign=false",
	"log.showSignature=false",
	"merge.verifySignatures=false",
	"rebase.backend=merge",
	"pull.twohead=ort",
	"pull.octopus=octopus",
	"gc.auto=0",
	"maintenance.auto=false",
	"submodule.recurse=false",
	"fetch.recurseSubmodules=false",
	"push.recurseSubmodules=no",
	"push.followTags=false",
	"push.pushOption=",
	"fetch.writeCommitGraph=false",
	"http.followRedirects=false",
	"http.sslVerify=true",
	"http.saveCookies=false",
	"transfer.bundleURI=false",
	"protocol.allow=never",
	"core.protectHFS=true",
	"core.protectNTFS=true",

	"color.ui=false",
	"core.quotePath=false",
	"column.ui=never",
	"diff.noprefix=false",
	"diff.mnemonicPrefix=false",
	"diff.renames=true",
	"diff.submodule=short",
	"status.submoduleSummary=false",
	"diff.suppressBlankEmpty=false",
	"diff.orderFile=" + devNull,
	"log.decorate=false",
	"log.follow=false",
	"log.mailmap=false",
	"status.relativePaths=false",
	"format.pretty=medium",
}

// turnOff are the settings with a name in them that run a program, and the value
// that stops it. An empty filter is no filter; a merge driver that fails is a
// conflict, which a person can see.
var turnOff = map[[2]string]string{
	{"filter", "clean"}:        "",
	{"filter", "smudge"}:       "",
	{"filter", "process"}:      "",
	{"filter", "required"}:     "false",
	{"merge", "driver"}:        "false",
	{"credential", "helper"}:   "",
	{"branch", "mergeoptions"}: "",
}

// harmless are the sections that nothing we run reads, although they name
// programs: other commands of git and other tools do.
var harmless = []string{
	"alias", "annex", "browser", "difftool", "gitcvs", "gitweb", "gui", "guitool", "help", "imap", "instaweb",
	"interactive", "lfs", "man", "mergetool", "pager", "sendemail", "svn", "tar", "trailer", "web",
}

// suspects are what the keys of settings end in that name a program or another
// repository. Such a setting is refused unless it is understood, whatever its
// section: a newer git may know one that we do not.
var suspects = []string{
	"askpass", "clean", "cmd", "command", "driver", "editor", "exec", "external", "fsmonitor", "helper", "hook", "hookspath",
	"pager", "process", "program", "proxy", "receivepack", "smudge", "textconv", "tool", "uploadpack", "vcs",
}

// understood are the settings that end like that and cannot harm: they are turned
// off by always, overridden by the environment or by an option of every command
// that would read them (diffs have --no-ext-diff and --no-textconv), or judged
// when a remote is contacted (see transport). "*" stands for any name.
var understood = map[string]bool{
	"core.askpass":               true,
	"core.alternaterefscommand":  true,
	"core.editor":                true,
	"core.fsmonitor":             true,
	"core.gitproxy":              true,
	"core.hookspath":             true,
	"core.pager":                 true,
	"core.sshcommand":            true,
	"core.usebuiltinfsmonitor":   true,
	"credential.helper":          true,
	"diff.*.cachetextconv":       true,
	"diff.*.command":             true,
	"diff.*.textconv":            true,
	"diff.external":              true,
	"diff.guitool":               true,
	"diff.tool":                  true,
	"gc.recentobjectshook":       true,
	"gpg.*.program":              true,
	"gpg.program":                true,
	"http.*.proxy":               true,
	"http.proxy":                 true,
	"merge.guitool":              true,
	"merge.tool":                 true,
	"remote.*.proxy":             true,
	"remote.*.receivepack":       true,
	"remote.*.uploadpack":        true,
	"remote.*.vcs":               true,
	"sequence.editor":            true,
	"uploadpack.packobjectshook": true,
	"gpg.*.defaultkeycommand":    true,
}

// harden finds out what is to be turned off in r and in its submodules, and refuses
// what cannot be.
func (r *repo) harden(ctx context.Context) error {
	r.settings = r.settings[:0]
	for _, s := range always {
		r.settings = append(r.settings, "-c", s)
	}
	// Whoever owns the directory: it was chosen by the call, not found by git.
	r.settings = append(r.settings, "-c", "safe.directory="+r.home(), "-c", "safe.directory="+r.common)
	if name, _ := r.config.last("user", "", "name"); name == "" && r.s.opt.Name != "" {
		r.settings = append(r.settings, "-c", "user.name="+r.s.opt.Name)
	}
	if email, _ := r.config.last("user", "", "email"); email == "" && r.s.opt.Email != "" {
		r.settings = append(r.settings, "-c", "user.email="+r.s.opt.Email)
	}
	off, err := judge(r.config, r.common)
	if err != nil {
		return err
	}
	r.turn(off)
	return r.submodules(ctx, r.top, r.gitDir, r.common, maxNesting)
}

// turn adds settings, each once.
func (r *repo) turn(off []string) {
	for _, o := range off {
		if !slices.Contains(r.settings, o) {
			r.settings = append(r.settings, "-c", o)
		}
	}
}

// judge returns the settings that turn off what c would run.
func judge(c config, where string) (off []string, err error) {
	for i := range c {
		s := &c[i]
		if v, ok := turnOff[[2]string{s.section, s.key}]; ok && s.sub != "" {
			if strings.ContainsAny(s.sub, "=\n") {
				return nil, refused(s, where)
			}
			off = append(off, s.name()+"="+v)
			continue
		}
		if strings.HasPrefix(s.section, "include") || suspicious(s) {
			return nil, refused(s, where)
		}
	}
	return off, nil
}

func refused(s *setting, where string) error {
	return fmt.Errorf("the configuration in %s sets %s, which can make git run a program or read another file; remove that setting", where, s.name())
}

// suspicious reports whether s could run something that is not turned off.
func suspicious(s *setting) bool {
	name := s.section + "." + s.key
	if s.sub != "" {
		name = s.section + ".*." + s.key
	}
	switch {
	case slices.Contains(harmless, s.section), understood[name]:
		return false
	case name == "submodule.*.update":
		return strings.HasPrefix(s.value, "!")
	}
	return slices.ContainsFunc(suspects, func(end string) bool { return strings.HasSuffix(s.key, end) })
}

// maxNesting is how deep submodules are looked into.
const maxNesting = 4

// gitlink is the mode of a submodule in the index, as it is stored there
// (gitformat-index(5)).
var gitlink = []byte{0, 0, 0xe0, 0}

// submodules turns off what the configurations of checked-out submodules would run:
// git starts itself in them, with our command line settings and their files.
func (r *repo) submodules(ctx context.Context, top, gitDir, common string, depth int) error {
	if top == "" {
		return nil
	}
	has, err := hasGitlinks(gitDir)
	if err != nil || !has {
		return err
	}
	if depth == 0 {
		return fmt.Errorf("submodules of %s are nested too deeply", r.top)
	}
	at := *r
	at.top, at.gitDir, at.common = top, gitDir, common
	entries, err := at.list(ctx, "ls-files", "--stage", "-z")
	if err != nil {
		return err
	}
	for _, e := range entries {
		path, ok := strings.CutPrefix(e, "160000 ")
		if !ok {
			continue
		}
		if _, path, ok = strings.Cut(path, "\t"); !ok {
			continue
		}
		if err := r.submodule(ctx, filepath.Join(top, path), common, depth); err != nil {
			return fmt.Errorf("submodule %s: %w", path, err)
		}
	}
	return nil
}

func (r *repo) submodule(ctx context.Context, top, common string, depth int) error {
	dot := filepath.Join(top, ".git")
	fi, err := os.Lstat(dot)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return reason(err)
	}
	gitDir := dot
	switch {
	case fi.Mode().IsRegular():
		if gitDir, err = readLink(dot, "gitdir: ", top); err != nil {
			return err
		}
		if !within(filepath.Join(common, "modules"), gitDir) {
			return fmt.Errorf("its .git file leads to %s, which is not in the repository", gitDir)
		}
	case !fi.IsDir():
		return fmt.Errorf("%s is neither a file nor a directory", dot)
	}
	if _, err := os.Lstat(filepath.Join(gitDir, "commondir")); err == nil {
		return fmt.Errorf("%s leads to another repository", gitDir)
	}
	c, err := r.s.readConfigs(ctx, gitDir, gitDir)
	if err != nil {
		return err
	}
	off, err := judge(c, gitDir)
	if err != nil {
		return err
	}
	r.turn(off)
	return r.submodules(ctx, top, gitDir, gitDir, depth-1)
}

// hasGitlinks reports whether an index could hold a submodule. It may say yes to
// one that holds none.
func hasGitlinks(gitDir string) (bool, error) {
	shared, err := filepath.Glob(filepath.Join(gitDir, "sharedindex.*"))
	if err != nil {
		return false, fmt.Errorf("reading index: %w", err)
	}
	for _, name := range append(shared, filepath.Join(gitDir, "index")) {
		fi, err := os.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil || !fi.Mode().IsRegular() {
			return false, fmt.Errorf("reading index: %s is not a regular file", name)
		}
		f, err := os.Open(name)
		if err != nil {
			return false, fmt.Errorf("reading index: %w", err)
		}
		found, err := contains(f, gitlink)
		f.Close()
		if err != nil || found {
			return found, err
		}
	}
	return false, nil
}

// contains reports whether want stands anywhere in r.
func contains(r io.Reader, want []byte) (bool, error) {
	buf := make([]byte, 64<<10)
	keep := 0
	for {
		n, err := r.Read(buf[keep:])
		if bytes.Contains(buf[:keep+n], want) {
			return true, nil
		}
		if err == io.EOF {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		from := max(0, keep+n-len(want)+1)
		keep = copy(buf, buf[from:keep+n])
	}
}
