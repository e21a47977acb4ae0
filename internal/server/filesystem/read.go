package filesystem

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

type readArgs struct {
	Path string   `json:"path"`
	Head *float64 `json:"head"`
	Tail *float64 `json:"tail"`
}

func (s *server) readText(_ context.Context, in readArgs) (*mcp.CallToolResult, error) {
	head, err := lines("head", in.Head)
	if err != nil {
		return nil, err
	}
	tail, err := lines("tail", in.Tail)
	if err != nil {
		return nil, err
	}
	if head > 0 && tail > 0 {
		return nil, errors.New("head and tail cannot be given together")
	}
	f, fi, err := s.openRegular(in.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	var text string
	switch {
	case head > 0:
		text, err = firstLines(f, head)
	case tail > 0:
		text, err = lastLines(f, fi.Size(), tail)
	default:
		text, err = wholeText(f, fi.Size())
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Path, reason(err))
	}
	return said(text), nil
}

// lines returns a number of lines, 0 for "not given". As in the well-known server,
// 0 is not given either.
func lines(name string, n *float64) (int, error) {
	if n == nil {
		return 0, nil
	}
	if *n < 0 || *n != math.Trunc(*n) || *n > math.MaxInt32 {
		return 0, fmt.Errorf("%s must be a whole number of lines, not %v", name, *n)
	}
	return int(*n), nil
}

// openRegular opens the regular file at name for reading. O_NONBLOCK keeps the open
// from waiting for the other end of a pipe that was put there meanwhile.
func (s *server) openRegular(name string) (*os.File, fs.FileInfo, error) {
	at, err := s.locate(name, true)
	if err != nil {
		return nil, nil, err
	}
	if fi, err := at.root.handle.Lstat(at.rel); err == nil && !fi.Mode().IsRegular() {
		return nil, nil, notRegular(name, fi)
	}
	f, err := at.root.handle.OpenFile(at.rel, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, reason(err))
	}
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = notRegular(name, fi)
	}
	if err != nil {
		f.Close()
		return nil, nil, err
	}
	return f, fi, nil
}

func notRegular(name string, fi fs.FileInfo) error {
	if fi.IsDir() {
		return fmt.Errorf("%s is a directory; list_directory lists it", name)
	}
	return fmt.Errorf("%s is not a regular file (%s)", name, fi.Mode().Type())
}

func wholeText(f io.Reader, size int64) (string, error) {
	tooLarge := func(n int64) error {
		return fmt.Errorf("the file has %d bytes, more than the %d that are read at once; use head or tail", n, maxText)
	}
	if size > maxText {
		return "", tooLarge(size)
	}
	// The size is a hint: the file may grow, and files made by the kernel have none.
	b, err := io.ReadAll(io.LimitReader(f, maxText+1))
	if err != nil {
		return "", err
	}
	if len(b) > maxText {
		return "", tooLarge(int64(len(b)))
	}
	return asText(b)
}

// asText returns b as valid UTF-8. What cannot be text, because it holds a NUL, is
// an error: an agent can do nothing with it.
func asText(b []byte) (string, error) {
	if bytes.IndexByte(b, 0) >= 0 {
		return "", errors.New("this is a binary file; read_media_file returns it in base64")
	}
	return strings.ToValidUTF8(string(b), "\uFFFD"), nil
}

func firstLines(f io.Reader, n int) (string, error) {
	r := bufio.NewReader(f)
	var b bytes.Buffer
	for range n {
		for more := true; more; {
			part, err := r.ReadSlice('\n')
			b.Write(part)
			if b.Len() > maxText {
				return "", fmt.Errorf("these lines have more than %d bytes; ask for fewer", maxText)
			}
			if errors.Is(err, io.EOF) {
				return asText(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}))
			}
			more = errors.Is(err, bufio.ErrBufferFull)
			if err != nil && !more {
				return "", err
			}
		}
	}
	return asText(bytes.TrimSuffix(b.Bytes(), []byte{'\n'}))
}

