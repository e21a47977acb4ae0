package git

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
)

// A target is a remote as a call is about it: the URLs that git will be given, and
// the name it goes by in the configuration, if any. git itself never sees the name,
// so no setting of the remote takes effect but those that we apply.
type target struct {
	name string   // "" if no configured remote leads there
	urls []string // several only if several are configured for pushing
}

// title is how results name the remote.
func (t target) title() string {
	if t.name != "" {
		return t.name
	}
	return t.urls[0]
}

// protocols are the transports that git may use.
func (s *server) protocols() string {
	if s.opt.LocalRemotes {
		return "https:http:ssh:git:file"
	}
	return "https:http:ssh:git"
}

// findTarget returns the remote that arg names: a configured name, a URL, or, if it
// is empty, the one that git would take for the current branch.
func (r *repo) findTarget(ctx context.Context, arg string, push bool) (target, error) {
	if err := option("remote", arg); err != nil {
		return target{}, err
	}
	if err := r.judgeTransport(); err != nil {
		return target{}, err
	}
	if arg == "" {
		branch, err := r.current(ctx)
		if err != nil {
			return target{}, err
		}
		arg = r.config.defaultRemote(branch, push)
		if err := word("the default remote", arg); err != nil {
			return target{}, err
		}
	}
	t := target{name: arg, urls: r.config.urls(arg, push)}
	if len(t.urls) == 0 {
		if !strings.ContainsAny(arg, ":/") {
			return target{}, fmt.Errorf("there is no remote %q; there are: %s", arg, strings.Join(r.config.remotes(), ", "))
		}
		t = target{name: r.config.nameOf(arg, push), urls: []string{arg}}
	}
	for i, u := range t.urls {
		clean, err := r.s.remoteURL(u, r.dir)
		if err == nil {
			err = r.config.rewritten(clean)
		}
		if err != nil {
			return target{}, err
		}
		t.urls[i] = clean
	}
	return t, nil
}

// defaultRemote returns the remote that git takes when none is named (remote.c,
// pushremote_for_branch, remote_for_branch).
func (c config) defaultRemote(branch string, push bool) string {
	if push {
		if v, ok := c.last("branch", branch, "pushremote"); ok && branch != "" {
			return v
		}
		if v, ok := c.last("remote", "", "pushdefault"); ok {
			return v
		}
	}
	if v, ok := c.last("branch", branch, "remote"); ok && branch != "" {
		return v
	}
	if names := c.remotes(); len(names) == 1 {
		return names[0]
	}
	return "origin"
}

// urls returns where a configured remote is: one place for fetching, and all for
// pushing.
func (c config) urls(name string, push bool) []string {
	urls := c.all("remote", name, "url")
	if p := c.all("remote", name, "pushurl"); push && len(p) > 0 {
		urls = p
	}
	if !push && len(urls) > 1 {
		urls = urls[:1]
	}
	return slices.Clone(urls)
}

// nameOf returns the configured remote that leads to u, so that its remote-tracking
// branches are kept up to date.
func (c config) nameOf(u string, push bool) string {
	for _, n := range c.remotes() {
		if urls := c.urls(n, push); len(urls) == 1 && sameURL(urls[0], u) && validName(n) {
			return n
		}
	}
	return ""
}

// validName reports whether a remote's name can be part of a ref.
func validName(n string) bool {
	_, err := branchName("remote", n, "")
	return err == nil
}

// sameURL reports whether two URLs differ only in spelling: the case of the host, a
// default port, a slash or ".git" at the end, or the short form of ssh.
func sameURL(a, b string) bool { return a == b || plainURL(a) == plainURL(b) }

func plainURL(raw string) string {
	raw = strings.TrimPrefix(raw, "file://")
	if !strings.Contains(raw, "://") {
		host, path, ok := strings.Cut(raw, ":")
		if !ok || strings.Contains(host, "/") {
			return strings.TrimRight(raw, "/")
		}
		raw = "ssh://" + host + "/" + strings.TrimPrefix(path, "/")
	}
	u, err := url.Parse(raw)
	if err != nil {
		return raw
	}
	u.Scheme, u.Host = strings.ToLower(u.Scheme), strings.ToLower(u.Host)
	u.Host = strings.TrimSuffix(u.Host, map[string]string{"https": ":443", "http": ":80", "ssh": ":22", "git": ":9418"}[u.Scheme])
	u.Path = strings.TrimSuffix(strings.TrimRight(u.Path, "/"), ".git")
	u.RawPath = ""
	return u.String()
}

