package boxtest

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A world is what stands around one box: trees of files, and a process that listens.
//
//	out  is none of the box's business
//	ws   is its workspace, with a repository
//	ro   may be read; the probe is in it
//	rw   may be written, where the workspace may
//	run  has the sockets of services
//	kept is the directory of a home of the box's own
//
// Every file may be written by anybody as far as its mode goes: only the box keeps
// the probe from it.
type world struct {
	root         string
	mark, secret string
	vars         map[string]string
	process      *exec.Cmd
	stdin        io.Closer
	stdout       *bufio.Reader
	before       map[string]snapshot // of each tree
}

// nobody owns the workspace where a program must not be root, not even in its box,
// and where boxes cannot map their user to another.
const nobody = 65534

func token(prefix string, n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never errs
	return prefix + hex.EncodeToString(b)
}

// newWorld makes a world in dir, with the things that c wants in it.
func (s *suite) newWorld(ctx context.Context, r run) (*world, error) {
	w := &world{mark: token("bx", 5), secret: token("canary-", 12), before: map[string]snapshot{}}
	w.root = filepath.Join(s.dir, w.mark)
	err := w.makeTrees(r.World, s.o.Image || slices.Contains(r.World, "owner"))
	if err == nil {
		err = os.Mkdir(w.path("ro/bin"), 0o755) //nolint:gosec // G301: boxes of other users start what is in it
		err = errors.Join(err, os.Link(s.probe, w.path("ro/bin/"+w.mark)))
	}
	if err == nil && slices.Contains(r.World, "setuid") {
		err = os.Link(s.setID, w.path("ws/setuid"))
	}
	if err == nil {
		err = w.start(ctx, s.probe)
	}
	if err == nil {
		err = w.look(w.before)
	}
	if err != nil {
		w.end()
		return nil, err
	}
	w.vars["N"] = strconv.Itoa(r.n)
	return w, nil
}

func (w *world) path(rel string) string { return filepath.Join(w.root, rel) }

// gitFiles are what makes a directory a repository, beside objects and refs.
var gitFiles = map[string]string{
	"HEAD":                            "ref: refs/heads/main\n",
	"config":                          "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n[user]\n\tname = A\n\temail = a@example.org\n",
	"hooks/pre-push":                  "#!/bin/sh\nexit 0\n",
	"info/exclude":                    "",
	"modules/sub/HEAD":                "ref: refs/heads/main\n",
	"modules/sub/config":              "[core]\n\trepositoryformatversion = 0\n",
	"modules/sub/refs/heads/.keep":    "",
	"modules/sub/objects/info/packs":  "",
	"worktrees/other/HEAD":            "ref: refs/heads/other\n",
	"worktrees/other/commondir":       "../..\n",
	"worktrees/other/config.worktree": "",
	"refs/heads/.keep":                "",
	"objects/info/packs":              "",
}

// laterFiles are files that the host runs later, which are there already.
var laterFiles = []string{
	".envrc", ".mcp.json", ".vscode/tasks.json", ".idea/workspace.xml", ".claude/settings.json", ".cursor/rules",
	"CLAUDE.md", "AGENTS.md", ".github/workflows/ci.yml", ".npmrc", ".pre-commit-config.yaml", ".gitattributes", ".gitmodules",
}

func (w *world) makeTrees(extra []string, owned bool) error {
	files := map[string]string{
		"out/file": w.secret + "\n", "out/dir/secret": w.secret + "\n", "out/dir/sub/file": w.secret + "\n",
		"out/home/.ssh/id_ed25519": w.secret + "\n", "out/home/.bashrc": "# " + w.secret + "\n",
		"out/home/.config/systemd/user/x.service": "", "out/home/.local/bin/x": "#!/bin/sh\n",
		"ws/file": "file\n", "ws/dir/file": "file\n", "ws/dir/sub/file": "file\n", "ws/script": "#!/bin/sh\necho ran\n",
		"ws/held": "held\n", "ws/hdir/inner/held": "held\n", "ws/hdir/file": "file\n",
		"ws/tree/.git": "gitdir: " + w.path("out/repo/.git/worktrees/other") + "\n",
		"kept/before":  "kept\n", "ro/file": "file\n", "ro/dir/file": "file\n", "rw/file": "file\n", "rw/dir/file": "file\n",
	}
	for name, text := range gitFiles {
		for _, repo := range []string{"ws/.git", "ws/old/.git", "ws/bare.git", "out/repo/.git"} {
			files[repo+"/"+name] = text
		}
	}
	for _, name := range laterFiles {
		files["ws/old/"+name] = "{}\n"
	}
	if slices.Contains(extra, "denied") {
		files["ro/denied/secret"], files["ws/denied"] = w.secret+"\n", w.secret+"\n"
	}
	for name, text := range files {
		if err := makeAll(w.root, filepath.Dir(name)); err != nil {
			return err
		}
		if err := put(w.path(name), text, 0o666); err != nil {
			return err
		}
	}
	err := errors.Join(
		makeAll(w.root, "run"), open(w.path("ws/script")), open(w.path("out/home/.local/bin/x")),
		os.Symlink(w.path("out/file"), w.path("ws/link-file")), os.Symlink(w.path("out/dir"), w.path("ws/link-dir")),
		os.Symlink("../out/file", w.path("ws/link-up")), os.Symlink("file", w.path("out/link")))
	if owned && os.Getuid() == 0 {
		err = errors.Join(err, chownAll(w.path("ws")), chownAll(w.path("rw")), chownAll(w.path("kept")))
	}
	if slices.Contains(extra, "hardlink") {
		err = errors.Join(err, os.Link(w.path("out/dir/secret"), w.path("ws/hard")))
	}
	if e := unix.Setxattr(w.path("out/file"), "user.canary", []byte(w.secret), 0); e != nil && !errors.Is(e, unix.ENOTSUP) {
		err = errors.Join(err, e)
	}
	old := time.Date(2001, 2, 3, 4, 5, 6, 0, time.UTC)
	return errors.Join(err, os.Chtimes(w.path("out/file"), old, old))
}

