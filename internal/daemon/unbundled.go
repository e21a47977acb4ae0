package daemon

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/policy"
)

// Unbundled says what a person can do about a dir that no bundle can be loaded from;
// else it is err, which loading it gave, with the dir.
func Unbundled(dir string, err error) error {
	info, serr := os.Stat(dir)
	switch {
	case errors.Is(serr, fs.ErrNotExist):
		msg := "there is no directory " + dir
		if near := beside(dir); near != "" {
			msg += "; did you mean " + near + "?"
		}
		return errors.New(msg)
	case errors.Is(cmp.Or(serr, err), fs.ErrPermission):
		return fmt.Errorf("this user may not read %s, or what is in it", dir)
	case serr != nil:
		return fmt.Errorf("bundle in %s: %w", dir, err)
	case !info.IsDir():
		return fmt.Errorf("%s is no directory but a file. If it is a constitution, compile it first: ringfence constitution compile %[1]s -o DIR", dir)
	}
	for _, name := range []string{policy.FilePolicy, policy.FileManifest} {
		if _, serr := os.Stat(filepath.Join(dir, name)); !errors.Is(serr, fs.ErrNotExist) {
			return fmt.Errorf("bundle in %s: %w", dir, err)
		}
	}
	return fmt.Errorf("%s holds no compiled constitution: there is no %s and no %s in it. To write them: ringfence constitution compile FILE -o DIR", dir, policy.FilePolicy, policy.FileManifest)
}

// beside returns the directory beside dir with the most similar name, or "". A large
// folder is looked at in part.
func beside(dir string) string {
	f, err := os.Open(filepath.Dir(dir))
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(1000) // what cannot be read is not offered
	var names []string
	for _, e := range entries {
		if e.IsDir() {
			names = append(names, e.Name())
		}
	}
	near := strictjson.Nearest(filepath.Base(dir), names)
	if near == "" {
		return ""
	}
	return filepath.Join(filepath.Dir(dir), near)
}
