package jobobject

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// maxCommandLine is how long a command line may be, in units of UTF-16, with the NUL at
// its end (CreateProcessW).
const maxCommandLine = 32767

// CommandLine returns argv as one line, which programs take apart again as
// CommandLineToArgvW and the C library of Microsoft do. The rules are those of
// syscall.EscapeArg, but for the program: in its name a backslash has no meaning and a
// quotation mark cannot be written.
func CommandLine(argv []string) (string, error) {
	if len(argv) == 0 {
		return "", errors.New("no program")
	}
	for i, a := range argv {
		if strings.IndexByte(a, 0) >= 0 {
			return "", fmt.Errorf("argument %d holds a NUL", i)
		}
	}
	if strings.Contains(argv[0], `"`) {
		return "", fmt.Errorf("program %q: no path has a quotation mark", argv[0])
	}
	words := []string{`"` + argv[0] + `"`}
	for _, a := range argv[1:] {
		words = append(words, escape(a))
	}
	line := strings.Join(words, " ")
	if n := len(utf16.Encode([]rune(line))) + 1; n > maxCommandLine {
		return "", fmt.Errorf("the command line has %d characters, at most %d", n, maxCommandLine)
	}
	return line, nil
}

// escape writes one argument: a quotation mark, and the backslashes directly before one,
// get a backslash; what has a space, or nothing, is quoted.
func escape(a string) string {
	if a != "" && !strings.ContainsAny(a, " \t\n\v\"") {
		return a
	}
	var b strings.Builder
	b.WriteByte('"')
	slashes := 0
	for i := range len(a) {
		switch a[i] {
		case '\\':
			slashes++
			continue
		case '"':
			b.WriteString(strings.Repeat(`\`, 2*slashes+1))
		default:
			b.WriteString(strings.Repeat(`\`, slashes))
		}
		slashes = 0
		b.WriteByte(a[i])
	}
	b.WriteString(strings.Repeat(`\`, 2*slashes))
	b.WriteByte('"')
	return b.String()
}

// Batch reports whether program is a script of cmd.exe, which takes its arguments apart
// by rules of its own: no quoting keeps it from executing what stands in them. Windows
// ignores spaces and dots at the end of a name, and streams after a colon.
func Batch(program string) bool {
	base := program[strings.LastIndexAny(program, `\/`)+1:]
	base, _, _ = strings.Cut(base, ":")
	base = strings.ToLower(strings.TrimRight(base, " ."))
	return strings.HasSuffix(base, ".bat") || strings.HasSuffix(base, ".cmd")
}

// Environment returns env as CreateProcessW takes it: sorted without regard to case,
// each variable with a NUL after it, and one more. Windows knows one of several whose
// names differ only in case: that is an error.
func Environment(env []string) ([]uint16, error) {
	sorted := slices.Clone(env)
	name := func(e string) string {
		k, _, _ := strings.Cut(e, "=")
		return strings.ToUpper(k)
	}
	slices.SortFunc(sorted, func(a, b string) int { return strings.Compare(name(a), name(b)) })
	var block []uint16
	for i, e := range sorted {
		if i > 0 && name(e) == name(sorted[i-1]) {
			return nil, fmt.Errorf("variable %q is set twice: Windows does not tell the case of names apart", name(e))
		}
		if strings.IndexByte(e, 0) >= 0 {
			return nil, fmt.Errorf("variable %q holds a NUL", name(e))
		}
		block = append(append(block, utf16.Encode([]rune(e))...), 0)
	}
	if len(block) == 0 {
		block = append(block, 0)
	}
	return append(block, 0), nil
}

// Low reports whether what has the security descriptor sddl can be written by a process
// of low integrity, as far as labels go, and, for a directory, what comes into being in
// it too ([MS-DTYP] 2.5.1.1: S:(ML;OICI;NW;;;LW)). Without a label a thing counts as of
// medium integrity.
func Low(sddl string, dir bool) bool {
	_, sacl, ok := strings.Cut(sddl, "S:")
	if !ok {
		return false
	}
	for _, ace := range strings.Split(sacl, "(")[1:] {
		ace, _, ok := strings.Cut(ace, ")")
		f := strings.Split(ace, ";")
		if !ok || len(f) != 6 || f[0] != "ML" {
			continue
		}
		if f[5] != "LW" && f[5] != LowIntegrity || hasFlag(f[1], "IO") {
			return false
		}
		return !dir || hasFlag(f[1], "OI") && hasFlag(f[1], "CI")
	}
	return false
}

// hasFlag looks among flags of two letters each.
func hasFlag(flags, flag string) bool {
	for ; len(flags) >= 2; flags = flags[2:] {
		if flags[:2] == flag {
			return true
		}
	}
	return false
}
