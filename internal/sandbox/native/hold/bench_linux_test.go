package hold

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// measure prints what a call of each kind takes, in microseconds: the median of
// batches.
func measure([]string) error {
	runtime.LockOSThread()
	const n, batch = 4000, 50
	var names []string
	for i := range n {
		names = append(names, "x/f"+strconv.Itoa(i))
	}
	if err := os.Mkdir("x", 0o755); err != nil {
		return err
	}
	opened := func(flags int) func(string) error {
		return func(name string) error {
			fd, err := unix.Open(name, flags|unix.O_CLOEXEC, 0o644)
			if err == nil {
				err = unix.Close(fd)
			}
			return err
		}
	}
	for _, c := range []struct {
		what string
		call func(name string) error
	}{
		{"create", opened(unix.O_WRONLY | unix.O_CREAT | unix.O_EXCL)},
		{"open-read", opened(unix.O_RDONLY)},
		{"open-write", opened(unix.O_WRONLY)},
		{"null-write", func(string) error { return opened(unix.O_WRONLY)("/dev/null") }},
		{"stat", func(name string) error { return unix.Stat(name, new(unix.Stat_t)) }},
		{"chmod", func(name string) error { return unix.Chmod(name, 0o600) }},
		{"rename", func(name string) error { return unix.Rename(name, name+"x") }},
		{"unlink", func(name string) error { return unix.Unlink(name + "x") }},
		{"mkdir", func(name string) error { return unix.Mkdir(name, 0o755) }},
		{"rmdir", unix.Rmdir},
	} {
		var took []float64
		for i := 0; i < n; i += batch {
			at := time.Now()
			for _, name := range names[i : i+batch] {
				if err := c.call(name); err != nil {
					return fmt.Errorf("%s %s: %w", c.what, name, err)
				}
			}
			took = append(took, float64(time.Since(at).Nanoseconds())/1000/batch)
		}
		slices.Sort(took)
		fmt.Printf("%s %.2f\n", c.what, took[len(took)/2])
	}
	return nil
}

// small makes 5,000 files of 1 KiB in 250 directories, as npm ci does.
func small([]string) error {
	content := make([]byte, 1024)
	for i := range 250 {
		dir := "d" + strconv.Itoa(i)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		for j := range 20 {
			if err := os.WriteFile(filepath.Join(dir, strconv.Itoa(j)), content, 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// ways are how a program gets at the workspace.
var ways = []struct {
	name string
	run  func(b *box, mode string) (string, error)
}{
	{"plain", func(b *box, mode string) (string, error) { return output(b.ws, "/proc/self/exe", mode) }},
	{"held", func(b *box, mode string) (string, error) { return b.run("", "/proc/self/exe", mode) }},
	{"overlay", func(b *box, mode string) (string, error) {
		self, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(b.dir+"/self", self, 0o755); err != nil {
			return "", err
		}
		script := `mkdir u w m; mount -t overlay overlay -o userxattr,lowerdir=../ws,upperdir=u,workdir=w m && cd m && exec ../self ` + mode
		return output(b.dir, "unshare", "-Urm", "sh", "-c", script)
	}},
}

func output(dir string, argv ...string) (string, error) {
	c := exec.Command(argv[0], argv[1:]...)
	c.Dir = dir
	out, err := c.CombinedOutput()
	return string(out), err
}

// BenchmarkCalls reports what a call costs, each way.
func BenchmarkCalls(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			all := map[string][]float64{}
			for b.Loop() {
				out, err := w.run(newBox(b), "measure")
				if err != nil {
					b.Fatal(err, out)
				}
				for line := range strings.Lines(out) {
					what, text, _ := strings.Cut(strings.TrimSpace(line), " ")
					us, err := strconv.ParseFloat(text, 64)
					if err != nil {
						b.Fatal(out)
					}
					all[what] = append(all[what], us)
				}
			}
			for what, took := range all {
				slices.Sort(took)
				b.ReportMetric(took[len(took)/2], what+"-us")
			}
		})
	}
}

// BenchmarkSmallFiles makes 5,000 small files, each way; for the overlay also what
// it takes to bring them to the workspace.
func BenchmarkSmallFiles(b *testing.B) {
	for _, w := range ways {
		b.Run(w.name, func(b *testing.B) {
			var unapplied time.Duration
			for b.Loop() {
				b.StopTimer()
				box := newBox(b)
				b.StartTimer()
				at := time.Now()
				if out, err := w.run(box, "small"); err != nil {
					b.Fatal(err, out)
				}
				unapplied += time.Since(at)
				if w.name == "overlay" {
					if out, err := output(box.dir, "cp", "-a", "u/.", box.ws); err != nil {
						b.Fatal(err, out)
					}
				}
			}
			b.ReportMetric(float64(unapplied.Milliseconds())/float64(b.N), "unapplied-ms")
		})
	}
}
