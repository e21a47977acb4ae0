package container

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"time"
)

// A Derivation says what an image is made of: another that the engine has, and one layer on
// it. Nothing runs to make it, and nothing is fetched. The same base, layer, labels and
// search path make the same image, with the same id where engines name images by what is in
// them.
type Derivation struct {
	Base   Image
	Name   string // "localhost/ringfence-claude:2.1.332"
	Labels map[string]string
	Search string // $PATH
	// Layer writes the layer as a tar archive.
	Layer func(w io.Writer) error
	// Dir is where the image is put together, a directory with room for it twice; "" is the
	// system's directory for temporary files.
	Dir string
}

// Derive makes an image, or returns the one there is, and gives it its name. No variable,
// volume, port or program of the base is taken over.
func (t *Tier) Derive(ctx context.Context, d Derivation) (made Image, err error) {
	if err := checkImage(d.Name); err != nil {
		return Image{}, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, imageTime, fmt.Errorf("making an image took longer than %v", imageTime))
	defer cancel()
	e, err := t.connect(ctx)
	if err != nil {
		return Image{}, err
	}
	dir, err := os.MkdirTemp(d.Dir, "ringfence-image-")
	if err != nil {
		return Image{}, fmt.Errorf("making an image: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	b := &derived{Derivation: d, dir: dir}
	defer func() { err = errors.Join(err, b.close()) }()
	if err := b.prepare(ctx, e); err != nil {
		return Image{}, fmt.Errorf("making the image %s: %w", d.Name, err)
	}
	r, w := io.Pipe()
	go func() { w.CloseWithError(b.write(w)) }()
	err = e.load(ctx, r)
	r.Close() //nolint:errcheck // of a pipe; whoever writes stops
	if err != nil {
		return Image{}, fmt.Errorf("making the image %s: %w", d.Name, err)
	}
	if made, err = e.describe(ctx, d.Name); err != nil {
		return Image{}, err
	}
	if !maps.Equal(made.Labels, d.Labels) {
		return Image{}, fmt.Errorf("%s has another image by the name %s than was made", e, d.Name)
	}
	return made, nil
}

// derived is an image that is being put together.
type derived struct {
	Derivation
	dir         string
	base, layer *os.File
	layers      []span // of the base, in its archive
	diffs       []string
	config      []byte
}

// A span is a part of a file.
type span struct{ at, size int64 }

func (b *derived) close() error {
	var errs []error
	for _, f := range []*os.File{b.base, b.layer} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	return errors.Join(errs...)
}

func (b *derived) file(name string) (*os.File, error) {
	return os.OpenFile(filepath.Join(b.dir, name), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
}

// prepare gets the base, makes the layer, and what describes both.
func (b *derived) prepare(ctx context.Context, e *engine) (err error) {
	if b.base, err = b.file("base.tar"); err != nil {
		return err
	}
	if err := e.save(ctx, b.Base.ID, b.base); err != nil {
		return err
	}
	if err := b.readBase(); err != nil {
		return fmt.Errorf("reading the image %s as the engine gave it: %w", b.Base.ID, err)
	}
	if b.layer, err = b.file("layer.tar"); err != nil {
		return err
	}
	sum := sha256.New()
	if err := b.Layer(io.MultiWriter(b.layer, sum)); err != nil {
		return err
	}
	b.diffs = append(b.diffs, "sha256:"+hex.EncodeToString(sum.Sum(nil)))
	b.config, err = json.Marshal(b.describe())
	return err
}

// Bounds of what describes an image, and of how many layers it has.
const (
	maxDescription = 4 << 20
	maxLayers      = 512
)

// readBase finds the layers of the base in its archive.
func (b *derived) readBase() error {
	parts, links := map[string]span{}, map[string]string{}
	if _, err := b.base.Seek(0, io.SeekStart); err != nil {
		return err
	}
	for r := tar.NewReader(b.base); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(parts)+len(links) > 16*maxLayers {
			return errors.New("it has too many parts")
		}
		at, err := b.base.Seek(0, io.SeekCurrent) // a tar.Reader reads no further than it must
		if err != nil {
			return err
		}
		switch name := path.Clean(h.Name); h.Typeflag {
		case tar.TypeReg:
			parts[name] = span{at, h.Size}
		case tar.TypeSymlink: // how Docker writes a layer that it has written
			links[name] = path.Join(path.Dir(name), h.Linkname) //nolint:gosec // it is compared, and nothing is extracted
		}
	}
	var manifests []struct {
		Config string
		Layers []string
	}
	if err := b.decode(parts["manifest.json"], &manifests); err != nil {
		return err
	}
	if len(manifests) != 1 || len(manifests[0].Layers) > maxLayers {
		return fmt.Errorf("it holds %d images", len(manifests))
	}
	var config struct {
		RootFS struct {
			DiffIDs []string `json:"diff_ids"`
		} `json:"rootfs"`
	}
	if err := b.decode(parts[path.Clean(manifests[0].Config)], &config); err != nil {
		return err
	}
	b.diffs = config.RootFS.DiffIDs
	for _, name := range manifests[0].Layers {
		name = path.Clean(name)
		if to, ok := links[name]; ok {
			name = to
		}
		part, ok := parts[name]
		if !ok {
			return fmt.Errorf("it has no layer %q", name)
		}
		b.layers = append(b.layers, part)
	}
	if len(b.layers) != len(b.diffs) {
		return fmt.Errorf("it has %d layers, and describes %d", len(b.layers), len(b.diffs))
	}
	return nil
}

func (b *derived) decode(part span, to any) error {
	if part.size == 0 || part.size > maxDescription {
		return fmt.Errorf("what describes it has %d bytes", part.size)
	}
	text, err := io.ReadAll(io.NewSectionReader(b.base, part.at, part.size))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, to)
}

// The configuration of an image, of which everything else is left out:
// https://github.com/moby/docker-image-spec/blob/main/spec.md.
type (
	imageConfig struct {
		Architecture string       `json:"architecture"`
		OS           string       `json:"os"`
		Created      time.Time    `json:"created"`
		Config       imageRuns    `json:"config"`
		RootFS       imageLayers  `json:"rootfs"`
		History      []imageEvent `json:"history"`
	}
	imageRuns struct {
		User   string
		Env    []string
		Labels map[string]string
	}
	imageLayers struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	}
	imageEvent struct {
		Created time.Time `json:"created"`
		By      string    `json:"created_by"`
	}
)

