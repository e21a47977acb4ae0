package review

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"ringfence/internal/act/strictjson"
)

// An identity is that of a directory: device and inode.
type identity struct{ dev, ino uint64 }

// meta is the content of meta.json.
type meta struct {
	Version   int    `json:"version"` // metaVersion
	ID        string `json:"id"`
	Workspace string `json:"workspace"`
	Session   string `json:"session,omitempty"`
	Began     string `json:"began"` // RFC 3339 with nanoseconds, UTC
	// Numbers beyond 2^53 are no JSON numbers that all read alike.
	Device string `json:"device"`
	Inode  string `json:"inode"`
	UID    int    `json:"uid"`
	GID    int    `json:"gid"`
	Copy   string `json:"copy,omitempty"` // why it is of a copy; it is of an overlay without
	Left   int    `json:"left_out,omitempty"`
}

const (
	metaVersion = 1
	maxMeta     = 64 << 10 // bytes
)

var idForm = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^r-[a-z2-7]{6}$`) })

func validID(id string) bool { return idForm().MatchString(id) }

func encodeMeta(r *Review) ([]byte, error) {
	return json.Marshal(meta{
		metaVersion, r.ID, r.Workspace, r.Session, r.Began.UTC().Format(time.RFC3339Nano),
		strconv.FormatUint(r.root.dev, 10), strconv.FormatUint(r.root.ino, 10), r.uid, r.gid, r.Because, r.LeftOut,
	})
}

func decodeMeta(raw []byte) (*Review, error) {
	if len(raw) > maxMeta {
		return nil, fmt.Errorf("a description of %d bytes, at most %d", len(raw), maxMeta)
	}
	var m meta
	if err := strictjson.Unmarshal(raw, &m); err != nil {
		return nil, err
	}
	began, terr := time.Parse(time.RFC3339Nano, m.Began)
	dev, derr := strconv.ParseUint(m.Device, 10, 64)
	ino, ierr := strconv.ParseUint(m.Inode, 10, 64)
	switch err := errors.Join(terr, derr, ierr); {
	case err != nil:
		return nil, err
	case m.Version != metaVersion:
		return nil, fmt.Errorf("version %d of a review; this program knows %d", m.Version, metaVersion)
	case !validID(m.ID):
		return nil, fmt.Errorf("%q is no id of a review", m.ID)
	case !filepath.IsAbs(m.Workspace) || filepath.Clean(m.Workspace) != m.Workspace || strings.ContainsRune(m.Workspace, 0):
		return nil, fmt.Errorf("%q is no workspace", m.Workspace)
	case m.UID < 0 || m.GID < 0 || m.Left < 0 || began.Year() < 1970 || began.Year() > 9999:
		return nil, errors.New("the description is malformed")
	}
	return &Review{
		ID: m.ID, Workspace: m.Workspace, Session: m.Session, Began: began.UTC(),
		root: identity{dev, ino}, uid: m.UID, gid: m.GID, Because: m.Copy, LeftOut: m.Left,
	}, nil
}

// A done is what became of changes: by path, what was done with each.
type done map[string]string

// What a line of the file "done" begins with.
const (
	begun        = "begun" // there was no conflict, and now it is being applied
	clean        = "clean" // there was no conflict when others began to be applied
	wasApplied   = "applied"
	wasDiscarded = "discarded"
)

// maxDone is how many bytes the file "done" may have: of some million paths.
const maxDone = 1 << 30

// done reads what became of the changes of r so far. A last line that was cut off by
// a crash counts for nothing.
func (r *Review) done() (done, error) {
	f, err := os.Open(filepath.Join(r.dir, doneFile))
	if errors.Is(err, os.ErrNotExist) {
		return done{}, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxDone {
		return nil, fmt.Errorf("reading what became of changes: %d bytes, at most %d", info.Size(), maxDone)
	}
	raw := make([]byte, info.Size())
	if _, err := f.ReadAt(raw, 0); err != nil && len(raw) > 0 {
		return nil, err
	}
	return decodeDone(string(raw))
}

// decodeDone reads lines of a word, a space and a path that is quoted as in Go, since
// names need not be UTF-8.
func decodeDone(text string) (done, error) {
	d := done{}
	for line := range strings.Lines(text) {
		full := strings.HasSuffix(line, "\n")
		what, quoted, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
		path, err := strconv.Unquote(quoted)
		switch {
		case !full:
			return d, nil
		case err != nil || what != begun && what != clean && what != wasApplied && what != wasDiscarded:
			return nil, fmt.Errorf("reading what became of changes: no such line as %q", line)
		}
		d[path] = what
	}
	return d, nil
}

// A journal appends to the file "done".
type journal struct{ f *os.File }

func (r *Review) journal() (*journal, error) {
	f, err := os.OpenFile(filepath.Join(r.dir, doneFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	// What a crash left of a line would make one with the next.
	end, err := lastLine(f)
	if err == nil {
		err = f.Truncate(end)
	}
	if err == nil {
		_, err = f.Seek(end, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &journal{f}, nil
}

// lastLine returns where the last whole line of f ends.
func lastLine(f *os.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	const most = 1 << 20 // no line is longer: maxDepth names of 255 bytes, each four bytes at most
	from := max(0, info.Size()-most)
	tail := make([]byte, info.Size()-from)
	if _, err := f.ReadAt(tail, from); err != nil && len(tail) > 0 {
		return 0, err
	}
	return from + int64(strings.LastIndexByte(string(tail), '\n')+1), nil
}

// note adds a line for each change, and puts them on disk.
func (j *journal) note(what string, changes []Change) error {
	if len(changes) == 0 {
		return nil
	}
	w := bufio.NewWriter(j.f)
	for _, c := range changes {
		if _, err := w.WriteString(what + " " + strconv.Quote(c.Path) + "\n"); err != nil {
			return err
		}
	}
	return errors.Join(w.Flush(), j.f.Sync())
}

func (j *journal) close() error { return j.f.Close() }
