package resolve

import (
	"regexp"
	"slices"
	"strings"
	"sync"
)

// harmlessVariables may be set for one command.
var harmlessVariables = []string{
	"CI", "DEBUG", "NODE_ENV", "LANG", "LANGUAGE", "TZ", "TERM", "COLUMNS", "NO_COLOR", "FORCE_COLOR", "CLICOLOR",
	"GOOS", "GOARCH", "CGO_ENABLED", "GOMAXPROCS", "RUST_BACKTRACE", "RUST_LOG", "PYTHONUNBUFFERED",
	"PYTHONDONTWRITEBYTECODE", "PYTHONHASHSEED", "VERBOSE", "V",
}

// refusedBuiltins change what later words mean, or run text.
var refusedBuiltins = []string{
	"eval", "source", ".", "alias", "unalias", "trap", "builtin", "enable", "shopt", "export", "declare", "typeset",
	"readonly", "local", "unset", "read", "mapfile", "readarray", "pushd", "popd", "umask", "ulimit", "fc", "bind", "complete",
	"coproc", "exec", "command", "getopts", "shift", "dirs", "disown", "bg", "fg", "suspend", "let",
}

// shells read commands; of those in posixShells the grammar is read here.
var (
	shells      = []string{"sh", "bash", "dash", "ash", "ksh", "mksh", "zsh", "fish", "csh", "tcsh", "rbash"}
	posixShells = []string{"sh", "bash", "dash", "ash", "ksh", "mksh"}
)

// wrappers run the command that is their last arguments, and change nothing about
// what it does. They are looked through.
var wrappers = map[string]func([]string) (int, error){
	"env":     skipEnv,
	"nohup":   skipOptions(nil, nil, 0),
	"setsid":  skipOptions([]string{"-w", "--wait", "-f", "--fork"}, nil, 0),
	"nice":    skipOptions(nil, []string{"-n", "--adjustment"}, 0),
	"ionice":  skipOptions(nil, []string{"-c", "-n"}, 0),
	"time":    skipOptions([]string{"-p", "-v"}, nil, 0),
	"stdbuf":  skipOptions([]string{"-oL", "-eL", "-iL", "-o0", "-e0", "-i0"}, []string{"-o", "-e", "-i"}, 0),
	"timeout": skipOptions([]string{"--foreground", "--preserve-status", "-v", "--verbose"}, []string{"-k", "--kill-after", "-s", "--signal"}, 1),
}

// hidesCommand are programs that run a command which is not seen here, or as
// somebody else.
var hidesCommand = map[string]string{
	"sudo": "runs it as another user", "su": "runs it as another user", "doas": "runs it as another user",
	"pkexec": "runs it as another user", "runuser": "runs it as another user", "setpriv": "runs it as another user",
	"xargs": "takes the rest of it from its input", "parallel": "takes the rest of it from its input",
	"watch": "runs it again and again", "entr": "runs it again and again",
	"script": "hides the command", "flock": "hides the command", "unbuffer": "hides the command", "rlwrap": "hides the command",
	"expect": "hides the command", "tmux": "hides the command", "screen": "hides the command",
	"at": "runs it later", "batch": "runs it later", "crontab": "runs it later", "systemd-run": "runs it elsewhere",
	"start-stop-daemon": "runs it elsewhere", "dbus-run-session": "hides the command",
	"unshare": "changes what it sees", "nsenter": "changes what it sees", "chroot": "changes what it sees",
	"proot": "changes what it sees", "fakeroot": "changes what it sees", "bwrap": "changes what it sees",
	"busybox": "is many programs in one", "toybox": "is many programs in one",
	"taskset": "hides the command", "chrt": "hides the command", "numactl": "hides the command", "setarch": "hides the command",
	"strace": "hides the command", "ltrace": "hides the command", "ld.so": "hides the command",
	"ld-linux-x86-64.so.2": "hides the command", "ld-linux-aarch64.so.1": "hides the command",
}

// An optionRule says which arguments of a program are refused, because they make
// it run other programs, read its orders from a file, or go where its name does
// not tell.
type optionRule struct {
	long   []string // long options, without dashes; abbreviations of them too
	exact  []string // long options that are fine, though they begin like one of those
	short  string   // short options, also in a cluster
	valued string   // short options that take the rest of the cluster
	single []string // options with one dash and several letters
	inside []string // text inside any argument
}