// describe is the configuration. Its times are no times, so that the image is the same
// whenever it is made.
func (b *derived) describe() imageConfig {
	never := time.Unix(0, 0).UTC()
	c := imageConfig{
		Architecture: b.Base.Arch, OS: "linux", Created: never,
		Config: imageRuns{User: "65534:65534", Env: []string{"PATH=" + b.Search}, Labels: b.Labels},
		RootFS: imageLayers{Type: "layers", DiffIDs: b.diffs},
	}
	for range b.diffs {
		c.History = append(c.History, imageEvent{never, "ringfence"})
	}
	return c
}

// write writes the archive of the image, as "docker load" reads it.
func (b *derived) write(w io.Writer) error {
	t := tar.NewWriter(w)
	put := func(name string, size int64, from io.Reader) error {
		if err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size, Mode: 0o644, Format: tar.FormatPAX}); err != nil {
			return err
		}
		_, err := io.CopyN(t, from, size)
		return err
	}
	sum := sha256.Sum256(b.config)
	config := hex.EncodeToString(sum[:]) + ".json"
	size, err := b.layer.Seek(0, io.SeekEnd)
	if err != nil {
		return err
	}
	var names []string
	written := map[span]string{}
	for i, part := range append(slices.Clone(b.layers), span{0, size}) {
		name, from := fmt.Sprintf("%d/layer.tar", i), b.base
		if i == len(b.layers) {
			from = b.layer
		} else if was, ok := written[part]; ok {
			names = append(names, was)
			continue
		}
		written[part] = name
		if err := put(name, part.size, io.NewSectionReader(from, part.at, part.size)); err != nil {
			return err
		}
		names = append(names, name)
	}
	manifest, err := json.Marshal([]map[string]any{{"Config": config, "RepoTags": []string{b.Name}, "Layers": names}})
	if err != nil {
		return err
	}
	if err := put(config, int64(len(b.config)), bytes.NewReader(b.config)); err != nil {
		return err
	}
	if err := put("manifest.json", int64(len(manifest)), bytes.NewReader(manifest)); err != nil {
		return err
	}
	return t.Close()
}