func chownAll(root string) error {
	return filepath.WalkDir(root, func(name string, _ fs.DirEntry, err error) error {
		if e := os.Lchown(name, nobody, nobody); e != nil && !errors.Is(e, unix.EINVAL) {
			return errors.Join(err, e) // a namespace in which there is only root has no other owner
		}
		return err
	})
}

// makeAll makes rel and what is above it in root, open to everybody.
func makeAll(root, rel string) error {
	at := root
	for part := range strings.SplitSeq(rel, "/") {
		if err := mkdir(at); err != nil {
			return err
		}
		at = filepath.Join(at, part)
	}
	return mkdir(at)
}

func mkdir(dir string) error {
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	return errors.Join(err, open(dir))
}

// open lets everybody do everything with a file, so that only the box can refuse it.
func open(name string) error {
	return os.Chmod(name, 0o777) //nolint:gosec // G302: that is the point
}

// start starts the process of the world and reads what it says of itself.
func (w *world) start(ctx context.Context, probe string) error {
	cmd := exec.CommandContext(ctx, probe, "world", w.path("run"), w.mark, w.secret)
	cmd.Env = []string{"BOXTEST_SECRET=" + w.secret}
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, 5*time.Second
	if err := cmd.Start(); err != nil {
		return err
	}
	w.process, w.stdin, w.stdout = cmd, in, bufio.NewReader(out)
	w.vars = map[string]string{
		"WS": w.path("ws"), "OUT": w.path("out"), "RO": w.path("ro"), "RW": w.path("rw"), "RUN": w.path("run"),
		"PROBE": w.path("ro/bin/" + w.mark), "MARK": w.mark, "SUP": strconv.Itoa(os.Getpid()),
	}
	for _, ns := range []string{"user", "mnt", "pid", "net", "ipc", "uts", "cgroup"} {
		if w.vars["NS_"+ns], err = os.Readlink("/proc/self/ns/" + ns); err != nil {
			return err
		}
	}
	for {
		line, err := w.stdout.ReadString('\n')
		if err != nil {
			return fmt.Errorf("the process outside: %w", err)
		}
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name == "ready" {
			break
		}
		w.vars[name] = value
	}
	w.vars["FREE"], err = freePort()
	w.vars["HOME"], w.vars["KEPT"], w.vars["TOOLS"] = w.path("out/home"), w.path("kept"), w.vars["FREE"]
	return err
}

// freePort returns a port of TCP that nobody listens on just now.
func freePort() (string, error) {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", err
	}
	defer unix.Close(fd)
	if err := unix.Bind(fd, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		return "", err
	}
	at, err := unix.Getsockname(fd)
	if err != nil {
		return "", err
	}
	four, ok := at.(*unix.SockaddrInet4)
	if !ok {
		return "", errors.New("the free port is none of IPv4")
	}
	return strconv.Itoa(four.Port), nil
}

// ask lets the process say what reached it, and end. It returns what is wrong.
func (w *world) ask() (wrong []string) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", w.process.Process.Pid))
	if err != nil {
		wrong = append(wrong, "the process outside is gone")
	}
	for line := range strings.Lines(string(status)) {
		key, value, _ := strings.Cut(strings.TrimSpace(line), ":\t")
		stopped := key == "State" && (strings.HasPrefix(value, "T") || strings.HasPrefix(value, "t") || strings.HasPrefix(value, "Z"))
		if stopped || key == "TracerPid" && value != "0" {
			wrong = append(wrong, "the process outside: "+strings.TrimSpace(line))
			_ = w.process.Process.Signal(unix.SIGCONT)
		}
	}
	w.stdin.Close()
	for {
		line, err := w.stdout.ReadString('\n')
		if got, ok := strings.CutPrefix(line, "got "); ok {
			wrong = append(wrong, "the process outside got "+strings.TrimSpace(got))
		}
		if line == "end\n" {
			return wrong
		}
		if err != nil {
			return append(wrong, "the process outside died")
		}
	}
}

// end takes the world away. The process tidies up when its input ends; one that does
// not is killed.
func (w *world) end() {
	if w.process != nil {
		w.stdin.Close()
		late := time.AfterFunc(5*time.Second, func() { _ = w.process.Process.Kill() })
		_ = w.process.Wait() // how it ended was looked at before
		late.Stop()
		w.process = nil
	}
	_ = os.RemoveAll(w.root) // again by close of the suite, whose error is told
}

// fill puts the values of variables, and bytes for "%41", into a word.
func (w *world) fill(word string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(word); {
		switch {
		case word[i] == '$':
			end := i + 1
			for end < len(word) && (word[end] == '_' || word[end] >= 'A' && word[end] <= 'Z' || word[end] >= '0' && word[end] <= '9' || word[end] >= 'a' && word[end] <= 'z' && strings.HasPrefix(word[i+1:], "NS_")) {
				end++
			}
			value, ok := w.vars[word[i+1:end]]
			if !ok {
				return "", fmt.Errorf("%q: no variable %q", word, word[i+1:end])
			}
			b.WriteString(value)
			i = end
		case word[i] == '%' && i+2 < len(word):
			c, err := strconv.ParseUint(word[i+1:i+3], 16, 8)
			if err != nil {
				return "", fmt.Errorf("%q: no byte %q", word, word[i:i+3])
			}
			b.WriteByte(byte(c))
			i += 3
		default:
			b.WriteByte(word[i])
			i++
		}
	}
	return b.String(), nil
}
