package hold

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// flood asks args[0] times in each of four threads for what is held, while a fifth
// does what is allowed.
func flood(args []string) error {
	n, err := strconv.Atoi(args[0])
	if err != nil {
		return err
	}
	var wrong atomic.Int32
	var threads sync.WaitGroup
	for range 4 {
		threads.Go(func() {
			runtime.LockOSThread()
			for range n {
				if _, err := unix.Open(".envrc", unix.O_WRONLY|unix.O_CREAT, 0o644); !errors.Is(err, unix.EPERM) {
					wrong.Add(1)
				}
			}
		})
	}
	for i := range n / 10 {
		if err := os.WriteFile("free", []byte(strconv.Itoa(i)), 0o644); err != nil {
			return err
		}
	}
	threads.Wait()
	fmt.Println("wrong:", wrong.Load())
	return nil
}

// TestFlood (PR-20): who does nothing but what is refused is refused each time, told
// about a few times, and does not keep others from working.
func TestFlood(t *testing.T) {
	const each = 3000
	b := newBox(t)
	out, err := b.run("", "/proc/self/exe", "flood", strconv.Itoa(each))
	if err != nil || out != "wrong: 0\n" {
		t.Errorf("%v: %s", err, out)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	last := b.denials[len(b.denials)-1]
	if len(b.denials) > 15 || last.Count < each {
		t.Errorf("told %d times, in the end of %+v", len(b.denials), last)
	}
}

// TestBlocked: calls that block in the kernel block nobody else, end when what they
// wait for comes, and can be interrupted.
func TestBlocked(t *testing.T) {
	for name, script := range map[string]string{
		"a pipe": `mkfifo p
for i in 1 2 3 4 5 6 7 8; do (echo line > p) & done
echo x > f; mkdir d; rmdir d; cat f
n=0; while [ $n -lt 8 ]; do n=$((n + $(cat p | wc -l))); done; wait; [ $(cat f) = x ] && echo x; echo $n`,
		"a signal with a handler": `mkfifo p
sh -c 'trap "exit 7" TERM; echo > ready; echo x > p' & p=$!
while [ ! -e ready ]; do :; done
while kill -TERM $p 2>/dev/null; do :; done; wait $p; [ $? = 7 ] && echo x; echo 8`,
		"a signal without": `mkfifo p
sh -c 'echo > ready; echo x > p' & p=$!
while [ ! -e ready ]; do :; done
while kill -TERM $p 2>/dev/null; do :; done; wait $p; [ $? = 143 ] && echo x; echo 8`,
		"killed callers": `for i in 1 2 3 4 5 6 7 8 9 10 11 12; do
(echo > s$i; while :; do echo x > f$i; rm f$i; mkdir d$i; rmdir d$i; done 2>/dev/null) & a=$!
(while :; do mv f$i g$i; mv g$i f$i; done 2>/dev/null) & while [ ! -e s$i ]; do :; done; kill -9 $! $a; done
wait; echo x > f; cat f; echo 8`,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBox(t)
			out, err := b.run(script, "sh")
			if !strings.HasSuffix(out, "x\n8\n") || err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
}

// TestSignalled: signals to the supervisor change no answer.
func TestSignalled(t *testing.T) {
	var over atomic.Bool
	var sending sync.WaitGroup
	sending.Go(func() {
		for !over.Load() {
			_ = unix.Kill(os.Getpid(), unix.SIGURG) // the runtime of Go sends it too, and ignores it
		}
	})
	b := newBox(t)
	out, err := b.run("", "/proc/self/exe", "small")
	over.Store(true)
	sending.Wait()
	if err != nil {
		t.Error(err, out)
	}
	b.outside("test $(find . -type f -size 2 | wc -l) = 5000")
}

// TestEnd: when the context has ended, nothing more is done for anybody.
func TestEnd(t *testing.T) {
	b := newBox(t)
	cause := errors.New("over")
	ctx, cancel := context.WithCancelCause(t.Context())
	b.ctx, b.served = ctx, cause
	reader := io.MultiReader(readerFunc(func([]byte) (int, error) {
		cancel(cause)
		return 0, io.EOF
	}), strings.NewReader("go\n"))
	script := `read x; echo late > late || echo refused`
	out, _ := b.start(confinement{Dir: b.ws, Free: []string{b.dir}}, reader, "sh", "-c", script)
	if _, err := os.Lstat(b.ws + "/late"); err == nil || !strings.Contains(out, "refused") {
		t.Errorf("%v: %s", err, out)
	}
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// TestServeFails: what cannot be served is an error at once.
func TestServeFails(t *testing.T) {
	file, err := os.Open("/dev/null")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := syscall.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	if err := Serve(t.Context(), fd, Options{}); err == nil {
		t.Error("a file is no listener")
	}
	if err := Serve(t.Context(), -1, Options{Rules: Rules{Writable: []string{"relative"}}}); err == nil {
		t.Error("rules that cannot be")
	}
}
