package filesystem

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"ringfence/internal/sys/inode"
)

type writeArgs struct {
	Path    string  `json:"path"`
	Content *string `json:"content"`
}

func (s *server) writeFile(_ context.Context, in writeArgs) (*mcp.CallToolResult, error) {
	if in.Content == nil {
		return nil, errors.New("content is required")
	}
	s.write.Lock()
	defer s.write.Unlock()
	at, err := s.locate(in.Path, true)
	if err != nil {
		return nil, err
	}
	if err := at.put(strings.NewReader(*in.Content), nil); err != nil {
		return nil, fmt.Errorf("writing %s: %w", in.Path, err)
	}
	return said("Successfully wrote to " + in.Path), nil
}

// put makes content what stands at p: beside it first, then in its place in one
// step. A file that was there must be was, if was is given, and passes on its mode
// and owner; where none was, none may have appeared.
func (p place) put(content io.Reader, was fs.FileInfo) error {
	dir, base, err := p.parent()
	if err != nil {
		return err
	}
	defer dir.Close()
	old, err := dir.Lstat(base)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		old = nil
	case err != nil:
		return reason(err)
	case !old.Mode().IsRegular():
		return notRegular(p.abs(), old)
	}
	if was != nil && (old == nil || !os.SameFile(was, old) || was.Size() != old.Size() || !was.ModTime().Equal(old.ModTime())) {
		return errors.New("the file was changed by somebody else meanwhile; read it again")
	}
	tmp, err := stage(dir, content, old)
	if err != nil {
		return reason(err)
	}
	if old == nil {
		err = renameNew(dir, tmp, dir, base)
	}
	if old != nil || errors.Is(err, errors.ErrUnsupported) {
		err = dir.Rename(tmp, base)
	}
	if err != nil {
		return errors.Join(reason(err), dir.Remove(tmp))
	}
	return nil
}

// stage writes content to a new file in dir and returns its name.
func stage(dir *os.Root, content io.Reader, old fs.FileInfo) (name string, err error) {
	name = ".ringfence-" + rand.Text()
	mode := fs.FileMode(0o666) // before the umask
	if old != nil {
		mode = 0o600 // until it has the owner and mode of old
	}
	f, err := dir.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, mode)
	if err != nil {
		return "", err
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			err = errors.Join(err, dir.Remove(name))
		}
	}()
	if _, err := io.Copy(f, content); err != nil {
		return "", err
	}
	if old == nil {
		return name, nil
	}
	// An owner that we may not give is no reason to refuse the write: the file is
	// then ours, as with any editor. Set-id bits end with the old content.
	_ = inode.KeepOwner(f, old)
	return name, f.Chmod(old.Mode().Perm())
}

// renameNew renames an entry of dir to one of toDir and replaces nothing. The error
// is errors.ErrUnsupported on file systems that have no such step; the caller has
// looked before, and renames as it can.
func renameNew(dir *os.Root, from string, toDir *os.Root, to string) error {
	a, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := toDir.Open(".")
	if err != nil {
		return err
	}
	defer b.Close()
	return inode.RenameNoReplace(a, from, b, to)
}

func (s *server) createDirectory(_ context.Context, in pathArgs) (*mcp.CallToolResult, error) {
	s.write.Lock()
	defer s.write.Unlock()
	at, err := s.locate(in.Path, true)
	if err != nil {
		return nil, err
	}
	if err := at.root.handle.MkdirAll(at.rel, 0o777); err != nil {
		return nil, fmt.Errorf("creating directory %s: %w", in.Path, reason(err))
	}
	return said("Successfully created directory " + in.Path), nil
}

type moveArgs struct {
	Source      string `json:"source"`
	Destination string `json:"destination"`
}

func (s *server) moveFile(_ context.Context, in moveArgs) (*mcp.CallToolResult, error) {
	s.write.Lock()
	defer s.write.Unlock()
	if in.Source == "" || in.Destination == "" {
		return nil, errors.New("source and destination are required")
	}
	from, err := s.locate(in.Source, false)
	if err != nil {
		return nil, err
	}
	to, err := s.locate(in.Destination, false)
	if err != nil {
		return nil, err
	}
	if err := move(from, to); err != nil {
		return nil, fmt.Errorf("moving %s to %s: %w", in.Source, in.Destination, err)
	}
	return said(fmt.Sprintf("Successfully moved %s to %s", in.Source, in.Destination)), nil
}

func move(from, to place) error {
	dir, base, err := from.parent()
	if err != nil {
		return err
	}
	defer dir.Close()
	toDir, toBase, err := to.parent()
	if err != nil {
		return err
	}
	defer toDir.Close()
	fi, err := dir.Lstat(base)
	if err != nil {
		return reason(err)
	}
	if _, err := toDir.Lstat(toBase); err == nil {
		return errors.New("destination already exists")
	}
	err = renameNew(dir, base, toDir, toBase)
	if errors.Is(err, errors.ErrUnsupported) && from.root == to.root {
		err = from.root.handle.Rename(from.rel, to.rel)
	}
	switch {
	case errors.Is(err, fs.ErrExist):
		return errors.New("destination already exists")
	case !errors.Is(err, errors.ErrUnsupported) && !errors.Is(err, syscall.EXDEV):
		return reason(err)
	case !fi.Mode().IsRegular():
		return fmt.Errorf("only files can be moved there: %w", reason(err))
	}
	return copyOver(dir, base, to)
}

// copyOver moves a file where no rename can: it copies and then removes.
func copyOver(dir *os.Root, base string, to place) error {
	f, err := dir.Open(base)
	if err != nil {
		return reason(err)
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil || !fi.Mode().IsRegular() {
		return errors.New("the source changed meanwhile")
	}
	if err := to.put(f, nil); err != nil {
		return err
	}
	copied, err := to.root.handle.OpenFile(to.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return reason(err)
	}
	defer copied.Close()
	if err := copied.Chmod(fi.Mode().Perm()); err != nil {
		return reason(err)
	}
	return reason(dir.Remove(base))
}

func (s *server) deleteFile(_ context.Context, in pathArgs) (*mcp.CallToolResult, error) {
	s.write.Lock()
	defer s.write.Unlock()
	at, err := s.locate(in.Path, false)
	if err != nil {
		return nil, err
	}
	dir, base, err := at.parent()
	if err != nil {
		return nil, fmt.Errorf("deleting %s: %w", in.Path, err)
	}
	defer dir.Close()
	fi, err := dir.Lstat(base)
	if err != nil {
		return nil, fmt.Errorf("deleting %s: %w", in.Path, reason(err))
	}
	if !fi.Mode().IsRegular() && fi.Mode()&fs.ModeSymlink == 0 {
		return nil, fmt.Errorf("deleting %s: only files and symbolic links are deleted, this is %s", in.Path, fi.Mode().Type())
	}
	if err := dir.Remove(base); err != nil {
		return nil, fmt.Errorf("deleting %s: %w", in.Path, reason(err))
	}
	return said("Successfully deleted " + in.Path), nil
}
