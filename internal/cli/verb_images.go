package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/agent/image"
	"ringfence/internal/config"
	"ringfence/internal/egress/registry"
	"ringfence/internal/mediator/remote"
	"ringfence/internal/sandbox/container"
	"ringfence/internal/sys/paths"
)

// defaultBase is what images lie on where nothing else is named.
const defaultBase = "debian:bookworm-slim"

// The labels of an image of ours.
const (
	labelAgent    = "ringfence.agent"
	labelVersion  = "ringfence.version"
	labelBase     = "ringfence.base" // its id
	labelBaseName = "ringfence.base-name"
	labelArch     = "ringfence.arch"
	labelBuild    = "ringfence.build" // of all that it is made of
)

// newImages is "ringfence images".
func newImages(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "images",
		Short: "Make images of agents for the tier container",
		Long: "An image of an agent is a base that your container engine has, and one layer with the\n" +
			"agent: packages of npm by exact version and hash. Nothing runs to make it, and the same\n" +
			"base makes the same image. \"ringfence run --tier container AGENT\" runs in it.",
	}
	c.AddCommand(newImagesBuild(s), newImagesList(s), newImagesPrune(s))
	return c
}

// A builtImage is what the verbs print of an image.
type builtImage struct {
	Name    string `json:"name"`
	ID      string `json:"id"`
	Agent   string `json:"agent"`
	Version string `json:"version"`
	Base    string `json:"base"`
	Size    int64  `json:"size"`            // bytes, with the base
	Stale   string `json:"stale,omitempty"` // why another would be made today
	Made    bool   `json:"made,omitempty"`  // just now
}

func builtOf(i container.Image) builtImage {
	b := builtImage{ID: i.ID, Agent: i.Labels[labelAgent], Version: i.Labels[labelVersion], Base: i.Labels[labelBaseName] + " " + i.Labels[labelBase], Size: i.Size}
	if len(i.Names) > 0 {
		b.Name = i.Names[0]
	}
	return b
}

func (b builtImage) String() string {
	line := fmt.Sprintf("%-10s %-10s %-19.19s %5d MB  on %s", b.Agent, b.Version, strings.TrimPrefix(b.ID, "sha256:"), b.Size>>20, b.Base)
	if b.Stale != "" {
		line += "  (" + b.Stale + ")"
	}
	return line + "\n"
}

func newImagesBuild(s *streams) *cobra.Command {
	var f loginFlags
	var base string
	c := &cobra.Command{
		Use:   "build AGENT",
		Short: "Make the image of an agent, if it is not there",
		Long: "Make the image of an agent, if it is not there. Its packages come from the npm registry\n" +
			"that this machine is set up for, decided by your policy like any other request, and are\n" +
			"kept in the home of ringfence. The base must be there: it is not pulled.",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "there is no image"}, status{codeDenied, "the policy did not allow a request"}),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := templateOf(args[0])
			if err != nil {
				return err
			}
			made, err := buildImage(c.Context(), s, f, t, base)
			if err != nil {
				return err
			}
			return s.value(made, made.String)
		},
	}
	f.addAsking(c.Flags())
	c.Flags().StringVar(&base, "base", defaultBase, "`IMAGE` that it lies on, of Debian or the like; its id is part of what is made")
	return c
}

func templateOf(agent string) (image.Template, error) {
	t, ok, err := image.Lookup(agent)
	if err != nil || ok {
		return t, err
	}
	all, err := image.List()
	if err != nil {
		return t, err
	}
	var names []string
	for _, o := range all {
		names = append(names, o.Agent)
	}
	e := &exitError{code: codeUsage, err: fmt.Errorf("no image of %q can be made; there are %s", agent, strings.Join(names, ", ")), hint: "\"ringfence run --image IMAGE\" runs an agent that comes as an image"}
	if near := nearest(agent, names); near != "" {
		e.hint = fmt.Sprintf("did you mean %q?", near)
	}
	return t, e
}

// engineOf is the container engine as configured.
func engineOf(conf config.Container) (*container.Tier, error) {
	t, err := containers(conf)
	if err != nil {
		return nil, err
	}
	own, ok := t.(*container.Tier)
	if !ok {
		return nil, fmt.Errorf("the tier %s makes no images", t.Name())
	}
	return own, nil
}

