package native

import (
	"slices"

	"ringfence/internal/sandbox/native/hold"
)

// Leads returns what links and configuration lead to in a workspace, from where a box
// on the live tree holds them: see [hold.Rules.Follow]. home is that of the person, ""
// if it is not known. An error says what leads to more than can be named.
func Leads(workspace, home string) ([]hold.Led, error) {
	global := []string{"/etc/gitconfig"}
	if home != "" {
		global = append(global, home+"/.config/git/config", home+"/.gitconfig")
	}
	led, err := hold.Rules{Writable: []string{workspace}, Home: home}.Follow(workspace, global...)
	return slices.DeleteFunc(led, func(l hold.Led) bool { return l.Path == "" || l.Home }), err
}

// RuleHeld is the rule of a denial about path where the Spec of the box holds it.
func RuleHeld(path string) string { return hold.RuleHeld(path) }
