package native

import "testing"

// What is traced so that it ends with its box notices nothing of it: it is stopped,
// continued and signalled as ever, threads and programs come and go.
func TestTracedProgramsNoticeNothing(t *testing.T) {
	const script = `$| = 1; $p = fork; if (!$p) { sleep 1 while 1 }
		kill STOP => $p; waitpid($p, 2); print +($? & 0xff) == 0x7f ? "stopped " : "running ";
		kill CONT => $p; waitpid($p, 8); print $? == 0xffff ? "continued " : "not: $? ";
		kill STOP => $p; waitpid($p, 2); kill TERM => $p; kill CONT => $p; waitpid($p, 0); print $? & 127, " ";
		$p = fork; if (!$p) { kill TRAP => $$; exit } waitpid($p, 0); print $? & 127, " ";
		$SIG{CHLD} = sub { $n++ }; for (1 .. 20) { system("/bin/true") && die } print $n >= 1 ? "children " : "none ";
		$SIG{USR1} = sub { print "signal " }; kill USR1 => $$; exec "/bin/sh", "-c", "echo exec; exit 7"`
	for kind, tier := range kinds {
		s := sh("")
		s.Argv = []string{"/usr/bin/perl", "-e", script}
		out := run(t, tier, s, "")
		if want := "stopped continued 15 5 children signal exec\n"; string(out.Stdout) != want || out.Exit.Code != 7 {
			t.Errorf("%s: %v %q %s, want %q", kind, out.Exit, out.Stdout, out.Stderr, want)
		}
	}
}