func buildImage(ctx context.Context, s *streams, f loginFlags, t image.Template, baseName string) (builtImage, error) {
	conf, _, err := settings()
	if err != nil {
		return builtImage{}, err
	}
	engine, err := engineOf(conf.Box.Container)
	if err != nil {
		return builtImage{}, err
	}
	base, err := engine.Image(ctx, baseName)
	if err != nil {
		return builtImage{}, &exitError{code: codeFailed, err: fmt.Errorf("finding the base: %w", err), hint: "--base names another"}
	}
	hash, err := t.Hash(base.ID, base.Arch)
	if err != nil {
		return builtImage{}, err
	}
	there, err := engine.Images(ctx, labelBuild)
	if err != nil {
		return builtImage{}, err
	}
	if i := slices.IndexFunc(there, func(i container.Image) bool { return i.Labels[labelBuild] == hash }); i >= 0 {
		return builtOf(there[i]), nil
	}
	files, err := fetchPackages(ctx, s, f, conf, t, base.Arch)
	if err != nil {
		return builtImage{}, err
	}
	s.say("putting the image together, on %s", baseName)
	made, err := engine.Derive(ctx, container.Derivation{
		Base: base, Name: "localhost/ringfence-" + t.Agent + ":" + t.Version,
		Labels: map[string]string{
			labelAgent: t.Agent, labelVersion: t.Version, labelBase: base.ID, labelBaseName: baseName, labelArch: base.Arch, labelBuild: hash,
		},
		Search: image.Programs + ":/usr/local/bin:/usr/bin:/bin",
		Layer: func(w io.Writer) error {
			return t.Layer(ctx, w, base.Arch, func(p image.Package) (io.ReadCloser, error) { return os.Open(files[p]) })
		},
	})
	if err != nil {
		return builtImage{}, &exitError{code: codeFailed, err: err}
	}
	b := builtOf(made)
	b.Made = true
	return b, nil
}

// maxArchive is how many bytes the archive of a package may have.
const maxArchive = 1 << 30

// fetchPackages returns the files of the packages that t has for arch, by package.
func fetchPackages(ctx context.Context, s *streams, f loginFlags, conf config.Config, t image.Template, arch string) (_ map[image.Package]string, err error) {
	list, err := t.For(arch)
	if err != nil {
		return nil, &exitError{code: codeFailed, err: err}
	}
	home, err := paths.EnsureHome()
	if err != nil {
		return nil, err
	}
	dir := paths.Images(home)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("keeping packages: %w", err)
	}
	p := &personSession{s: s, verb: "images", f: f}
	defer func() { err = errors.Join(err, p.close(ctx)) }()
	way := &http.Client{Transport: &farWay{open: p.open}}
	defer way.CloseIdleConnections()
	at, files := "", map[image.Package]string{}
	for _, one := range list {
		file := filepath.Join(dir, strings.NewReplacer("/", "-", "+", "_").Replace(strings.TrimPrefix(one.Integrity, "sha512-"))+".tgz")
		files[one] = file
		if _, err := os.Lstat(file); err == nil {
			continue // its hash is checked when it is unpacked
		}
		if at == "" {
			at = npmRegistry(ctx, s, conf)
		}
		s.say("fetching %s %s from %s", one.Name, one.Version, at)
		if err := fetchPackage(ctx, way, at+one.File(), one, file); err != nil {
			code := codeFailed
			if _, denied := errors.AsType[*remote.NotAllowedError](err); denied {
				code = codeDenied
			}
			return nil, &exitError{code: code, err: fmt.Errorf("fetching %s %s: %w", one.Name, one.Version, err)}
		}
	}
	return files, nil
}

// npmRegistry is the registry of npm that this machine is set up for, with a slash at its
// end.
func npmRegistry(ctx context.Context, s *streams, conf config.Config) string {
	all, wrong := registriesOf(ctx, conf)
	s.sayEach("%s", wrong)
	for _, r := range all {
		if r.Ecosystem == registry.NPM {
			return strings.TrimSuffix(r.URL.String(), "/") + "/"
		}
	}
	return "https://registry.npmjs.org/"
}

// fetchPackage writes what is at a URL to file, if it is p.
func fetchPackage(ctx context.Context, way *http.Client, at string, p image.Package, file string) (err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at, nil)
	if err != nil {
		return err
	}
	resp, err := way.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", at, resp.Status)
	}
	checked, err := p.Check(io.LimitReader(resp.Body, maxArchive))
	if err != nil {
		return err
	}
	to, err := os.CreateTemp(filepath.Dir(file), ".part-")
	if err != nil {
		return err
	}
	_, err = io.Copy(to, checked)
	if err = errors.Join(err, to.Close()); err == nil {
		err = os.Rename(to.Name(), file)
	}
	if err != nil {
		err = errors.Join(err, os.Remove(to.Name()))
	}
	return err
}

