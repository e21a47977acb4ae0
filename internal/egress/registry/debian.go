package registry

import (
	"errors"
	"net/http"
	"strings"
)

// debian is the layout of Debian's archives (https://wiki.debian.org/DebianRepository/Format).
// Its indexes are signed and pass; packages are decided one by one, without age.
type debian struct{}

func (debian) read(_, path string) ask {
	first, _, _ := strings.Cut(path, "/")
	file := path[strings.LastIndexByte(path, '/')+1:]
	switch {
	case first == "dists" && !strings.HasSuffix(file, ".deb") && !strings.HasSuffix(file, ".udeb"):
		return ask{kind: passed}
	case first != "pool":
		return refuse("%q is neither an index nor a package of an archive", path)
	}
	name, isDeb := strings.CutSuffix(file, ".deb")
	parts := strings.Split(name, "_")
	if !isDeb || len(parts) != 3 || !plainName(parts[0]) {
		return refuse("%q is no package that can be installed", file)
	}
	number := strings.ReplaceAll(strings.ReplaceAll(parts[1], "%3a", ":"), "%3A", ":")
	number = strings.ReplaceAll(strings.ReplaceAll(number, "%2b", "+"), "%2B", "+")
	if strings.ContainsRune(number, '%') {
		return refuse("%q has no version", file)
	}
	// An epoch and a tilde are no letters of a version elsewhere.
	return ask{kind: artifact, name: strings.ReplaceAll(parts[0], "%2b", "+"), version: number, file: path}
}

func (debian) versions(*Handler, trip, ask, http.Header, []byte) (page, error) {
	return nil, errors.New("archives have no metadata of one package")
}
