package native

import (
	"os"
	"testing"

	"ringfence/internal/sandbox"
)

func TestMain(m *testing.M) {
	Child()
	os.Exit(m.Run())
}

func sh(script string) sandbox.Spec {
	return sandbox.Spec{
		Argv: []string{"/bin/sh", "-c", script}, Env: []string{"PATH=/usr/bin:/bin"},
	}
}

func run(t *testing.T, s sandbox.Spec, stdin string) sandbox.Output {
	t.Helper()
	out, err := sandbox.Run(t.Context(), Tier{}, s, []byte(stdin))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestFirst(t *testing.T) {
	out := run(t, sh("id; ls -la /; cat /proc/self/mountinfo; ls /proc; echo $$; mount"), "")
	t.Logf("%s\n%s\n%v\n%v", out.Stdout, out.Stderr, out.Exit, out.Report)
	for k, v := range out.Report.Evidence {
		t.Log(k, ": ", v)
	}
}

func TestPlain(t *testing.T) {
	s := sh("id; ls / /usr | head -3; cat /etc/passwd | head -1; cat /etc/shadow; touch /tmp/x; echo $$; kill -0 1; ls /proc; (sleep 100 & setsid sleep 101 & ) ")
	out, err := sandbox.Run(t.Context(), Tier{fault: fault{plain: true}}, s, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%s\n%s\n%v\n%v", out.Stdout, out.Stderr, out.Exit, out.Report)
	for k, v := range out.Report.Evidence {
		t.Log(k, ": ", v)
	}
}
