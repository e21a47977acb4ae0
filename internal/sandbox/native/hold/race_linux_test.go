package hold

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A race is what one thread does over and over while another changes what it means.
type race struct {
	attempt func() unix.Errno
	change  func(i int)
}

// races work in a workspace that has .git/config, .git/hooks, and plain directories
// a and b. Whoever wins, nothing held may change.
var races = map[string]func() race{
	"memory":   func() race { return flipPath(unix.O_WRONLY|unix.O_CREAT, "a/file", ".envrc") },
	"memory2":  func() race { return flipPath(unix.O_WRONLY|unix.O_TRUNC, "a/file", ".git/config") },
	"memory3":  func() race { return flipPath(unix.O_WRONLY|unix.O_TRUNC, "/dev/null", ".git/config") },
	"memory4":  func() race { return flipPath(unix.O_RDONLY|unix.O_TRUNC, "/dev/null", ".git/config") },
	"unlink":   func() race { return flipCall(unix.SYS_UNLINKAT, 0, "a/none", ".git/config") },
	"truncate": func() race { return flipTruncate() },
	"link": func() race {
		return race{openFile("p/pre-commit", unix.O_WRONLY|unix.O_CREAT), func(i int) {
			_ = unix.Unlink("p")
			_ = unix.Symlink([]string{"a", ".git/hooks"}[i%2], "p")
		}}
	},
	"directory": func() race {
		_ = os.MkdirAll("c/d", 0o755)
		return race{openFile("c/d/tasks.json", unix.O_WRONLY|unix.O_CREAT), func(i int) {
			_ = unix.Rename("c/d", "c/.vscode")
			_ = unix.Rename("c/.vscode", "c/d")
			_ = unix.Renameat2(unix.AT_FDCWD, "c", unix.AT_FDCWD, "b", unix.RENAME_EXCHANGE)
			_ = os.MkdirAll("c/d", 0o755)
		}}
	},
	"descriptor": func() race {
		plain, _ := unix.Open("a", unix.O_RDONLY, 0)
		hooks, _ := unix.Open(".git/hooks", unix.O_RDONLY, 0)
		const at = 100
		return race{func() unix.Errno {
			return openRaw(at, "pre-commit", unix.O_WRONLY|unix.O_CREAT)
		}, func(i int) { _ = unix.Dup3([]int{plain, hooks}[i%2], at, 0) }}
	},
	"working directory": func() race {
		plain, _ := unix.Open("a", unix.O_RDONLY, 0)
		hooks, _ := unix.Open(".git/hooks", unix.O_RDONLY, 0)
		return race{openFile("pre-commit", unix.O_WRONLY|unix.O_CREAT), func(i int) {
			_ = unix.Fchdir([]int{plain, hooks}[i%2])
		}}
	},
	"package": func() race {
		return race{func() unix.Errno {
			const name = "node_modules/p/.vscode/tasks.json"
			e := openRaw(unix.AT_FDCWD, name, unix.O_WRONLY|unix.O_CREAT)
			_ = unix.Unlink(name)
			return e
		}, func(int) {
			_ = os.MkdirAll("node_modules/p/.vscode", 0o755)
			_ = unix.Rename("node_modules/p", "q")
			_ = unix.Rename("q", "node_modules/p")
		}}
	},
	"rename": func() race {
		return race{func() unix.Errno {
			_ = openFile("a/tasks.json", unix.O_WRONLY|unix.O_CREAT)()
			return errnoOf(unix.Rename("a/tasks.json", ".vscode/tasks.json"))
		}, func(i int) {
			_ = unix.Rmdir(".vscode")
			_ = unix.Symlink("a", ".vscode")
			_ = unix.Mkdir(".vscode", 0o755)
		}}
	},
}

func openRaw(dir int, name string, flags int) unix.Errno {
	fd, err := unix.Openat(dir, name, flags|unix.O_CLOEXEC, 0o644)
	if err == nil {
		_, _ = unix.Write(fd, []byte("evil"))
		unix.Close(fd)
	}
	return errnoOf(err)
}

func openFile(name string, flags int) func() unix.Errno {
	return func() unix.Errno { return openRaw(unix.AT_FDCWD, name, flags) }
}

// flipped returns the address of a string that change turns into one or the other.
func flipped(names []string) (at uintptr, change func(i int)) {
	b, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		panic(err)
	}
	copy(b, names[0])
	return uintptr(unsafe.Pointer(&b[0])), func(i int) { copy(b, names[i%2]+"\x00") }
}

func flipPath(flags uintptr, names ...string) race {
	at, change := flipped(names)
	return race{func() unix.Errno {
		fd, _, e := unix.Syscall6(unix.SYS_OPENAT, uintptr(cwd), at, flags|unix.O_CLOEXEC, 0o644, 0, 0)
		if e == 0 {
			_, _ = unix.Write(int(fd), []byte("evil"))
			unix.Close(int(fd))
		}
		return e
	}, change}
}

// cwd is AT_FDCWD as a variable, so that it converts.
var cwd = unix.AT_FDCWD

func flipCall(nr, last uintptr, names ...string) race {
	at, change := flipped(names)
	return race{func() unix.Errno {
		_, _, e := unix.Syscall6(nr, uintptr(cwd), at, last, 0, 0, 0)
		return e
	}, change}
}

func flipTruncate() race {
	at, change := flipped([]string{"a/file", ".git/config"})
	return race{func() unix.Errno {
		_, _, e := unix.Syscall6(unix.SYS_TRUNCATE, at, 0, 0, 0, 0, 0)
		return e
	}, change}
}

// flip runs the race args[0], with args[1] attempts.
func flip(args []string) error {
	n, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	r := races[args[0]]()
	var over atomic.Bool
	var changing sync.WaitGroup
	changing.Go(func() {
		runtime.LockOSThread()
		for i := 0; !over.Load(); i++ {
			r.change(i)
		}
	})
	runtime.LockOSThread()
	count := map[unix.Errno]int{}
	for range n {
		count[r.attempt()]++
	}
	over.Store(true)
	changing.Wait()
	fmt.Println(count)
	return nil
}

// TestRaces (FS-03, FS-05): 100,000 and more attempts while memory, links,
// directories and descriptors change beneath them.
func TestRaces(t *testing.T) {
	const attempts = 12_000
	for name := range races {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			b.outside("repo .; mkdir a b; echo ok > a/file; cp -r .git ../saved")
			out, err := b.run("", "/proc/self/exe", "flip", name, strconv.Itoa(attempts))
			if err != nil {
				t.Fatal(err, out)
			}
			b.outside("diff -r .git ../saved; test ! -e .envrc; test ! -e .vscode/tasks.json || test -L .vscode; test ! -e c/.vscode/tasks.json; test ! -L .vscode; test ! -e q/.vscode/tasks.json")
		})
	}
}
