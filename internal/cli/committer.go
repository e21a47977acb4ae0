package cli

import (
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/gate/resolve"
	"ringfence/internal/sys/paths"
)

// committer is what tells git in a box who commits, as it would be told outside: a box has
// neither the home nor the configuration of the person. What env, or nobody, says of it is
// left out.
func committer(workspace string, env []string) (more []string) {
	home, err := paths.UserHome()
	if err == nil {
		workspace, err = filepath.EvalSymlinks(workspace)
	}
	if err != nil {
		return nil // who opens the session says so
	}
	name, email := resolve.View{Workspace: workspace, Home: home}.GitIdentity()
	for _, who := range []string{"AUTHOR", "COMMITTER"} {
		for key, value := range map[string]string{"GIT_" + who + "_NAME=": name, "GIT_" + who + "_EMAIL=": email} {
			named := slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, key) })
			if value != "" && !named {
				more = append(more, key+value)
			}
		}
	}
	slices.Sort(more)
	return more
}
