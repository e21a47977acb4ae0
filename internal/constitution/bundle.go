package constitution

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"ringfence/internal/policy"
	"ringfence/internal/sys/atomicfile"
)

// The suffixes of the directories beside a bundle while it is replaced.
const (
	suffixNew = ".new"
	suffixOld = ".old"
)

// Files returns the files of the bundle of c, by path, without its manifest.
func (c *Compiled) Files() (map[string][]byte, error) {
	cases, err := marshalScenarios(c.Scenarios)
	if err != nil {
		return nil, err
	}
	b := policy.Bundle{
		Constitution: c.Source.Text, Clauses: c.Clauses, Scenarios: cases,
		Layer: policy.Layer{Text: c.Cedar, Lists: c.Lists},
	}
	return b.Files()
}

// Write replaces the directory dir with the bundle of c, signed with key.
// Compiler is the version of the program, for the manifest. The bundle is written
// beside dir, loaded again as it was written and run through its scenarios; only
// then does it take the place of what was in dir. On error dir is as it was. A
// directory that holds anything but a bundle is not replaced.
func Write(dir string, c *Compiled, compiler string, key ed25519.PrivateKey) error {
	if c.Scenarios == nil {
		with := *c
		with.Scenarios = scenarios(c)
		c = &with
	}
	files, err := c.Files()
	if err != nil {
		return err
	}
	sealed, err := policy.Seal(files, compiler, key)
	if err != nil {
		return err
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return fmt.Errorf("writing bundle: %w", err)
	}
	if err := recoverOld(dir); err != nil {
		return err
	}
	if err := replaceable(dir); err != nil {
		return err
	}
	fresh := dir + suffixNew
	if err := writeAll(fresh, sealed); err != nil {
		return errors.Join(err, os.RemoveAll(fresh))
	}
	if err := proveBundle(fresh, c, key); err != nil {
		return errors.Join(fmt.Errorf("the new bundle is not put in force: %w", err), os.RemoveAll(fresh))
	}
	return swap(dir)
}

// recoverOld puts the last good bundle back where an earlier replacement was cut
// off between its two steps.
func recoverOld(dir string) error {
	if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	err := os.Rename(dir+suffixOld, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("restoring the last good bundle: %w", err)
	}
	return nil
}

// replaceable refuses a directory with files that no bundle holds, so that a
// wrong argument never costs more than a bundle.
func replaceable(dir string) error {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("writing bundle: %w", err)
	}
	known := []string{
		policy.FileConstitution, policy.FileClauses, policy.FilePolicy, policy.FileLists, policy.FileScenarios,
		policy.FileManifest, policy.FileSignature, "annotations",
	}
	for _, e := range entries {
		if !slices.Contains(known, e.Name()) {
			return fmt.Errorf("writing bundle: %s holds %s, which is no part of a bundle; name an empty or new directory", dir, e.Name())
		}
	}
	return nil
}

func writeAll(dir string, files map[string][]byte) error {
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("clearing %s: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("writing bundle: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := atomicfile.Write(filepath.Join(dir, filepath.FromSlash(name)), files[name], 0o600); err != nil {
			return err
		}
	}
	return nil
}

// proveBundle loads the bundle in dir and runs the scenarios that it holds.
func proveBundle(dir string, c *Compiled, key ed25519.PrivateKey) error {
	public, ok := key.Public().(ed25519.PublicKey)
	if !ok {
		return errors.New("the key is no Ed25519 key")
	}
	p, b, err := policy.LoadBundle(os.DirFS(dir), policy.Options{Trusted: []ed25519.PublicKey{public}, Binding: scenarioBinding})
	if err != nil {
		return err
	}
	cases, err := ParseScenarios(b.Scenarios)
	if err != nil {
		return err
	}
	written := *c
	written.Cedar, written.Lists, written.Scenarios = b.Layer.Text, b.Layer.Lists, cases
	if c.Source.Layer != "" {
		return verify(&written)
	}
	return mismatch(&written, Check(p, "", cases))
}

// swap puts dir.new in the place of dir.
func swap(dir string) error {
	fresh, old := dir+suffixNew, dir+suffixOld
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("writing bundle: %w", err)
	}
	err := os.Rename(dir, old)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("writing bundle: %w", errors.Join(err, os.RemoveAll(fresh)))
	}
	if err := os.Rename(fresh, dir); err != nil {
		return fmt.Errorf("writing bundle: %w", errors.Join(err, recoverOld(dir)))
	}
	if err := os.RemoveAll(old); err != nil {
		return fmt.Errorf("the bundle is in force; removing the one before it: %w", err)
	}
	return nil
}
