package seatbelt

import (
	"bytes"
	"debug/macho"
	"io"
	"path"
	"slices"
	"strings"
)

// shimLibrary is what the stubs of the developer tools are linked with: it asks
// xcode-select(1) where the real program is and starts that.
const shimLibrary = "/usr/lib/libxcselect.dylib"

// ShimAdvice says for people what to do instead of starting a stub.
const ShimAdvice = "it is a stub of the Xcode command-line tools, which looks for the real program outside the box and cannot start it; " +
	"use one from Homebrew (/opt/homebrew/bin), or that in /Library/Developer/CommandLineTools/usr/bin"

// Shim reports whether the program at file, whose content is r, is a stub that starts
// a developer tool: /usr/bin/git, make, clang, python3 and the like.
func Shim(file string, r io.ReaderAt) bool {
	if path.Dir(file) != "/usr/bin" {
		return false
	}
	if fat, err := macho.NewFatFile(r); err == nil {
		return slices.ContainsFunc(fat.Arches, func(a macho.FatArch) bool { return linked(a.File) })
	}
	f, err := macho.NewFile(r)
	return err == nil && linked(f)
}

func linked(f *macho.File) bool {
	libraries, err := f.ImportedLibraries()
	return err == nil && slices.Contains(libraries, shimLibrary)
}

// Interpreter returns the program that the kernel starts for a script, whose first bytes
// are head, and the name that env(1) is to look for, if that is the program; "" if it is
// no script (execve(2), "interpreter files").
func Interpreter(head []byte) (program, name string) {
	line, ok := bytes.CutPrefix(head, []byte("#!"))
	if !ok {
		return "", ""
	}
	line, _, _ = bytes.Cut(line, []byte("\n"))
	words := strings.Fields(string(line))
	if len(words) == 0 || !path.IsAbs(words[0]) {
		return "", ""
	}
	if path.Base(words[0]) == "env" {
		for _, w := range words[1:] {
			if !strings.HasPrefix(w, "-") && !strings.Contains(w, "=") {
				return path.Clean(words[0]), w
			}
		}
	}
	return path.Clean(words[0]), ""
}
