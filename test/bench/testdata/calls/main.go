// Command calls makes system calls when it is told to: of every line "WHAT TIMES
// FILE" on its input it does WHAT so many times with FILE, and then says so.
package main

import (
	"bufio"
	"fmt"
	"os"
	"syscall"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "calls:", err)
		os.Exit(1)
	}
}

func serve() error {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		var what, file string
		var times int
		if _, err := fmt.Sscan(in.Text(), &what, &times, &file); err != nil {
			return err
		}
		do := open
		if what == "make" {
			do = create
		}
		for range times {
			if err := do(file); err != nil {
				return err
			}
		}
		if _, err := fmt.Println("done"); err != nil {
			return err
		}
	}
	return in.Err()
}

// open opens a file for reading, and closes it.
func open(file string) error {
	fd, err := syscall.Open(file, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	return syscall.Close(fd)
}

var line = []byte("one line of text\n")

// create makes a file, writes a line to it, and removes it.
func create(file string) error {
	fd, err := syscall.Open(file, syscall.O_WRONLY|syscall.O_CREAT|syscall.O_EXCL|syscall.O_CLOEXEC, 0o600)
	if err != nil {
		return err
	}
	if _, err := syscall.Write(fd, line); err != nil {
		return err
	}
	if err := syscall.Close(fd); err != nil {
		return err
	}
	return syscall.Unlink(file)
}
