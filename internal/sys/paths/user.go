package paths

import (
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// UserHome returns the real path of the home directory of the person who runs
// this process: $HOME, which must be an existing directory.
func UserHome() (string, error) {
	dir, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the home directory: %w", err)
	}
	if !filepath.IsAbs(dir) {
		return "", fmt.Errorf("finding the home directory: $HOME is %q, not an absolute path", dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", fmt.Errorf("finding the home directory: %w", err)
	}
	return real, nil
}

// UserName returns the login name of a user id, or the id in decimal where
// there is none.
func UserName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	u, err := user.LookupId(id)
	if err != nil {
		return id
	}
	return u.Username
}

// UserID returns the user id that a login name, or a decimal number, means; ok is false
// if there is no such user.
func UserID(name string) (uid uint32, ok bool) {
	if n, err := strconv.ParseUint(name, 10, 32); err == nil {
		return uint32(n), true
	}
	u, err := user.Lookup(name)
	if err != nil {
		return 0, false
	}
	n, err := strconv.ParseUint(u.Uid, 10, 32)
	return uint32(n), err == nil
}

// EngineEnvironment is the whole environment of an engine of home: what finds
// files and nothing else, so that no secret of the first client reaches it.
func EngineEnvironment(home string) []string {
	env := []string{"RINGFENCE_HOME=" + home}
	for _, name := range []string{"HOME", "PATH", "XDG_RUNTIME_DIR", "LANG", "TZ"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// SearchPath returns the absolute directories of $PATH, in order.
func SearchPath() []string {
	var dirs []string
	for _, d := range filepath.SplitList(os.Getenv("PATH")) {
		if filepath.IsAbs(d) {
			dirs = append(dirs, filepath.Clean(d))
		}
	}
	return dirs
}

// systemPath are where systems keep programs: what an agent can write is none of them, unless
// a person gives it that.
var systemPath = []string{
	"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin", "/usr/local/go/bin", "/snap/bin",
	"/opt/homebrew/bin", "/opt/homebrew/sbin", "/run/current-system/sw/bin",
}

// SystemPath returns those directories of [SearchPath] that are the system's. What is
// started outside of a box without being asked for comes from there: another directory of
// $PATH may be one of a project (".venv/bin"), in which an agent puts what it likes.
func SystemPath() []string {
	return slices.DeleteFunc(SearchPath(), func(d string) bool { return !slices.Contains(systemPath, d) })
}

// ServerEnvironment is what a server of tools inherits of our environment: where
// programs and the person's home are, and how text is written. No variable that
// usually holds a secret is among them.
func ServerEnvironment() []string {
	var env []string
	for _, name := range []string{"HOME", "PATH", "LANG", "LC_ALL", "TZ", "TMPDIR", "USER", "LOGNAME"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// BoxEnvironment is what a program in a box inherits of our environment: what a
// server does but for the directory of temporary files, which is the box's own, and
// how its terminal is written to.
func BoxEnvironment() []string {
	var env []string
	for _, kv := range os.Environ() {
		name, _, _ := strings.Cut(kv, "=")
		switch {
		case slices.Contains([]string{"HOME", "PATH", "LANG", "LANGUAGE", "TZ", "USER", "LOGNAME", "TERM", "COLORTERM", "NO_COLOR", "CLICOLOR"}, name),
			strings.HasPrefix(name, "LC_"):
			env = append(env, kv)
		}
	}
	return env
}

// Variable returns a variable of the environment, for files in which a person
// refers to one by name.
func Variable(name string) (string, bool) { return os.LookupEnv(name) }

// OwnState returns the real paths of home, of where the state of this program is when
// nobody names a home, and of where the sockets of engines are that are in no home: another
// home of the same person is no less out of reach of agents, and who can replace a socket
// is the engine to the next who asks. What does not exist is returned as it is, but for
// directories of sockets, which are made here where home needs one.
func OwnState(home string) []string {
	own := []string{home}
	if user, err := UserHome(); err == nil {
		own = append(own, filepath.Join(user, DefaultName))
	}
	for i, p := range own {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			own[i] = real
		}
	}
	return slices.Compact(append(own, socketDirs(home)...))
}

// socketDirs returns the real paths of the directories of sockets that are ours. One that
// somebody else has put there is none: it could lead anywhere.
func socketDirs(home string) (dirs []string) {
	bases := socketBases()
	if fi, err := os.Stat(home); err == nil && fi.IsDir() {
		if socket, err := EngineSocket(home); err == nil && filepath.Dir(socket) != home {
			bases = append(bases, filepath.Dir(filepath.Dir(socket)), filepath.Dir(socket))
		}
	}
	for _, dir := range bases {
		fi, err := os.Lstat(dir)
		if err != nil || !fi.IsDir() {
			continue
		}
		if uid, known := owner(fi); known && uid != os.Geteuid() {
			continue
		}
		if real, err := filepath.EvalSymlinks(dir); err == nil && !slices.Contains(dirs, real) {
			dirs = append(dirs, real)
		}
	}
	return dirs
}
