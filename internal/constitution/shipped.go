package constitution

import (
	"embed"
	"fmt"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

//go:embed constitutions/*.md constitutions/lists.json
var shipped embed.FS

// ShippedNames returns the names of the constitutions that come with the
// program.
func ShippedNames() []string { return []string{"coding", "default", "readonly"} }

// Shipped returns a constitution that comes with the program, and the lists that
// the shipped constitutions may name.
func Shipped(name string) (text []byte, lists map[string]policy.List, err error) {
	if text, err = shipped.ReadFile("constitutions/" + name + ".md"); err != nil {
		hint := ""
		if near := nearest(name, ShippedNames()); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		return nil, nil, fmt.Errorf("there is no shipped constitution %q (there are %s)%s", name, strings.Join(ShippedNames(), ", "), hint)
	}
	data, err := shipped.ReadFile("constitutions/lists.json")
	if err != nil {
		return nil, nil, fmt.Errorf("reading the shipped lists: %w", err)
	}
	if err := strictjson.Unmarshal(data, &lists); err != nil {
		return nil, nil, fmt.Errorf("reading the shipped lists:%w", err)
	}
	return text, lists, nil
}
