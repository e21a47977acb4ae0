// Package startup checks what the binary does before it does anything: the
// initialisation of the packages that it links.
package startup

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

const (
	budget = 3 * time.Millisecond // of all third-party packages together
	runs   = 15
	shown  = 8
)

// TestThirdPartyInit starts "ringfence --version" several times and adds up the
// shortest initialisation of each third-party package.
func TestThirdPartyInit(t *testing.T) {
	bin := filepath.Join(t.TempDir(), "ringfence.exe")
	build := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-buildvcs=false", "-o", bin, "ringfence/cmd/ringfence")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building: %v\n%s", err, out)
	}
	best := map[string]time.Duration{}
	start := time.Hour
	for range runs {
		cmd := exec.CommandContext(t.Context(), bin, "--version")
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
		var trace bytes.Buffer
		cmd.Stderr = &trace
		began := time.Now()
		if err := cmd.Run(); err != nil {
			t.Fatalf("running: %v\n%s", err, trace.Bytes())
		}
		start = min(start, time.Since(began))
		for pkg, took := range readTrace(t, trace.String()) {
			if old, ok := best[pkg]; !ok || took < old {
				best[pkg] = took
			}
		}
	}
	if len(best) == 0 {
		t.Fatal("the trace names no package")
	}
	var third, ours time.Duration
	var worst []string
	for pkg, took := range best {
		switch first, _, _ := strings.Cut(pkg, "/"); {
		case first == "ringfence":
			ours += took
		case strings.Contains(first, "."):
			third += took
			worst = append(worst, pkg)
		}
	}
	slices.SortFunc(worst, func(a, b string) int { return int(best[b] - best[a]) })
	report := fmt.Sprintf("third-party packages initialise in %v (budget %v), ours in %v, the whole start takes %v", third, budget, ours, start)
	for _, pkg := range worst[:min(shown, len(worst))] {
		report += fmt.Sprintf("\n  %8v  %s", best[pkg], pkg)
	}
	if third > budget {
		t.Error(report)
	} else {
		t.Log(report)
	}
}

var initLine = regexp.MustCompile(`(?m)^init (\S+) @\S+ ms, (\S+) ms clock`)

// readTrace returns how long each package took, by the wall clock.
func readTrace(t *testing.T, trace string) map[string]time.Duration {
	t.Helper()
	took := map[string]time.Duration{}
	for _, m := range initLine.FindAllStringSubmatch(trace, -1) {
		ms, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			t.Fatalf("reading the trace: %v", err)
		}
		took[m[1]] += time.Duration(ms * float64(time.Millisecond))
	}
	return took
}
