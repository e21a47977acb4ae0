package review

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/sys/subtree"
)

// A record says what stood at one path when the workspace was copied.
type record struct {
	live   subtree.Info // in the workspace; Ino 0 if it changed while it was copied
	copied subtree.Info // in the copy, if it is there
	digest string       // SHA-256 of content or target in hex; "" of directories, and of files beyond maxCompare
	left   string       // why it is not in the copy, "" if it is
}

// A manifest is what a workspace had when it was copied.
type manifest struct {
	at map[string]*record  // by path; "." is the workspace
	in map[string][]string // names by directory, "" at the top
}

// maxManifest is how many bytes a manifest may have: of some million paths.
const maxManifest = 1 << 30

// add puts rec at p.
func (m *manifest) add(p string, rec *record) {
	m.at[p] = rec
	if p == "." {
		return
	}
	dir := path.Dir(p)
	if dir == "." {
		dir = ""
	}
	m.in[dir] = append(m.in[dir], path.Base(p))
}

// A scribe writes a manifest, a line for each path.
type scribe struct {
	f *os.File
	w *bufio.Writer
}

func (r *Review) scribe() (*scribe, error) {
	f, err := os.OpenFile(filepath.Join(r.dir, manifestFile), os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, err
	}
	return &scribe{f, bufio.NewWriter(f)}, nil
}

func (s *scribe) write(p string, rec *record) error {
	_, err := s.w.WriteString(encodeRecord(p, rec))
	return err
}

// close puts the manifest on disk, with a last line by which it is known to be whole.
func (s *scribe) close() error {
	_, err := s.w.WriteString(lastLineOf)
	return errors.Join(err, s.w.Flush(), s.f.Sync(), s.f.Close())
}

const lastLineOf = "end\n"

// encodeRecord writes the numbers of both sides, the digest or "-", and as Go strings,
// since names need not be UTF-8, why it was left out and the path.
func encodeRecord(p string, rec *record) string {
	digest := rec.digest
	if digest == "" {
		digest = "-"
	}
	return encodeInfo(rec.live) + encodeInfo(rec.copied) + digest + " " + strconv.Quote(rec.left) + " " + strconv.Quote(p) + "\n"
}

func encodeInfo(i subtree.Info) string {
	return fmt.Sprintf("%d %o %d %d %d %d %d %d %d ", i.Kind, i.Perm, i.Size, nanos(i.Modified), nanos(i.Changed), i.Dev, i.Ino, i.UID, i.GID)
}

// nanos is t in nanoseconds since 1970; what has no such number is told apart from
// nothing but itself.
func nanos(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// decodeInfo takes the words of encodeInfo.
func decodeInfo(w []string) (i subtree.Info, err error) {
	var n [9]uint64
	for k := range n {
		base := 10
		if k == 1 {
			base = 8
		}
		if k == 3 || k == 4 { // before 1970
			var signed int64
			signed, err = strconv.ParseInt(w[k], base, 64)
			n[k] = uint64(signed)
		} else {
			n[k], err = strconv.ParseUint(w[k], base, 64)
		}
		if err != nil {
			return i, err
		}
	}
	if n[0] > uint64(subtree.Null) || n[1] > 0o7777 || n[2] > 1<<62 || n[7] > 1<<32 || n[8] > 1<<32 {
		return i, errors.New("a number is too large")
	}
	return subtree.Info{
		Kind: subtree.Kind(n[0]), Perm: uint32(n[1]), Size: int64(n[2]), Modified: time.Unix(0, int64(n[3])), Changed: time.Unix(0, int64(n[4])),
		Dev: n[5], Ino: n[6], UID: int(n[7]), GID: int(n[8]),
	}, nil
}

func decodeRecord(line string) (p string, rec *record, err error) {
	const numbers = 9
	w := strings.SplitN(line, " ", 2*numbers+2)
	if len(w) < 2*numbers+2 {
		return "", nil, errors.New("words are missing")
	}
	rec = &record{}
	if rec.live, err = decodeInfo(w[:numbers]); err != nil {
		return "", nil, err
	}
	if rec.copied, err = decodeInfo(w[numbers : 2*numbers]); err != nil {
		return "", nil, err
	}
	if rec.digest = w[2*numbers]; rec.digest == "-" {
		rec.digest = ""
	}
	left, err := strconv.QuotedPrefix(w[2*numbers+1])
	if err != nil {
		return "", nil, err
	}
	quoted, ok := strings.CutPrefix(w[2*numbers+1][len(left):], " ")
	if rec.left, err = strconv.Unquote(left); err != nil || !ok {
		return "", nil, errors.New("words are missing")
	}
	if p, err = strconv.Unquote(quoted); err != nil {
		return "", nil, err
	}
	if p == "" || p[0] == '/' || path.Clean(p) != p || p == ".." || strings.HasPrefix(p, "../") || strings.ContainsRune(p, 0) {
		return "", nil, errors.New("it is about no path in a workspace")
	}
	return p, rec, nil
}

// manifest reads what the workspace had when it was copied.
func (r *Review) manifest() (*manifest, error) {
	f, err := os.Open(filepath.Join(r.dir, manifestFile))
	if err != nil {
		return nil, fmt.Errorf("reading what was copied: %w", err)
	}
	defer f.Close()
	m, err := decodeManifest(io.LimitReader(f, maxManifest))
	if err != nil {
		return nil, fmt.Errorf("reading what was copied: %w", err)
	}
	return m, nil
}

// decodeManifest reads a manifest that is whole.
func decodeManifest(from io.Reader) (*manifest, error) {
	m := &manifest{at: map[string]*record{}, in: map[string][]string{}}
	lines := bufio.NewReaderSize(from, 64<<10)
	for {
		line, err := lines.ReadString('\n')
		switch {
		case line == lastLineOf && m.at["."] != nil:
			for _, names := range m.in {
				slices.Sort(names)
			}
			return m, nil
		case err != nil || len(m.at) > maxChanges:
			return nil, errors.New("the manifest is not whole")
		}
		p, rec, err := decodeRecord(strings.TrimSuffix(line, "\n"))
		if err != nil {
			return nil, fmt.Errorf("no such line as %q: %w", line, err)
		}
		if m.at[p] != nil {
			return nil, fmt.Errorf("two lines about %q", p)
		}
		m.add(p, rec)
	}
}
