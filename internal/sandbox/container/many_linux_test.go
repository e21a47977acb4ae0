package container

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

// Boxes leave nothing behind, one after the other and at once. RINGFENCE_BOX_STARTS is
// how many: a tenth of it after the other, as many at once up to 16.
func TestManyStarts(t *testing.T) {
	inRow := 3
	if text := os.Getenv("RINGFENCE_BOX_STARTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			t.Fatalf("RINGFENCE_BOX_STARTS is %q", text)
		}
		inRow = n/10 + 1
	}
	eachMode(t, func(t *testing.T, tier *Tier) {
		one := func(n int) {
			out, err := sandbox.Run(t.Context(), tier, sh(fmt.Sprintf("echo %d; exit 9", n)), nil)
			if err != nil || out.Exit.Code != 9 || string(out.Stdout) != fmt.Sprintln(n) {
				t.Errorf("box %d: %v, %v: %q %s", n, out.Exit, err, out.Stdout, out.Stderr)
			}
		}
		one(0) // what is opened once
		descriptors, goroutines := opened(t), runtime.NumGoroutine()
		for n := range inRow {
			one(n)
		}
		var all sync.WaitGroup
		for n := range min(inRow, 16) {
			all.Go(func() { one(n) })
		}
		all.Wait()
		// Connections to the engine are kept for a while.
		for deadline := time.Now().Add(10 * time.Second); opened(t) > descriptors+4 || runtime.NumGoroutine() > goroutines+8; runtime.Gosched() {
			if time.Now().After(deadline) {
				b := make([]byte, 64<<10)
				t.Fatalf("there were %d descriptors and %d goroutines, there are %d and %d:\n%s",
					descriptors, goroutines, opened(t), runtime.NumGoroutine(), b[:runtime.Stack(b, true)])
			}
		}
	})
}

// opened counts the descriptors that we have open.
func opened(t *testing.T) int {
	t.Helper()
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(fds)
}
