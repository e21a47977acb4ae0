package ipc

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"testing"
)

// countingWriter counts calls.
type countingWriter struct {
	bytes.Buffer
	calls int
}

func (w *countingWriter) Write(p []byte) (int, error) { w.calls++; return w.Buffer.Write(p) }

func TestFrameRoundTrip(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	for _, size := range [][2]int{{0, 0}, {1, 0}, {0, 1}, {300, 2000}, {10, joinLimit}, {70_000, 3 << 20}} {
		var w countingWriter
		header, body := random(size[0]), random(size[1])
		if err := WriteFrame(&w, header, body); err != nil {
			t.Fatal(err)
		}
		if size[0]+size[1] < joinLimit-frameHead && w.calls != 1 {
			t.Errorf("%v: %d writes, want 1", size, w.calls)
		}
		whole := bytes.Clone(w.Bytes())
		h, b, err := ReadFrame(&w, 1<<20, 4<<20)
		if err != nil || !bytes.Equal(h, header) || !bytes.Equal(b, body) {
			t.Errorf("%v: did not come back: %v", size, err)
		}
		if _, _, err := ReadFrame(&w, 1<<20, 4<<20); !errors.Is(err, io.EOF) {
			t.Errorf("%v: at the end: %v, want io.EOF", size, err)
		}
		cut := whole[:rng.IntN(len(whole)-1)+1]
		if _, _, err := ReadFrame(bytes.NewReader(cut), 1<<20, 4<<20); len(cut) < len(whole) && !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%v cut at %d: %v, want io.ErrUnexpectedEOF", size, len(cut), err)
		}
	}
}

func TestFrameLimits(t *testing.T) {
	var w bytes.Buffer
	if err := WriteFrame(&w, make([]byte, 11), make([]byte, 22)); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header, body int
		err          error
	}{{11, 22, nil}, {10, 22, ErrFrameSize}, {11, 21, ErrFrameSize}} {
		if _, _, err := ReadFrame(bytes.NewReader(w.Bytes()), c.header, c.body); !errors.Is(err, c.err) {
			t.Errorf("limits %d, %d: %v, want %v", c.header, c.body, err, c.err)
		}
	}
	lie := []byte{0, 0, 0, 0, 0x7f, 0xff, 0xff, 0xff, 'x'}
	allocated := testing.AllocsPerRun(1, func() {
		if _, _, err := ReadFrame(bytes.NewReader(lie), 0, 1<<31-1); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a body that did not come: %v, want io.ErrUnexpectedEOF", err)
		}
	})
	if allocated > 20 {
		t.Errorf("%v allocations for a body that did not come", allocated)
	}
}

func FuzzReadFrame(f *testing.F) {
	f.Add([]byte{0, 0, 0, 2, 0, 0, 0, 1, '{', '}', 'x'})
	f.Add([]byte{255, 255, 255, 255, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, in []byte) {
		r := bytes.NewReader(in)
		h, b, err := ReadFrame(r, 1<<10, 1<<12)
		if err != nil {
			return
		}
		var w bytes.Buffer
		if err := WriteFrame(&w, h, b); err != nil || !bytes.Equal(w.Bytes(), in[:len(in)-r.Len()]) {
			t.Errorf("frame of %q written back as %q, %v", in, w.Bytes(), err)
		}
	})
}

func BenchmarkFrame(b *testing.B) {
	header, body := make([]byte, 200), make([]byte, 800)
	var pipe bytes.Buffer
	r := bufio.NewReader(&pipe)
	for b.Loop() {
		if err := WriteFrame(&pipe, header, body); err != nil {
			b.Fatal(err)
		}
		if _, _, err := ReadFrame(r, 1<<20, 1<<20); err != nil {
			b.Fatal(err)
		}
	}
}
