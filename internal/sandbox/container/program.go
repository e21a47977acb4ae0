package container

import (
	"path"
	"slices"
	"strings"
)

// enginePath is where engines look for programs in an image that does not say.
const enginePath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// searched returns the files of the image that program can be if it is not there: what
// has its name where the image looks for programs. A program was found by its name on
// this machine, whose directories need not be the image's. One that is in a directory
// for programs is looked for, and nothing that the box may write is found.
func (p *plan) searched(program string, image imageAnswer) (list []string) {
	shown := func(file string) bool {
		return isBeneath(file, "/tmp") || isBeneath(file, "/dev/shm") ||
			slices.ContainsFunc(p.mounts, func(m mount) bool { return file == m.target || isBeneath(file, m.target) })
	}
	dir, name := path.Split(program)
	if last := path.Base(dir); last != "bin" && last != "sbin" || shown(program) {
		return nil
	}
	search := enginePath
	for _, v := range image.Config.Env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			search = value
		}
	}
	for d := range strings.SplitSeq(search, ":") {
		file := path.Join(d, name)
		if path.IsAbs(file) && file != program && !shown(file) && len(list) < maxSearched {
			list = append(list, file)
		}
	}
	return list
}

// maxSearched bounds what an image can have us look at.
const maxSearched = 64

// runs says which program of the image stands for the one of the Spec.
func runs(found, program string) string {
	return "; " + found + " of the image is what runs, where there is no " + program
}
