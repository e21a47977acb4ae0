package jobobject

import (
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf16"
	"unsafe"

	"pgregory.net/rapid"
)

// TestStructures compares with the layout that winnt.h has on 64-bit Windows. With
// golang.org/x/sys it is compared by the compiler, when it builds for Windows.
func TestStructures(t *testing.T) {
	var b basicLimits
	var e extendedLimits
	var a accounting
	for _, c := range []struct {
		what      string
		got, want uintptr
	}{
		{"size of JOBOBJECT_BASIC_LIMIT_INFORMATION", unsafe.Sizeof(b), 64},
		{"PerJobUserTimeLimit", unsafe.Offsetof(b.perJobUserTimeLimit), 8},
		{"LimitFlags", unsafe.Offsetof(b.limitFlags), 16},
		{"MinimumWorkingSetSize", unsafe.Offsetof(b.minimumWorkingSetSize), 24},
		{"MaximumWorkingSetSize", unsafe.Offsetof(b.maximumWorkingSetSize), 32},
		{"ActiveProcessLimit", unsafe.Offsetof(b.activeProcessLimit), 40},
		{"Affinity", unsafe.Offsetof(b.affinity), 48},
		{"PriorityClass", unsafe.Offsetof(b.priorityClass), 56},
		{"SchedulingClass", unsafe.Offsetof(b.schedulingClass), 60},
		{"size of IO_COUNTERS", unsafe.Sizeof(e.io), 48},
		{"size of JOBOBJECT_EXTENDED_LIMIT_INFORMATION", unsafe.Sizeof(e), 144},
		{"ProcessMemoryLimit", unsafe.Offsetof(e.processMemoryLimit), 112},
		{"JobMemoryLimit", unsafe.Offsetof(e.jobMemoryLimit), 120},
		{"PeakProcessMemoryUsed", unsafe.Offsetof(e.peakProcessMemoryUsed), 128},
		{"PeakJobMemoryUsed", unsafe.Offsetof(e.peakJobMemoryUsed), 136},
		{"size of JOBOBJECT_BASIC_ACCOUNTING_INFORMATION", unsafe.Sizeof(a), 48},
		{"ActiveProcesses", unsafe.Offsetof(a.active), 40},
	} {
		if c.got != c.want {
			t.Errorf("%s is %d, want %d", c.what, c.got, c.want)
		}
	}
}

func TestSettings(t *testing.T) {
	for _, c := range []struct {
		name  string
		in    Limits
		want  Settings
		names string
	}{
		{"none", Limits{}, Settings{Flags: 0x2400, UI: 0xff}, "kill-on-close ui no-breakaway"},
		{"unlimited", Limits{-1, -1, -1, -1}, Settings{Flags: 0x2400, UI: 0xff}, "kill-on-close ui no-breakaway"},
		{
			"all",
			Limits{1 << 30, 512 << 20, 64, 30 * time.Second},
			Settings{0x270a, 0xff, 64, 300_000_000, 512 << 20, 1 << 30},
			"kill-on-close ui no-breakaway memory process-memory processes cpu",
		},
		{"a moment", Limits{CPU: 1}, Settings{Flags: 0x2402, UI: 0xff, ProcessTime: 1}, "kill-on-close ui no-breakaway cpu"},
		{"many", Limits{Processes: 1 << 40}, Settings{Flags: 0x2408, UI: 0xff, Processes: 1<<32 - 1}, "kill-on-close ui no-breakaway processes"},
	} {
		got := c.in.Settings()
		if got != c.want || strings.Join(got.Names(), " ") != c.names {
			t.Errorf("%s: %+v %v, want %+v %s", c.name, got, got.Names(), c.want, c.names)
		}
		if back := settingsOf(got.structures()); back != got {
			t.Errorf("%s: %+v came back as %+v", c.name, got, back)
		}
		if wrong := got.Differs(got); wrong != nil {
			t.Errorf("%s differs from itself: %v", c.name, wrong)
		}
	}
}

// TestDiffers changes each member of what is read back.
func TestDiffers(t *testing.T) {
	want := Limits{1 << 30, 512 << 20, 64, 30 * time.Second}.Settings()
	for what, change := range map[string]func(*Settings){
		"limit flags is 0x2f0a": func(s *Settings) { s.Flags |= limitBreakaway },
		"limit flags is 0x70a":  func(s *Settings) { s.Flags &^= limitKillOnClose },
		"UI limits is 0x7f":     func(s *Settings) { s.UI &^= uiExitWindows },
		"active processes":      func(s *Settings) { s.Processes++ },
		"user time":             func(s *Settings) { s.ProcessTime = 0 },
		"memory of each":        func(s *Settings) { s.ProcessMemory-- },
		"memory of the job":     func(s *Settings) { s.Memory = 0 },
	} {
		got := want
		change(&got)
		if wrong := want.Differs(got); len(wrong) != 1 || !strings.HasPrefix(wrong[0], what) {
			t.Errorf("%s: %q", what, wrong)
		}
	}
	free := Limits{}.Settings()
	other := free
	other.Memory, other.Processes = 7, 7
	if wrong := free.Differs(other); wrong != nil {
		t.Errorf("what is not limited counts: %q", wrong)
	}
}

func TestRestricted(t *testing.T) {
	for _, c := range []struct {
		token Token
		wrong int
	}{
		{Token{LowIntegrity, []string{traverse}}, 0},
		{Token{LowIntegrity, nil}, 0},
		{Token{"S-1-16-8192", nil}, 1},
		{Token{"", []string{traverse, "SeDebugPrivilege", "SeBackupPrivilege"}}, 3},
	} {
		if got := c.token.Restricted(); len(got) != c.wrong {
			t.Errorf("%+v: %q", c.token, got)
		}
	}
}