// lookedAt calls f with the engine, and the images that were made there.
func lookedAt(ctx context.Context, f func(engine *container.Tier, all []container.Image, list []builtImage) error) error {
	conf, _, err := settings()
	if err != nil {
		return err
	}
	engine, err := engineOf(conf.Box.Container)
	if err != nil {
		return err
	}
	all, list, err := ownImages(ctx, engine)
	if err != nil {
		return err
	}
	return f(engine, all, list)
}

// ownImages are the images that were made here, with why they are stale.
func ownImages(ctx context.Context, engine *container.Tier) ([]container.Image, []builtImage, error) {
	all, err := engine.Images(ctx, labelBuild)
	if err != nil {
		return nil, nil, err
	}
	slices.SortStableFunc(all, func(a, b container.Image) int {
		return strings.Compare(a.Labels[labelAgent]+" "+a.Labels[labelVersion], b.Labels[labelAgent]+" "+b.Labels[labelVersion])
	})
	list := make([]builtImage, len(all))
	for n, i := range all {
		list[n] = builtOf(i)
		if list[n].Stale, err = staleness(ctx, engine, i); err != nil {
			return nil, nil, err
		}
	}
	return all, list, nil
}

// staleness is why another image would be made today in the place of i, "" if none.
func staleness(ctx context.Context, engine *container.Tier, i container.Image) (string, error) {
	t, ok, err := image.Lookup(i.Labels[labelAgent])
	if err != nil {
		return "", err
	}
	if !ok {
		return "no image of this agent is made any more", nil
	}
	hash, err := t.Hash(i.Labels[labelBase], i.Labels[labelArch])
	switch {
	case err != nil:
		return "", err
	case hash != i.Labels[labelBuild] && t.Version != i.Labels[labelVersion]:
		return "there is " + t.Version, nil
	case hash != i.Labels[labelBuild]:
		return "it is made otherwise today", nil
	}
	if base, err := engine.Image(ctx, i.Labels[labelBaseName]); err == nil && base.ID != i.Labels[labelBase] { // a base that is gone makes no other
		return i.Labels[labelBaseName] + " is another today", nil
	}
	return "", nil
}

// imageOf returns the id of an image of an agent that is not stale, "" if there is none.
func imageOf(ctx context.Context, conf config.Container, agent string) (string, error) {
	engine, err := engineOf(conf)
	if err != nil {
		return "", err
	}
	_, list, err := ownImages(ctx, engine)
	if err != nil {
		return "", err
	}
	for _, b := range list {
		if b.Agent == agent && b.Stale == "" {
			return b.ID, nil
		}
	}
	return "", nil
}

func newImagesList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the images that were made here",
		RunE: func(c *cobra.Command, _ []string) error {
			return lookedAt(c.Context(), func(_ *container.Tier, _ []container.Image, list []builtImage) error {
				return s.value(list, func() string { return imagesText(list, "There are no images of agents.\n") })
			})
		},
	}
}

func imagesText(list []builtImage, none string) string {
	if len(list) == 0 {
		return none
	}
	var b strings.Builder
	for _, i := range list {
		b.WriteString(i.String())
	}
	return b.String()
}

func newImagesPrune(s *streams) *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use:   "prune",
		Short: "Remove the images that are stale, and what was fetched for them",
		RunE: func(c *cobra.Command, _ []string) error {
			return lookedAt(c.Context(), func(engine *container.Tier, images []container.Image, list []builtImage) error {
				gone := []builtImage{}
				for n, i := range images {
					if !all && list[n].Stale == "" {
						continue
					}
					if err := engine.RemoveImage(c.Context(), i); err != nil {
						return &exitError{code: codeFailed, err: fmt.Errorf("removing the image %s: %w", list[n].Name, err)}
					}
					gone = append(gone, list[n])
				}
				home, err := paths.EnsureHome()
				if err == nil {
					err = os.RemoveAll(paths.Images(home))
				}
				if err != nil {
					return fmt.Errorf("removing what was fetched: %w", err)
				}
				return s.value(gone, func() string { return imagesText(gone, "Nothing is stale.\n") })
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "remove every image that was made here")
	return c
}
