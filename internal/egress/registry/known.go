package registry

import (
	"bytes"
	"crypto/sha1" // old versions on npm have no other hash
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	stdhash "hash"
	"io"
	"strings"
	"time"

	"ringfence/internal/act"
)

// maxRemembered is how many files of packages are remembered; the oldest go first, and
// what is gone is read again from the registry's metadata.
const maxRemembered = 1 << 16

// rememberedFor is how long what metadata said is taken as true.
const rememberedFor = time.Hour

// known is what metadata said of a file.
type known struct {
	pkg   version
	asked time.Time
}

// remember takes in what metadata said of the files of a package.
func (h *Handler) remember(p Place, versions []version) {
	now := h.o.Now()
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, v := range versions {
		if v.file == "" {
			continue
		}
		key := keyOf(p, v.file)
		if _, old := h.files[key]; !old {
			h.order = append(h.order, key)
		}
		h.files[key] = known{v, now}
	}
	for len(h.order) > maxRemembered {
		delete(h.files, h.order[0])
		h.order = h.order[1:]
	}
}

// keyOf is what a file of a registry is remembered by. Where that is no address it is of
// that registry alone: what one says of a version is not what another has.
func keyOf(p Place, file string) string {
	if p.Ecosystem == PyPI || p.Ecosystem == Cargo {
		return string(p.Ecosystem) + " " + file
	}
	return string(p.Ecosystem) + " " + p.URL.String() + " " + file
}

// known returns what metadata said of a file, if it is remembered.
func (h *Handler) known(p Place, file string) (version, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	k, ok := h.files[keyOf(p, file)]
	if !ok || h.o.Now().Sub(k.asked) > rememberedFor {
		return version{}, false
	}
	return k.pkg, true
}

// resource is v as an effect is on it. A time that is not known, or lies ahead, gives
// no age.
func (v version) resource(e Ecosystem, now time.Time) act.Resource {
	text := string(e) + ":" + v.name
	if v.version != "" {
		text += "@" + v.version
	}
	r := act.Resource{Type: act.Package, Text: text}
	if age := now.Sub(v.published); !v.published.IsZero() && age >= 0 {
		r.Facts = map[string]any{act.FactAgeHours: int64(age / time.Hour)}
	}
	return r
}

// A hash is what the bytes of a file must come to.
type hash struct {
	kind string // "sha512", "sha256", "sha1"; "" is none
	sum  []byte
}

func (h hash) start() stdhash.Hash {
	switch h.kind {
	case "sha512":
		return sha512.New()
	case "sha256":
		return sha256.New()
	case "sha1":
		return sha1.New()
	}
	return nil
}

// hexHash is a hash written in hexadecimal; anything else is none.
func hexHash(kind, s string) hash {
	sum, err := hex.DecodeString(s)
	h := hash{kind, sum}
	if f := h.start(); err != nil || f == nil || f.Size() != len(sum) {
		return hash{}
	}
	return h
}

// integrity reads subresource integrity (https://www.w3.org/TR/sri-2/) and returns the
// strongest hash that is known here.
func integrity(s string) (best hash) {
	for one := range strings.FieldsSeq(s) {
		kind, sum, _ := strings.Cut(one, "-")
		sum, _, _ = strings.Cut(sum, "?")
		raw, err := base64.StdEncoding.DecodeString(sum)
		h := hash{kind, raw}
		if f := h.start(); err != nil || f == nil || f.Size() != len(raw) {
			continue
		}
		if len(h.sum) > len(best.sum) {
			best = h
		}
	}
	return best
}

// errHash says that a file is not the one that metadata promised.
var errHash = errors.New("the file is not the one that the registry's metadata names: its hash differs")

// heldBack is how many of the last bytes of a file wait for its hash.
const heldBack = 4 << 10

// copyChecked copies src to dst and holds the last bytes back until the hash of all is
// right. It returns how many bytes it wrote.
func copyChecked(dst io.Writer, src io.Reader, want hash) (n int64, err error) {
	sum := want.start()
	if sum == nil {
		return io.Copy(dst, src)
	}
	buf := make([]byte, 64<<10)
	held := 0
	for {
		got, readErr := src.Read(buf[held:])
		sum.Write(buf[held : held+got])
		held += got
		if readErr == nil && held > heldBack {
			wrote, err := dst.Write(buf[:held-heldBack])
			n += int64(wrote)
			if err != nil {
				return n, err
			}
			held = copy(buf, buf[held-heldBack:held])
		}
		if readErr == io.EOF {
			break
		}
		if readErr != nil {
			return n, readErr
		}
	}
	if !bytes.Equal(sum.Sum(nil), want.sum) {
		return n, errHash
	}
	wrote, err := dst.Write(buf[:held])
	return n + int64(wrote), err
}