// makeRule: what make reads is of the workspace, not of the agent's own words, and it runs
// what its makefile names, not what a variable says.
var makeRule = optionRule{
	long: []string{"eval"}, short: "E", valued: "CfIjloOW", inside: []string{"$", "`", "\n"},
}

// gitShort are the short options of subcommands of git that are refused, by which it
// runs other programs or takes other settings.
var gitShort = map[string]optionRule{
	"rebase": {short: "xi", valued: "sXCSO"}, "grep": {short: "O", valued: "ABCefm"}, "clone": {short: "uc", valued: "objO"},
	"ls-remote": {short: "u", valued: "o"}, "help": {short: "wm"}, "difftool": {short: "x"}, "archive": {short: "o"},
}

var optionRules = map[string]optionRule{
	"find": {single: []string{"-exec", "-execdir", "-ok", "-okdir", "-fprint", "-fprint0", "-fprintf", "-fls"}},
	"tar": {
		long:  []string{"to-command", "checkpoint-action", "use-compress-program", "rsh-command", "rmt-command", "info-script", "new-volume-script"},
		exact: []string{"checkpoint"}, short: "IF", valued: "bCfgHKLNTVX",
	},
	"curl": {
		long: []string{
			"output", "output-dir", "remote-name", "remote-name-all", "config", "unix-socket", "abstract-unix-socket", "proxy", "preproxy",
			"socks4", "socks5", "connect-to", "resolve", "upload-file", "dump-header", "cookie-jar", "trace", "trace-ascii", "netrc-file", "engine",
		},
		short: "oOKxTDcE", valued: "AbdeFhHmPQrtuUwXyYz",
	},
	"wget": {long: []string{
		"execute", "use-askpass", "config", "input-file", "post-file", "body-file", "output-document", "output-file", "append-output",
		"directory-prefix", "save-cookies", "load-cookies", "warc-file", "hsts-file",
	}, short: "eiOoaP", valued: "UtTwQDIXlAR"},
	"cargo":  {long: []string{"config"}},
	"rg":     {long: []string{"pre", "hostname-bin"}, exact: []string{"pre-glob", "pretty"}},
	"fd":     {long: []string{"exec", "exec-batch"}, short: "xX", valued: "edtEScjo"},
	"fdfind": {long: []string{"exec", "exec-batch"}, short: "xX", valued: "edtEScjo"},
	"man":    {long: []string{"pager", "html", "config-file", "preprocessor"}, short: "PHC", valued: "LmMrRSsep"},
	"ag":     {long: []string{"pager"}},
	"npm":    {long: []string{"script-shell", "userconfig", "globalconfig", "node-options", "registry"}},
	"npx":    {long: []string{"script-shell", "userconfig", "globalconfig", "node-options", "registry", "shell"}},
	"pnpm":   {long: []string{"script-shell", "userconfig", "globalconfig", "node-options", "registry"}},
	"yarn":   {long: []string{"script-shell", "use-yarnrc", "registry"}},
	"pip":    {long: []string{"index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "python"}, short: "if", valued: "rceteb"},
	"pip3":   {long: []string{"index-url", "extra-index-url", "find-links", "trusted-host", "proxy", "python"}, short: "if", valued: "rceteb"},
	"uv":     {long: []string{"index-url", "extra-index-url", "find-links", "default-index", "index", "allow-insecure-host"}, short: "if"},
	"rsync":  {long: []string{"rsh", "rsync-path", "daemon", "config"}, short: "e", valued: "fBTM"},
	"sed":    {long: []string{"file"}, short: "f", valued: "el"},
	"awk":    {long: []string{"file", "load", "include", "exec"}, short: "flE", valued: "Fv", inside: []string{"system", "getline", "|"}},
	"gawk":   {long: []string{"file", "load", "include", "exec"}, short: "flE", valued: "Fv", inside: []string{"system", "getline", "|"}},
	"mawk":   {long: []string{"file"}, short: "f", valued: "FvW", inside: []string{"system", "getline", "|"}},
	"sort":   {long: []string{"compress-program", "files0-from", "output"}, short: "o", valued: "kStT"},
	"split":  {long: []string{"filter"}},
	"zip":    {long: []string{"unzip-command"}, single: []string{"-TT"}},
	"go":     {inside: []string{"-extld"}, single: []string{"-exec", "--exec", "-toolexec", "--toolexec", "-vettool", "--vettool", "-overlay", "--overlay"}},
	"make":   makeRule,
	"gmake":  makeRule,
	"ssh":    {short: "oFSDLRWwEIJ", valued: "BbcelmOpQ"},
	"scp":    {short: "oFSJ", valued: "ciPlX"},
	"sftp":   {short: "oFSDJb", valued: "ciPlBR"},
	"gcc":    {single: []string{"-wrapper"}, inside: []string{"-fplugin", "-specs"}},
	"cc":     {single: []string{"-wrapper"}, inside: []string{"-fplugin", "-specs"}},
	"git": {
		long: []string{
			"upload-pack", "receive-pack", "exec", "exec-path", "config-env", "output", "ext-diff", "textconv", "open-files-in-pager",
			"extcmd", "config", "template", "upload-archive", "remote-helper", "web",
		},
		exact: []string{"text"}, inside: []string{"ext::", "fd::", "ProxyCommand"},
	},
}

// gitCommands are the subcommands of git that are looked at here; any other could
// be an alias or an extension.
var gitCommands = []string{
	"add", "am", "annotate", "apply", "archive", "bisect", "blame", "branch", "cat-file", "check-ignore", "cherry", "cherry-pick",
	"clean", "clone", "commit", "config", "count-objects", "describe", "diff", "diff-tree", "fetch", "for-each-ref", "format-patch", "fsck",
	"gc", "grep", "help", "init", "log", "ls-files", "ls-remote", "ls-tree", "merge", "merge-base", "mv", "notes", "pull", "push",
	"range-diff", "rebase", "reflog", "remote", "reset", "restore", "rev-list", "rev-parse", "revert", "rm", "shortlog", "show",
	"show-ref", "sparse-checkout", "stash", "status", "submodule", "switch", "checkout", "symbolic-ref", "tag", "version", "worktree",
}

// checkOptions refuses arguments that make a program do what its name does not
// tell.
func checkOptions(name string, argv []string) error {
	if rule, ok := optionRules[name]; ok {
		for _, a := range argv[1:] {
			if rule.refuses(a) {
				return bad("", "runs %s with %q, which makes it run or reach something else", name, a)
			}
		}
	}
	switch name {
	case "git":
		return checkGit(argv)
	case "go":
		return checkSettings(name, argv, "env -w", "env -u")
	case "npm", "pnpm":
		return checkSettings(name, argv, "config set", "config delete", "config edit", "config fix", "c set", "set")
	case "yarn", "pip", "pip3":
		return checkSettings(name, argv, "config set", "config edit", "config unset", "config delete")
	case "sed":
		return checkSed(argv)
	}
	return nil
}

func (r *optionRule) refuses(a string) bool {
	for _, s := range r.inside {
		if strings.Contains(a, s) {
			return true
		}
	}
	for _, s := range r.single {
		if a == s || strings.HasPrefix(a, s+"=") {
			return true
		}
	}
	if name, ok := strings.CutPrefix(a, "--"); ok {
		name, _, _ = strings.Cut(name, "=")
		return r.refusesLong(name)
	}
	return r.refusesShort(a)
}

// refusesLong knows that programs accept every abbreviation of a long option.
func (r *optionRule) refusesLong(name string) bool {
	if slices.Contains(r.exact, name) {
		return false
	}
	for _, l := range r.long {
		if name != "" && strings.HasPrefix(l, name) {
			return true
		}
	}
	return false
}

func (r *optionRule) refusesShort(a string) bool {
	if len(a) < 2 || a[0] != '-' {
		return false
	}
	for _, c := range a[1:] {
		if strings.ContainsRune(r.short, c) {
			return true
		}
		if strings.ContainsRune(r.valued, c) {
			return false
		}
	}
	return false
}

// checkSettings refuses to change the settings of a program, from which it takes
// its orders the next time: words are those after the program, without options.
func checkSettings(name string, argv []string, refused ...string) error {
	var words []string
	for _, a := range argv[1:] {
		if !strings.HasPrefix(a, "-") || name == "go" && len(words) > 0 {
			words = append(words, a)
		}
	}
	line := strings.Join(words, " ") + " "
	for _, r := range refused {
		if strings.HasPrefix(line, r+" ") || strings.HasPrefix(line, r+"=") {
			return bad("a person must change the settings of "+name, "runs %s %s, which changes what %s does later", name, r, name)
		}
	}
	return nil
}

// readsConfig reports whether git config with args only reads: what it is to do
// comes first, after options that say where and how.
func readsConfig(args []string) bool {
	scopes := []string{"--global", "--local", "--system", "--worktree", "--null", "-z", "--show-origin", "--show-scope", "--name-only", "--includes", "--no-includes"}
	reads := []string{"--get", "--get-all", "--get-regexp", "--get-urlmatch", "--list", "-l", "get", "list"}
	for i, a := range args {
		if slices.Contains(scopes, a) {
			continue
		}
		rest := args[i+1:]
		return slices.Contains(reads, a) && !slices.ContainsFunc(rest, func(o string) bool {
			return strings.HasPrefix(o, "-") && !slices.Contains(scopes, o) && !slices.Contains(reads, o) &&
				!strings.HasPrefix(o, "--type") && !strings.HasPrefix(o, "--default") && o != "--all" && o != "--regexp" && o != "--bool" && o != "--int" && o != "--path"
		})
	}
	return false
}

// checkGit refuses subcommands that run programs or change what git runs.
func checkGit(argv []string) error {
	for i := 1; i < len(argv); i++ {
		switch a := argv[i]; {
		case a == "-c":
			return bad("", "runs git with %q, which changes what git runs", a)
		case a == "-C" || a == "--git-dir" || a == "--work-tree" || a == "--namespace":
			i++
		case strings.HasPrefix(a, "-"):
		default:
			return checkGitCommand(a, argv[i+1:])
		}
	}
	return nil
}

func checkGitCommand(name string, args []string) error {
	if !slices.Contains(gitCommands, name) {
		return bad("", "runs git %s, which could be an alias or an extension", name)
	}
	has := func(words ...string) bool {
		return slices.ContainsFunc(args, func(a string) bool { return slices.Contains(words, a) })
	}
	short := gitShort[name]
	switch {
	case name == "config" && !readsConfig(args):
		return bad("a person must change git's configuration", "runs git config, which changes what git runs")
	case name == "submodule" && has("foreach"), name == "bisect" && has("run"), name == "rebase" && has("--interactive"),
		slices.ContainsFunc(args, func(a string) bool { return !strings.HasPrefix(a, "--") && short.refusesShort(a) }):
		return bad("", "runs git %s in a way that runs other programs", name)
	}
	return nil
}

// The parts of a sed script that matter: the command e, and the substitution
// whose last delimiter its flags follow.
var (
	sedRuns = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(^|[0-9$/|!,;{}\s])e(\s|$)`)
	})
	sedSubstitutes = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?:^|[0-9$/!,;{}\s])s([^A-Za-z0-9\s\\])`)
	})
)

// checkSed refuses scripts with the command e or the flag e, which run programs,
// and the flag w, which writes files. It looks at letters, not at the grammar of
// sed, and so refuses some that are harmless.
func checkSed(argv []string) error {
	for _, a := range argv[1:] {
		refuse := bad("", "runs sed with %q, which could run a program or write a file", a)
		if sedRuns().MatchString(a) {
			return refuse
		}
		m := sedSubstitutes().FindStringSubmatch(a)
		if m == nil {
			continue
		}
		for part := range strings.FieldsFuncSeq(a, func(r rune) bool { return r == ';' || r == '\n' || r == '}' }) {
			flags := part[strings.LastIndex(part, m[1])+1:]
			flags, _, _ = strings.Cut(strings.TrimSpace(flags), " ")
			if strings.Trim(flags, "gpiImMew0123456789") == "" && strings.ContainsAny(flags, "ew") {
				return refuse
			}
		}
	}
	return nil
}
