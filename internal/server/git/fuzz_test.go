package git

import (
	"strings"
	"testing"
)

func FuzzConfig(f *testing.F) {
	f.Add("core.bare\nfalse\x00filter.a.b.clean\nx\x00alias.x\x00")
	f.Add(".\n")
	f.Fuzz(func(t *testing.T, out string) {
		c, err := parseConfig(out)
		if err != nil {
			return
		}
		for i := range c {
			s := &c[i]
			if s.section == "" || s.key == "" || s.section != strings.ToLower(s.section) {
				t.Errorf("%+v", s)
			}
		}
		off, err := judge(c, "here")
		for _, o := range off {
			if err == nil && strings.ContainsAny(o[:strings.Index(o, "=")], "\n") {
				t.Errorf("%q", o)
			}
		}
	})
}

// What git prints is made from names that strangers chose.
func FuzzOutput(f *testing.F) {
	f.Add("# branch.head main\x001 M. N... 100644 100644 100644 a b f\x002 R. N... 1 1 1 a b R100 new\x00old\x00u UU N... 1 1 1 1 a b c f\x00? x\x00")
	f.Add("1\t2\tf\x00-\t-\t\x00old\x00new\x00")
	f.Add("worktree /w\x00HEAD 12\x00branch refs/heads/x\x00\x00")
	f.Add("0123 1 1 1\nauthor A\nauthor-time 12\n\tline\n")
	f.Fuzz(func(t *testing.T, out string) {
		items := splitNUL(out)
		parseStatus(items)
		parseNumstat(items)
		for _, w := range parseWorktrees(items) {
			if w.Path == "" {
				t.Error("a work tree without a path")
			}
		}
		parseBlame(out)
	})
}

// G3: what is accepted as a remote is a URL of the schemes allowed or the short form
// of ssh, and nothing that git or ssh could read as an option or a helper.
func FuzzRemoteURL(f *testing.F) {
	for _, s := range []string{
		"https://example.com/x", "git@example.com:x", "ssh://-oProxyCommand=x/y", "ext::sh -c x", "file:///etc", "[::1]:x", "a:b:c", "HTTPS://x/",
		"ssh://a@-b/c", "git://x:1/y", "x::y", "-x:y", "u@h:-x", "C:\\x", "./x", "https://x/?q", "https://u:p@x/",
	} {
		f.Add(s)
	}
	s := &server{roots: []string{"/nonexistent/root"}}
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := s.remoteURL(raw, "/nonexistent/root")
		if err != nil {
			return
		}
		if u == "" || u[0] == '-' || strings.Contains(u, "::") && !strings.Contains(u, "[") && !strings.Contains(u, "://") && strings.Index(u, "::") == strings.IndexByte(u, ':') {
			t.Fatalf("%q becomes %q", raw, u)
		}
		scheme, rest, isURL := strings.Cut(u, "://")
		if !isURL {
			return
		}
		switch strings.ToLower(scheme) {
		case "https", "http", "ssh", "git":
		default:
			t.Fatalf("%q has the scheme %q", raw, scheme)
		}
		if _, host, _ := strings.Cut("@"+rest, "@"); strings.HasPrefix(host, "-") || strings.HasPrefix(rest, "-") {
			t.Fatalf("%q has a host that begins with -", raw)
		}
	})
}
