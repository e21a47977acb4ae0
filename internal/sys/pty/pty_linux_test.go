package pty

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// childEnv makes the test binary the process at the terminal.
const childEnv = "RINGFENCE_TEST_AT_TERMINAL"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) == "" {
		os.Exit(m.Run())
	}
	child := atTerminal
	if os.Getenv(childEnv) == "relay" {
		child = relay
	}
	if err := child(); err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
}

// atTerminal discards what was typed before, reads a line, and waits for another
// until the deadline.
func atTerminal() error {
	t, err := Controlling()
	if err != nil {
		return err
	}
	defer t.Close()
	fmt.Println("ready")
	// The parent has typed when it closes our standard input.
	if _, err := bufio.NewReader(os.Stdin).ReadString(0); err == nil {
		return errors.New("nobody closed standard input")
	}
	if err := t.Discard(); err != nil {
		return err
	}
	fmt.Println("discarded")
	line, err := bufio.NewReader(t).ReadString('\n')
	if err != nil {
		return err
	}
	fmt.Printf("read %q\n", line)
	if err := t.SetReadDeadline(time.Now().Add(time.Millisecond)); err != nil {
		return err
	}
	_, err = t.Read(make([]byte, 1))
	fmt.Println("deadline", errors.Is(err, os.ErrDeadlineExceeded))
	return nil
}

// TestTerminal: P1 and P2, at a pseudo-terminal.
func TestTerminal(t *testing.T) {
	master, slave := openPair(t)
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), childEnv+"=1")
	c.ExtraFiles = []*os.File{slave}
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true, Ctty: 3}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	said := bufio.NewScanner(out)
	next := func(want string) {
		t.Helper()
		if !said.Scan() || said.Text() != want {
			t.Fatalf("it said %q, want %q", said.Text(), want)
		}
	}
	next("ready")
	if _, err := master.WriteString("yes\n"); err != nil {
		t.Fatal(err)
	}
	in.Close()
	next("discarded")
	if _, err := master.WriteString("later\n"); err != nil {
		t.Fatal(err)
	}
	next(`read "later\n"`)
	next("deadline true")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
}

// TestNoTerminal: a session without a terminal has none.
func TestNoTerminal(t *testing.T) {
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), childEnv+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := c.Output()
	if err == nil || !strings.Contains(string(out), ErrNoTerminal.Error()) {
		t.Errorf("%v %s", err, out)
	}
}

func openPair(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	n, err := unix.IoctlGetUint32(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { slave.Close() })
	return master, slave
}

// TestRelay: a program at a pair of its own gets the keys and the size of the
// person's terminal, and leaves it as it was (P3).
func TestRelay(t *testing.T) {
	person, slave := openPair(t)
	if err := unix.IoctlSetWinsize(int(person.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 33, Col: 77}); err != nil {
		t.Fatal(err)
	}
	before, err := unix.IoctlGetTermios(int(person.Fd()), unix.TCGETS)
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command("/proc/self/exe")
	c.Env = append(os.Environ(), childEnv+"=relay")
	c.Stdin, c.Stdout, c.Stderr = slave, slave, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(person)
	until := func(want string) {
		t.Helper()
		var got strings.Builder
		for !strings.Contains(got.String(), want) {
			b, err := out.ReadByte()
			if err != nil {
				t.Fatalf("%q and then %v, want %q", got.String(), err, want)
			}
			got.WriteByte(b)
		}
	}
	until("33 77")
	if _, err := person.WriteString("keys\r"); err != nil {
		t.Fatal(err)
	}
	until("<keys>")
	if err := c.Wait(); err != nil {
		t.Error(err)
	}
	if after, err := unix.IoctlGetTermios(int(person.Fd()), unix.TCGETS); err != nil || *after != *before {
		t.Errorf("the terminal is %+v, was %+v (%v)", after, before, err)
	}
}

// relay is the child of TestRelay: it runs a shell at a pair of its own.
func relay() error {
	master, slave, err := Open(os.Stdin)
	if err != nil {
		return err
	}
	c := exec.Command("/bin/sh", "-c", `stty size; read -r line; echo "<$line>"`)
	c.Stdin, c.Stdout, c.Stderr = slave, slave, slave
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	if err := c.Start(); err != nil {
		return err
	}
	if err := slave.Close(); err != nil {
		return err
	}
	return errors.Join(Relay(context.Background(), os.Stdout, master), c.Wait())
}
