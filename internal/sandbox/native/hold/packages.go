package hold

import (
	"fmt"
	"os"
	"path/filepath"
)

// packageLevels is how deep repositories are looked for in what package managers have
// installed: "vendor/host/owner/name".
const packageLevels = 3

// markPackage is in a directory of a package that has no others in it.
const markPackage = "package.json"

// installed looks for repositories in the directories that package managers fill. What is
// in them was mostly not put there by whom the tree belongs to, and there is much of it:
// it comes last, and has a bound of its own.
func (f *follower) installed(everywhere []setting) {
	level, left := f.packages, MaxDirectories
	for depth := 0; depth < packageLevels && len(level) > 0; depth++ {
		var next []string
		for _, dir := range level {
			for _, name := range f.names(dir) {
				if left--; left < 0 {
					f.stop(fmt.Sprintf("there are more than %d directories of installed packages", MaxDirectories))
					return
				}
				p := filepath.Join(dir, name)
				f.repository(p, everywhere)
				if _, err := os.Lstat(filepath.Join(p, markPackage)); err != nil {
					next = append(next, p)
				}
			}
		}
		level = next
	}
}
