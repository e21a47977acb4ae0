package daemon

import (
	"path"
	"slices"
	"strings"
)

// Programs that run a package which they are told by name: where the name may stand
// besides the first word, and flags that take a word of their own.
var (
	runners      = []string{"npx", "pnpx", "bunx", "uvx"}
	containers   = []string{"docker", "podman", "nerdctl"}
	interpreters = []string{"node", "bun", "deno", "tsx"}
	managers     = map[string][]string{"npm": {"exec", "x"}, "pnpm": {"dlx", "exec"}, "yarn": {"dlx", "exec"}, "bun": {"x"}, "uv": {"tool", "run"}, "pipx": {"run"}}
	naming       = []string{"-p", "--package", "--from", "--spec"}
	valued       = []string{"-c", "--call", "-w", "--workspace", "--registry", "--python", "--with", "--index-url", "--prefix", "--cache", "--userconfig", "--directory"}
)

// runsPackage reports whether what argv runs is the npm package, program or image pkg:
// named to a program that runs packages ("npx -y pkg", with or without a version), as
// the file of one ("node …/node_modules/pkg/dist/index.js"), or itself. A word of that
// name which another program is given says nothing about what that one is.
func runsPackage(argv []string, pkg string) bool {
	argv = beyondShell(argv)
	if len(argv) == 0 {
		return false
	}
	name, rest := programName(argv[0]), argv[1:]
	switch {
	case name == pkg || within(argv[0], pkg):
		return true
	case slices.Contains(runners, name):
		return namesPackage(rest, pkg)
	case len(rest) > 0 && slices.Contains(managers[name], rest[0]):
		if rest = rest[1:]; name == "uv" && len(rest) > 0 && rest[0] == "run" { // uv tool run
			rest = rest[1:]
		}
		return namesPackage(rest, pkg)
	case slices.Contains(containers, name):
		return slices.ContainsFunc(rest, func(w string) bool { return isPackage(w, pkg, ":@") })
	case slices.Contains(interpreters, name):
		i := slices.IndexFunc(rest, func(w string) bool { return !strings.HasPrefix(w, "-") && w != "run" })
		return i >= 0 && (within(rest[i], pkg) || isPackage(rest[i], "npm:"+pkg, "@"))
	}
	return false
}

// beyondShell is argv without what only hands on to the rest: "cmd /c", "env A=B".
func beyondShell(argv []string) []string {
	for len(argv) > 1 {
		switch name := programName(argv[0]); {
		case name == "cmd" && strings.EqualFold(argv[1], "/c"):
			argv = argv[2:]
		case name == "env" && strings.Contains(argv[1], "=") && !strings.HasPrefix(argv[1], "-"):
			argv = slices.Concat(argv[:1], argv[2:])
		case name == "env" && !strings.HasPrefix(argv[1], "-"):
			argv = argv[1:]
		default:
			return argv
		}
	}
	return argv
}

// namesPackage reports whether the words that a runner is given name pkg: with a flag
// for that, or as the first that is no flag.
func namesPackage(words []string, pkg string) bool {
	for i := 0; i < len(words); i++ {
		w := words[i]
		flag, value, joined := strings.Cut(w, "=")
		switch {
		case slices.Contains(naming, flag) && joined:
			if isPackage(value, pkg, "@") {
				return true
			}
		case slices.Contains(naming, w):
			if i++; i < len(words) && isPackage(words[i], pkg, "@") {
				return true
			}
		case slices.Contains(valued, w):
			i++
		case !strings.HasPrefix(w, "-"):
			return isPackage(w, pkg, "@")
		}
	}
	return false
}

// isPackage reports whether word is pkg, perhaps with a version after one of marks.
func isPackage(word, pkg, marks string) bool {
	rest, found := strings.CutPrefix(word, pkg)
	return found && (rest == "" || len(rest) > 1 && strings.ContainsRune(marks, rune(rest[0])))
}

// within reports whether file lies in the folder of the npm package pkg.
func within(file, pkg string) bool {
	return strings.Contains(strings.ReplaceAll(file, `\`, "/"), "/node_modules/"+pkg+"/")
}

// programName is the name of a program without its directory and ".exe" and the like.
func programName(file string) string {
	name := path.Base(strings.ReplaceAll(file, `\`, "/"))
	for _, ext := range []string{".exe", ".cmd", ".bat"} {
		name = strings.TrimSuffix(name, ext)
	}
	return name
}
