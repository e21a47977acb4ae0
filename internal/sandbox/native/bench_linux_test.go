package native

import (
	"os/exec"
	"slices"
	"testing"
	"time"

	"ringfence/internal/sandbox"
)

// BenchmarkTrue runs /bin/true in a box, and bare, in turns: the difference is what a
// box costs. "start" is until the program has been executed.
func BenchmarkTrue(b *testing.B) {
	s := sandbox.Spec{Argv: []string{"/bin/true"}, Workspace: sandbox.Workspace{Path: b.TempDir(), Mode: sandbox.ReadWrite}, LaterWritable: true}
	tier := full()
	tier.Own = []string{b.TempDir(), "/root/.ringfence"}
	var bare, start, whole []time.Duration
	for b.Loop() {
		t := time.Now()
		if err := exec.Command("/bin/true").Run(); err != nil {
			b.Fatal(err)
		}
		bare = append(bare, time.Since(t))
		t = time.Now()
		box, err := tier.Start(b.Context(), s)
		if err != nil {
			b.Fatal(err)
		}
		start = append(start, time.Since(t))
		if _, err := box.Wait(); err != nil {
			b.Fatal(err)
		}
		whole = append(whole, time.Since(t))
		box.Stdin().Close()
	}
	for name, all := range map[string][]time.Duration{"bare": bare, "start": start, "whole": whole} {
		slices.Sort(all)
		b.ReportMetric(float64(all[len(all)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(all[len(all)/10].Microseconds())/1000, name+"-p10-ms")
	}
}