// rewritten refuses a URL that the repository's configuration would turn into
// another, or give settings of its own.
func (c config) rewritten(u string) error {
	for i := range c {
		s := &c[i]
		if s.section == "url" && (s.key == "insteadof" || s.key == "pushinsteadof") && strings.HasPrefix(u, s.value) {
			return fmt.Errorf("%s would rewrite %s; set the URL of the remote itself", s.name(), u)
		}
		if s.section == "remote" && s.sub == u {
			return fmt.Errorf("the configuration has settings for a remote that is called %s; remove them", u)
		}
	}
	return nil
}

// harmlessHTTP are the settings of http.* that only tune a connection. All others
// can send it elsewhere, or send along or store what nobody asked for.
var harmlessHTTP = []string{"lowspeedlimit", "lowspeedtime", "maxrequests", "minsessions", "postbuffer", "sslverify", "version"}

// judgeTransport refuses settings that change how a remote is contacted. What is
// only refused here does not stand in the way of calls that contact none.
func (r *repo) judgeTransport() error {
	for i := range r.config {
		s := &r.config[i]
		bad := s.section == "http" && (s.sub != "" || !slices.Contains(harmlessHTTP, s.key)) ||
			s.section == "fetch" && s.key == "bundleuri"
		if bad {
			return fmt.Errorf("the configuration in %s sets %s, which changes how remotes are contacted; remove that setting", r.common, s.name())
		}
	}
	return nil
}

// remoteURL returns raw as git will get it: a URL of a scheme that is allowed, the
// short form of ssh, or a file URL for a path beneath the roots, which may be
// relative to dir.
func (s *server) remoteURL(raw, dir string) (string, error) {
	if err := word("the URL of the remote", raw); err != nil {
		return "", err
	}
	scheme, rest, isURL := strings.Cut(raw, "://")
	host, path, short := strings.Cut(raw, ":")
	switch {
	case isURL && strings.EqualFold(scheme, "file"):
		return s.localURL(rest)
	case isURL:
		return raw, checkURL(raw)
	case strings.HasPrefix(path, ":"):
		return "", fmt.Errorf("%q names a helper program; a remote is a URL or a path", raw)
	case short && !strings.Contains(host, "/"):
		return raw, checkHost(host, path)
	case filepath.IsAbs(raw):
		return s.localURL(raw)
	}
	return s.localURL(filepath.Join(dir, raw))
}

func checkURL(raw string) error {
	u, err := url.Parse(raw)
	if err != nil {
		return fmt.Errorf("reading the URL of the remote: %w", err)
	}
	switch u.Scheme {
	case "https", "http", "ssh", "git":
	default:
		return fmt.Errorf("a remote cannot have the scheme %q; https, http, ssh and git can be used", u.Scheme)
	}
	if _, has := u.User.Password(); has {
		return errors.New("the URL of the remote holds a password, which would be stored and shown")
	}
	if u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return errors.New("the URL of the remote must have a host and neither query nor fragment")
	}
	return checkHost(u.User.Username()+"@"+u.Hostname(), u.Path)
}

// checkHost refuses what ssh could read as an option.
func checkHost(host, path string) error {
	user, name, ok := strings.Cut(host, "@")
	if !ok {
		user, name = "", host
	}
	if name == "" || name[0] == '-' || strings.HasPrefix(user, "-") || strings.HasPrefix(strings.TrimLeft(path, "/"), "-") {
		return fmt.Errorf("the remote %q has a part that is empty or begins with \"-\"", host+":"+path)
	}
	return nil
}

// localURL returns a file URL, which makes git treat the other repository as one of
// somebody else, for a path beneath the roots.
func (s *server) localURL(path string) (string, error) {
	if !s.opt.LocalRemotes {
		return "", fmt.Errorf("the remote %s is a path, and remotes on this machine are not allowed", path)
	}
	if !filepath.IsAbs(path) {
		return "", fmt.Errorf("the remote file://%s is not an absolute path", path)
	}
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", fmt.Errorf("the remote %s: %w", path, reason(err))
	}
	return "file://" + real, s.allowed(real)
}

// far returns the option that says what runs at the other end. For a repository on
// this machine that is a git of ours, and its repository is no less hostile: hooks
// run when it is pushed to.
func (s *server) far(u, option, program string) []string {
	path, local := strings.CutPrefix(u, "file://")
	if !local {
		return []string{option + "=git-" + program}
	}
	git := []string{
		quote(s.opt.Program), "-c", "core.hooksPath=" + devNull, "-c", "core.fsmonitor=false", "-c", "gc.auto=0",
		"-c", "maintenance.auto=false", "-c", "receive.autogc=false", "-c", "core.alternateRefsCommand=:", "-c", quote("safe.directory=" + path), program,
	}
	return []string{option + "=" + strings.Join(git, " ")}
}

// quote makes s one word of a shell, which git uses to start the other end.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
