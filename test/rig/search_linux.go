package rig

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Forms returns value as it could have been written down: as it is, in hexadecimal, and
// within base64 at each alignment.
func Forms(value string) [][]byte {
	forms := [][]byte{[]byte(value), []byte(hex.EncodeToString([]byte(value)))}
	for shift := range 3 {
		text := base64.RawStdEncoding.EncodeToString([]byte("abc"[:shift] + value))
		forms = append(forms, []byte(text[(8*shift+5)/6:8*(shift+len(value))/6]))
	}
	return forms
}

// InFiles returns the files below everything that h has – ledger, logs, sessions, the
// workspace – in which one of forms is.
func (h *Home) InFiles(forms [][]byte) (found []string, err error) {
	err = filepath.WalkDir(h.dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // it was removed meanwhile
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer f.Close()
		holds, err := holds(f, forms)
		if holds {
			found = append(found, path)
		}
		return err
	})
	return found, err
}

// holds reports whether one of forms is in what r gives.
func holds(r io.Reader, forms [][]byte) (bool, error) {
	const piece, overlap = 1 << 20, 64 << 10
	buf := make([]byte, 0, piece+overlap)
	for {
		n, err := io.ReadFull(r, buf[len(buf):cap(buf)])
		buf = buf[:len(buf)+n]
		for _, f := range forms {
			if bytes.Contains(buf, f) {
				return true, nil
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		buf = buf[:copy(buf, buf[max(0, len(buf)-overlap):])]
	}
}

// InBoxes looks through the environment, the arguments and the memory of every process
// that is in another pid namespace than this one and is a descendant of pid. It returns
// where one of forms is, and how many processes it looked at. It needs to be root.
func InBoxes(pid int, forms [][]byte) (found []string, looked int, err error) {
	own, err := os.Readlink("/proc/self/ns/pid")
	if err != nil {
		return nil, 0, fmt.Errorf("looking through boxes: %w", err)
	}
	for _, p := range descendants(pid) {
		ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", p))
		if err != nil || ns == own {
			continue // it ended, or is none of a box
		}
		looked++
		for _, name := range []string{"environ", "cmdline"} {
			data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", p, name))
			if in, _ := holds(bytes.NewReader(data), forms); err == nil && in {
				found = append(found, fmt.Sprintf("%d/%s", p, name))
			}
		}
		if inMemory(p, forms) {
			found = append(found, fmt.Sprintf("%d/mem", p))
		}
	}
	return found, looked, nil
}

// inMemory reports whether one of forms is in memory that p can read.
func inMemory(p int, forms [][]byte) bool {
	maps, err := os.Open(fmt.Sprintf("/proc/%d/maps", p))
	if err != nil {
		return false
	}
	defer maps.Close()
	mem, err := os.Open(fmt.Sprintf("/proc/%d/mem", p))
	if err != nil {
		return false
	}
	defer mem.Close()
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		from, to, _ := strings.Cut(fields[0], "-")
		start, err1 := strconv.ParseUint(from, 16, 63)
		end, err2 := strconv.ParseUint(to, 16, 63)
		if err1 != nil || err2 != nil || !strings.HasPrefix(fields[1], "r") {
			continue
		}
		if in, _ := holds(io.NewSectionReader(mem, int64(start), int64(end-start)), forms); in { // what cannot be read is not the process's own
			return true
		}
	}
	return false
}

// descendants returns the processes below pid.
func descendants(pid int) (all []int) {
	parents := map[int][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	for _, e := range entries {
		p, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			continue
		}
		_, rest, _ := strings.Cut(string(stat[bytes.LastIndexByte(stat, ')'):]), " ")
		if fields := strings.Fields(rest); len(fields) > 1 {
			parent, _ := strconv.Atoi(fields[1])
			parents[parent] = append(parents[parent], p)
		}
	}
	for next := []int{pid}; len(next) > 0; next = next[1:] {
		children := parents[next[0]]
		all, next = append(all, children...), append(next, children...)
	}
	return all
}
