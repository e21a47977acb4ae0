package daemon

import (
	"path/filepath"
	"slices"
	"strings"

	"ringfence/internal/sys/mounts"
	"ringfence/internal/sys/paths"
)

// ownState lists what no agent may touch, whatever the policy says: our home,
// the policy, and our program, under every name that mounts give them.
func ownState(home, policyDir, self string) []string {
	own := append(paths.OwnState(home), self)
	if policyDir != "" {
		own = append(own, policyDir)
	}
	for i, p := range own {
		if real, err := filepath.EvalSymlinks(p); err == nil {
			own[i] = real
		}
	}
	// Where the mounts cannot be read, no box can be built either.
	ours, err := mounts.Here()
	if err != nil {
		return own
	}
	for _, p := range slices.Clone(own) {
		own = append(own, ours.Elsewhere(p)...)
	}
	return own
}

// realPaths resolves links, and leaves out what is not there.
func realPaths(files []string) (real []string) {
	for _, f := range files {
		if p, err := filepath.EvalSymlinks(f); err == nil {
			real = append(real, p)
		}
	}
	return real
}

// searchPath is where a program name is looked up: $PATH of the engine, but for
// what is beneath the workspace, where an agent could put a program of that name.
func searchPath(workspace string) []string {
	var dirs []string
	for _, d := range paths.SearchPath() {
		real, err := filepath.EvalSymlinks(d)
		if err == nil && real != workspace && !strings.HasPrefix(real, workspace+"/") {
			dirs = append(dirs, real)
		}
	}
	return dirs
}