// lastLines reads backwards from the end in blocks until it has n lines. A line
// break at the very end ends the last line; it does not begin another.
func lastLines(f io.ReaderAt, size int64, n int) (string, error) {
	const block = 64 << 10
	var got []byte
	for at := size; at > 0; {
		step := min(int64(block), at)
		at -= step
		part := make([]byte, step, step+int64(len(got)))
		if _, err := f.ReadAt(part, at); err != nil && err != io.EOF {
			return "", err
		}
		got = append(part, got...)
		if start, ok := startOfLast(got, n); ok {
			got = got[start:]
			break
		}
		if len(got) > maxText {
			break
		}
	}
	if len(got) > maxText {
		return "", fmt.Errorf("these lines have more than %d bytes; ask for fewer", maxText)
	}
	return asText(bytes.TrimSuffix(got, []byte{'\n'}))
}

// startOfLast returns where the last n lines of b begin, if b holds that many.
func startOfLast(b []byte, n int) (int, bool) {
	end := len(bytes.TrimSuffix(b, []byte{'\n'}))
	for range n {
		end = bytes.LastIndexByte(b[:end], '\n')
		if end < 0 {
			return 0, false
		}
	}
	return end + 1, true
}

type pathArgs struct {
	Path string `json:"path"`
}

// mediaTypes are those of the well-known server; anything else is
// application/octet-stream.
var mediaTypes = map[string]string{
	".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif",
	".webp": "image/webp", ".bmp": "image/bmp", ".svg": "image/svg+xml",
	".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".flac": "audio/flac",
}

func (s *server) readMedia(_ context.Context, in pathArgs) (*mcp.CallToolResult, error) {
	f, fi, err := s.openRegular(in.Path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if fi.Size() > maxMedia {
		return nil, fmt.Errorf("%s has %d bytes, more than the %d that can be returned", in.Path, fi.Size(), maxMedia)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxMedia+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", in.Path, reason(err))
	}
	if len(b) > maxMedia {
		return nil, fmt.Errorf("%s grew beyond the %d bytes that can be returned", in.Path, maxMedia)
	}
	var c mcp.Content
	switch t := mediaTypes[strings.ToLower(filepath.Ext(in.Path))]; {
	case strings.HasPrefix(t, "image/"):
		c = &mcp.ImageContent{Data: b, MIMEType: t}
	case strings.HasPrefix(t, "audio/"):
		c = &mcp.AudioContent{Data: b, MIMEType: t}
	default:
		uri := url.URL{Scheme: "file", Path: filepath.ToSlash(in.Path)}
		c = &mcp.EmbeddedResource{Resource: &mcp.ResourceContents{URI: uri.String(), MIMEType: "application/octet-stream", Blob: b}}
	}
	return &mcp.CallToolResult{Content: []mcp.Content{c}}, nil
}

type pathsArgs struct {
	Paths []string `json:"paths"`
}

func (s *server) readMultiple(ctx context.Context, in pathsArgs) (*mcp.CallToolResult, error) {
	if len(in.Paths) == 0 || len(in.Paths) > maxFiles {
		return nil, fmt.Errorf("paths must name between 1 and %d files, not %d", maxFiles, len(in.Paths))
	}
	left := maxText
	texts := make([]string, len(in.Paths))
	for i, p := range in.Paths {
		if err := ctx.Err(); err != nil {
			return nil, fmt.Errorf("reading files: %w", err)
		}
		text, err := s.readOne(p, left)
		if err != nil {
			texts[i] = fmt.Sprintf("%s: Error - %v", p, err)
			continue
		}
		left -= len(text)
		texts[i] = fmt.Sprintf("%s:\n%s\n", p, text)
	}
	return said(strings.Join(texts, "\n---\n")), nil
}

func (s *server) readOne(name string, left int) (string, error) {
	f, fi, err := s.openRegular(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := wholeText(f, fi.Size())
	if err != nil {
		return "", reason(err)
	}
	if len(text) > left {
		return "", fmt.Errorf("with this file the answer exceeds %d bytes; read it in a call of its own", maxText)
	}
	return text, nil
}
