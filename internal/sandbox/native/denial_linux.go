package native

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ringfence/internal/sandbox"
	"ringfence/internal/sandbox/native/cgroup"
	"ringfence/internal/sandbox/native/hold"
)

// note keeps a refusal of the supervisor, or how often there was one that is known.
func (b *box) note(d denied) {
	if b.temp != "" && d.op == sandbox.OpNotHeld && beneath(d.path, b.temp) {
		return // it goes with the box
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, known := range b.denials {
		if known.Op == d.op && known.Object == d.path && known.Rule == d.rule {
			b.denials[i].Count = d.count
			return
		}
	}
	fix := ""
	if strings.HasPrefix(d.rule, hold.RuleLater) && d.op != sandbox.OpNotHeld {
		fix = "--review, which keeps it until you apply it"
	}
	b.keep(sandbox.Denial{Op: d.op, Object: d.path, Rule: d.rule, Fix: fix, Observed: true, Count: d.count})
}

// keep adds a denial, or counts it with the last one when there are too many. The
// caller holds mu.
func (b *box) keep(d sandbox.Denial) {
	if len(b.denials) < sandbox.MaxDenials {
		b.denials = append(b.denials, d)
		return
	}
	b.denials[len(b.denials)-1].Count += d.Count
}

// explain adds what the limits of the box have refused: as the control group counted
// it, or as the end of the program suggests.
func (b *box) explain(u cgroup.Usage) {
	l := b.bounds
	if u.OOMKills > 0 {
		b.keep(sandbox.Denial{
			Op: "memory", Object: "the box", Rule: fmt.Sprintf("a box has %d bytes of memory; a process was killed for more", l.Memory),
			Fix: "--memory", Observed: true, Count: int(u.OOMKills),
		})
	}
	if u.PIDsDenied > 0 {
		b.keep(sandbox.Denial{
			Op: "fork", Object: "the box", Rule: fmt.Sprintf("a box has %d processes and threads at once", l.Processes),
			Fix: "--processes", Observed: true, Count: int(u.PIDsDenied),
		})
	}
	if b.ended == nil {
		return
	}
	status := unix.WaitStatus(b.ended.status)
	sig := int(status.Signal())
	if !status.Signaled() {
		sig = status.ExitStatus() - 128 // as shells say it of what they ran
	}
	// The limit counts in ticks of the clock, and what is used is measured: they differ.
	used := time.Duration(b.ended.micros) * time.Microsecond
	switch {
	case l.CPU != sandbox.Unlimited && (sig == int(unix.SIGXCPU) || sig == int(unix.SIGKILL) && used >= l.CPU*3/4 && u.OOMKills <= 0):
		b.keep(sandbox.Denial{Op: "cpu", Object: "the program", Rule: fmt.Sprintf("a process has %v of processor time", l.CPU), Fix: "--profile agent", Count: 1})
	case l.AddressSpace != sandbox.Unlimited && slices.Contains([]int{int(unix.SIGABRT), int(unix.SIGTRAP), int(unix.SIGSEGV), int(unix.SIGILL)}, sig):
		b.keep(sandbox.Denial{
			Op: "mmap", Object: "the program", Count: 1, Fix: "--profile agent",
			Rule: fmt.Sprintf("a process has %d bytes of address space; Node, Java and Go do not start in 512 MiB of it", l.AddressSpace),
		})
	}
}
