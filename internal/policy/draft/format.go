package draft

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"ringfence/internal/policy"
)

// Format returns a as the JSON that people review: one line an argument, and in
// ASCII, so that no character of a server hides or moves another.
func Format(a policy.Annotation) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n  \"name\": %s,\n", encode(a.Name))
	if len(a.Packages) > 0 {
		fmt.Fprintf(&b, "  \"packages\": %s,\n", encode(a.Packages))
	}
	b.WriteString("  \"tools\": {")
	separate := ""
	for _, name := range slices.Sorted(maps.Keys(a.Tools)) {
		fmt.Fprintf(&b, "%s\n    %s: {\n", separate, encode(name))
		b.WriteString(strings.Join(toolMembers(a.Tools[name]), ",\n"))
		b.WriteString("\n    }")
		separate = ","
	}
	b.WriteString("\n  }\n}\n")
	return b.Bytes()
}

func toolMembers(t policy.ToolAnnotation) (members []string) {
	add := func(given bool, name string, value string) {
		if given {
			members = append(members, fmt.Sprintf("      %q: %s", name, value))
		}
	}
	var args []string
	for _, pointer := range slices.Sorted(maps.Keys(t.Args)) {
		args = append(args, fmt.Sprintf("\n        %s: %s", encode(pointer), encode(t.Args[pointer])))
	}
	if len(args) > 0 {
		args[len(args)-1] += "\n      "
	}
	add(len(t.Pins) > 0, "pins", encode(t.Pins))
	add(t.Group != "", "group", encode(t.Group))
	add(true, "args", "{"+strings.Join(args, ",")+"}")
	add(len(t.Effects) > 0, "effects", encode(t.Effects))
	add(len(t.Sets) > 0, "sets", encode(t.Sets))
	add(len(t.Reads) > 0, "reads", encode(t.Reads))
	add(t.Grant != "", "grant", encode(t.Grant))
	return members
}

// encode returns v as JSON in ASCII; what cannot be encoded is null, which no
// reader of annotations accepts.
func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		return "null"
	}
	var b strings.Builder
	for _, r := range string(raw) {
		switch {
		case r < 0x7f:
			b.WriteRune(r)
		case r > 0xffff:
			r -= 0x10000
			fmt.Fprintf(&b, `\u%04x\u%04x`, 0xd800+(r>>10), 0xdc00+(r&0x3ff))
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
	}
	return b.String()
}

// packageForm is the name of an npm or PyPI package.
var packageForm = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^(@[a-z0-9~][a-z0-9._~-]*/)?[A-Za-z0-9~][A-Za-z0-9._~-]*$`)
})

// PackageOf returns the package that argv runs, without its version: the one in
// whose folder of node_modules its program or script is, or the one that a program
// that runs packages (npx, bunx, uvx …) is given. It returns "" if argv is not of
// that kind.
func PackageOf(argv []string) string {
	if len(argv) == 0 {
		return ""
	}
	program := argv[0]
	if base := filepath.Base(program); base == "node" || base == "bun" || base == "deno" {
		script := slices.IndexFunc(argv[1:], func(word string) bool { return !strings.HasPrefix(word, "-") })
		program = argv[1+script] // itself, if there is none
	}
	if _, rest, ok := strings.Cut(filepath.ToSlash(program), "/node_modules/"); ok {
		parts := strings.Split(rest, "/")
		name := parts[0]
		if strings.HasPrefix(name, "@") && len(parts) > 1 {
			name += "/" + parts[1]
		}
		return wellFormed(name)
	}
	rest := argv[1:]
	switch filepath.Base(argv[0]) {
	case "npx", "bunx", "pnpx", "uvx":
	case "npm", "pnpm", "yarn", "bun":
		if len(rest) == 0 || rest[0] != "exec" && rest[0] != "dlx" && rest[0] != "x" {
			return ""
		}
		rest = rest[1:]
	default:
		return ""
	}
	for len(rest) > 0 && slices.Contains([]string{"-y", "--yes", "-q", "--quiet", "--"}, rest[0]) {
		rest = rest[1:]
	}
	if len(rest) == 0 {
		return ""
	}
	return wellFormed(rest[0])
}

// wellFormed returns the package that spec names, "" if it names none.
func wellFormed(spec string) string {
	if at := strings.LastIndexByte(spec, '@'); at > 0 {
		spec = spec[:at]
	}
	if len(spec) > 214 || !packageForm().MatchString(spec) {
		return ""
	}
	return spec
}