// split takes a command line apart as CommandLineToArgvW is documented to: the program
// ends at its closing quotation mark; for what follows, 2n backslashes and a quotation
// mark are n backslashes and the mark, 2n+1 are n and a literal one, and others are
// themselves. Two marks within quoted text are a literal one.
func split(line string) []string {
	program, rest, _ := strings.Cut(line[1:], `"`)
	argv := []string{program}
	var arg strings.Builder
	inArg, quoted, slashes := false, false, 0
	for i := 0; i < len(rest); i++ {
		c := rest[i]
		if c == '\\' {
			slashes++
			inArg = true
			continue
		}
		if c == '"' {
			arg.WriteString(strings.Repeat(`\`, slashes/2))
			switch {
			case slashes%2 == 1:
				arg.WriteByte('"')
			case quoted && i+1 < len(rest) && rest[i+1] == '"':
				arg.WriteByte('"')
				i++
			default:
				quoted = !quoted
			}
			inArg, slashes = true, 0
			continue
		}
		arg.WriteString(strings.Repeat(`\`, slashes))
		slashes = 0
		if (c == ' ' || c == '\t') && !quoted {
			if inArg {
				argv = append(argv, arg.String())
				arg.Reset()
				inArg = false
			}
			continue
		}
		arg.WriteByte(c)
		inArg = true
	}
	if inArg {
		argv = append(argv, arg.String()+strings.Repeat(`\`, slashes))
	}
	return argv
}

func TestCommandLine(t *testing.T) {
	for _, c := range []struct {
		argv []string
		want string
	}{
		{[]string{`C:\Program Files\x.exe`}, `"C:\Program Files\x.exe"`},
		{[]string{`C:\x.exe`, "a", "", "b c"}, `"C:\x.exe" a "" "b c"`},
		{[]string{`C:\x.exe`, `a\b`, `a\`, `a b\`, `a b\\`}, `"C:\x.exe" a\b a\ "a b\\" "a b\\\\"`},
		{[]string{`C:\x.exe`, `"`, `\"`, `a\"b`, `a" & calc`}, `"C:\x.exe" "\"" "\\\"" "a\\\"b" "a\" & calc"`},
		{[]string{`C:\x.exe`, "%PATH%", "^&|<>", "a\tb"}, "\"C:\\x.exe\" %PATH% ^&|<> \"a\tb\""},
	} {
		got, err := CommandLine(c.argv)
		if err != nil || got != c.want {
			t.Errorf("%q: %s, %v, want %s", c.argv, got, err, c.want)
		}
	}
	for _, argv := range [][]string{nil, {`C:\a"b.exe`}, {"C:\\x.exe", "a\x00b"}, {`C:\x.exe`, strings.Repeat("x", maxCommandLine)}} {
		if line, err := CommandLine(argv); err == nil {
			t.Errorf("%.40q: %.40s", argv, line)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		arg := rapid.OneOf(rapid.StringMatching(`[ab"\\ \t]{0,8}`), rapid.String())
		argv := append([]string{`C:\dir\program.exe`}, rapid.SliceOfN(arg, 0, 5).Draw(t, "arguments")...)
		line, err := CommandLine(argv)
		if err != nil {
			return
		}
		if got := split(line); !slices.Equal(got, argv) {
			t.Errorf("%q: %s is read as %q", argv, line, got)
		}
	})
}

func TestBatch(t *testing.T) {
	for program, want := range map[string]bool{
		`C:\a\x.bat`: true, `C:\a\x.CMD`: true, `C:\a\x.bat. .`: true, `C:\a\x.bat::$DATA`: true, `C:/a/x.cmd`: true,
		`C:\a\x.exe`: false, `C:\x.bat\y.exe`: false, `C:\a\bat`: false, `C:\a\x.batch`: false,
	} {
		if Batch(program) != want {
			t.Errorf("%s: %v", program, !want)
		}
	}
}

func TestEnvironment(t *testing.T) {
	block, err := Environment([]string{"b=2", "A=1", "é=3", "C="})
	if got := string(utf16.Decode(block)); err != nil || got != "A=1\x00b=2\x00C=\x00é=3\x00\x00" {
		t.Errorf("%q, %v", got, err)
	}
	if block, err := Environment(nil); err != nil || len(block) != 2 {
		t.Errorf("nothing is %v, %v", block, err)
	}
	for _, env := range [][]string{{"Path=1", "PATH=2"}, {"a=\x00"}} {
		if _, err := Environment(env); err == nil {
			t.Errorf("%q was taken", env)
		}
	}
}

func TestLow(t *testing.T) {
	for _, c := range []struct {
		sddl      string
		file, dir bool
	}{
		{"S:(ML;OICI;NW;;;LW)", true, true},
		{"O:BAG:SYD:(A;;FA;;;WD)S:AI(ML;OICIID;NW;;;LW)", true, true},
		{"S:(ML;OICI;NW;;;S-1-16-4096)", true, true},
		{"S:(ML;;NW;;;LW)", true, false},
		{"S:(ML;OI;NW;;;LW)", true, false},
		{"S:(ML;OICIIO;NW;;;LW)", false, false},
		{"S:(ML;OICI;NW;;;ME)", false, false},
		{"S:(ML;OICI;NW;;;ME)(ML;OICI;NW;;;LW)", false, false},
		{"S:(AU;SA;FA;;;LW)", false, false},
		{"D:(A;;FA;;;LW)", false, false},
		{"S:", false, false},
		{"", false, false},
		{"S:(ML;OICI;NW;;;LW", false, false},
		{"S:(ML;LW", false, false},
	} {
		if f, d := Low(c.sddl, false), Low(c.sddl, true); f != c.file || d != c.dir {
			t.Errorf("%s: %v, %v", c.sddl, f, d)
		}
	}
}
