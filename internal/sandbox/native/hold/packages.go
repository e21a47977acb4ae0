package hold

import (
	"fmt"
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
		var all []string
		for _, dir := range level {
			for _, name := range f.names(dir) {
				if len(all) < left {
					all = append(all, join(dir, name))
				} else {
					f.stop(fmt.Sprintf("there are more than %d directories of installed packages", MaxDirectories))
				}
			}
		}
		left -= len(all)
		f.ask(all, everywhere)
		packages := make([]bool, len(all))
		f.share(len(all), func(i int, _ []byte) {
			_, err := kindAt(join(all[i], markPackage))
			packages[i] = err == nil
		})
		level = nil
		for i, p := range all {
			if !packages[i] {
				level = append(level, p)
			}
		}
	}
}
