package filesystem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/sys/inode"
)

// entries lists the directory at name in the order of names, with at most max
// entries; more says that there are others.
func (s *server) entries(name string, max int) (at place, list []fs.DirEntry, more bool, err error) {
	at, err = s.locate(name, true)
	if err != nil {
		return at, nil, false, err
	}
	list, more, err = readDir(at.root.handle, at.rel, max)
	if err != nil {
		return at, nil, false, fmt.Errorf("listing %s: %w", name, reason(err))
	}
	return at, list, more, nil
}

func readDir(r *os.Root, rel string, max int) (list []fs.DirEntry, more bool, err error) {
	// Asked first, because opening something that is no directory may have effects.
	if fi, err := r.Stat(rel); err != nil {
		return nil, false, err
	} else if !fi.IsDir() {
		return nil, false, errors.New("not a directory")
	}
	d, err := r.Open(rel)
	if err != nil {
		return nil, false, err
	}
	defer d.Close()
	for len(list) <= max {
		part, err := d.ReadDir(1024)
		list = append(list, part...)
		if err == io.EOF {
			break
		}
		if err != nil {
			return nil, false, err
		}
	}
	if len(list) > max {
		list, more = list[:max], true
	}
	slices.SortFunc(list, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	return list, more, nil
}

func cutShort(more bool, what string, n int) string {
	if !more {
		return ""
	}
	return fmt.Sprintf("Cut short: there are more than %d %s. Ask for a smaller part.", n, what)
}

func mark(e fs.DirEntry) string {
	if e.IsDir() {
		return "[DIR]"
	}
	return "[FILE]"
}

func (s *server) listDirectory(_ context.Context, in pathArgs) (*mcp.CallToolResult, error) {
	_, list, more, err := s.entries(in.Path, maxResults)
	if err != nil {
		return nil, err
	}
	lines := make([]string, len(list))
	for i, e := range list {
		lines[i] = mark(e) + " " + e.Name()
	}
	return said(strings.Join(lines, "\n"), cutShort(more, "entries", maxResults)), nil
}

type sizesArgs struct {
	Path   string `json:"path"`
	SortBy string `json:"sortBy"`
}

func (s *server) listWithSizes(_ context.Context, in sizesArgs) (*mcp.CallToolResult, error) {
	if in.SortBy != "" && in.SortBy != "name" && in.SortBy != "size" {
		return nil, fmt.Errorf("sortBy is %q, must be name or size", in.SortBy)
	}
	at, list, more, err := s.entries(in.Path, maxResults)
	if err != nil {
		return nil, err
	}
	type sized struct {
		fs.DirEntry
		size int64
	}
	all := make([]sized, len(list))
	var total int64
	files := 0
	for i, e := range list {
		all[i] = sized{e, sizeOf(at, e)}
		if !e.IsDir() {
			files++
			total += all[i].size
		}
	}
	if in.SortBy == "size" {
		slices.SortStableFunc(all, func(a, b sized) int { return cmp.Compare(b.size, a.size) })
	}
	var lines []string
	for _, e := range all {
		size := ""
		if !e.IsDir() {
			size = fmt.Sprintf("%10s", humanSize(e.size))
		}
		lines = append(lines, fmt.Sprintf("%s %-30s %s", mark(e), e.Name(), size))
	}
	lines = append(lines, "", fmt.Sprintf("Total: %d files, %d directories", files, len(all)-files), "Combined size: "+humanSize(total))
	return said(strings.Join(lines, "\n"), cutShort(more, "entries", maxResults)), nil
}

// sizeOf returns the size of what e leads to; 0 if that is out of reach.
func sizeOf(dir place, e fs.DirEntry) int64 {
	fi, err := dir.root.handle.Stat(dir.rel + slash + e.Name())
	if err != nil {
		return 0
	}
	return fi.Size()
}

// humanSize prints n as the well-known server does: "0 B", "512 B", "1.50 KB".
func humanSize(n int64) string {
	units := []string{"B", "KB", "MB", "GB", "TB"}
	if n < 1024 {
		return fmt.Sprintf("%d B", max(0, n))
	}
	i := min(int(math.Log(float64(n))/math.Log(1024)), len(units)-1)
	return fmt.Sprintf("%.2f %s", float64(n)/math.Pow(1024, float64(i)), units[i])
}

// stamp is how JavaScript prints a date, which is what agents expect here.
const stamp = "Mon Jan 02 2006 15:04:05 GMT-0700 (Coordinated Universal Time)"

func (s *server) fileInfo(_ context.Context, in pathArgs) (*mcp.CallToolResult, error) {
	at, err := s.locate(in.Path, true)
	if err != nil {
		return nil, err
	}
	fi, err := at.root.handle.Stat(at.rel)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Path, reason(err))
	}
	t := s.times(at, fi)
	when := func(t time.Time) string {
		if t.IsZero() {
			return "unknown"
		}
		return t.UTC().Format(stamp)
	}
	return said(fmt.Sprintf("size: %d\ncreated: %s\nmodified: %s\naccessed: %s\nisDirectory: %t\nisFile: %t\npermissions: %03o",
		fi.Size(), when(t.Born), when(fi.ModTime()), when(t.Accessed), fi.IsDir(), fi.Mode().IsRegular(), fi.Mode().Perm())), nil
}

// times returns what is known; to know, the file must be opened, which is only done
// with what has no effects when opened.
func (s *server) times(at place, fi fs.FileInfo) inode.Times {
	if !fi.IsDir() && !fi.Mode().IsRegular() {
		return inode.Times{}
	}
	f, err := at.root.handle.Open(at.rel)
	if err != nil {
		return inode.Times{}
	}
	defer f.Close()
	t, err := inode.TimesOf(f)
	if err != nil {
		return inode.Times{}
	}
	return t
}

type noArgs struct{}

func (s *server) listAllowed(context.Context, noArgs) (*mcp.CallToolResult, error) {
	return said("Allowed directories:\n" + strings.Join(s.allowed(), "\n")), nil
}
