package container

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

// TestDerive: the same layer on the same base is the same image, another is another; what
// is in the layer is in a box, and an image that is removed is gone.
func TestDerive(t *testing.T) {
	const label = "ringfence.test"
	for engine, tier := range engines(t) {
		t.Run(engine, func(t *testing.T) {
			base, err := tier.Image(t.Context(), os.Getenv("RINGFENCE_TEST_IMAGE"))
			if err != nil || base.Arch == "" {
				t.Fatal(base, err)
			}
			make := func(text string) Image {
				made, err := tier.Derive(t.Context(), Derivation{
					Base: base, Name: "localhost/ringfence-derived:" + text, Labels: map[string]string{label: text}, Search: "/opt/t:/bin", Dir: t.TempDir(),
					Layer: func(w io.Writer) error {
						l := tar.NewWriter(w)
						err := l.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: "opt/t/hello", Mode: 0o644, Size: int64(len(text))})
						_, more := io.WriteString(l, text)
						return errors.Join(err, more, l.Close())
					},
				})
				if err != nil {
					t.Fatal(err)
				}
				return made
			}
			first, other, again := make("one"), make("other"), make("one")
			if first.ID != again.ID || first.ID == other.ID || first.ID == base.ID || !maps.Equal(first.Labels, map[string]string{label: "one"}) {
				t.Errorf("made %+v, %+v, %+v", first, other, again)
			}
			if all, err := tier.Images(t.Context(), label); err != nil || len(all) != 2 {
				t.Errorf("%+v, %v", all, err)
			}
			o := tier.o
			o.Image, o.Dir = "localhost/ringfence-derived:one", t.TempDir()
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			s := sh("cat /opt/t/hello; echo $FROM_IMAGE; [ -d /data ] || echo no volume; id -u")
			s.Stdout = out
			box, err := New(o).Start(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			exit, err := box.Wait()
			said, rerr := os.ReadFile(out.Name())
			if err != nil || rerr != nil || exit.Code != 0 || string(said) != "one\nno volume\n65534\n" {
				t.Errorf("%+v, %v, %q", exit, err, said)
			}
			for _, i := range []Image{first, other, first} {
				if err := tier.RemoveImage(t.Context(), i); err != nil {
					t.Error(err)
				}
			}
			if all, err := tier.Images(t.Context(), label); err != nil || len(all) > 0 {
				t.Errorf("left are %+v, %v", all, err)
			}
			if _, err := tier.Image(t.Context(), "localhost/ringfence-derived:one"); err == nil {
				t.Error("an image that was removed is there")
			}
			wrong := errors.New("no layer")
			_, err = tier.Derive(t.Context(), Derivation{Base: base, Name: "localhost/ringfence-derived:two", Layer: func(io.Writer) error { return wrong }})
			if !errors.Is(err, wrong) {
				t.Errorf("%v", err)
			}
		})
	}
}
