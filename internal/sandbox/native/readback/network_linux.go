package readback

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
)

// ReadNetwork states the facts about the network namespace of the process with the number
// pid, which must live meanwhile. Where there is no IPv6 there is nothing of it.
func ReadNetwork(pid int) (n Network, err error) {
	read := func(name string) (string, error) {
		f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/net/" + name)
		if err != nil {
			return "", err
		}
		defer f.Close()
		b, err := io.ReadAll(io.LimitReader(f, maxFile))
		return string(b), err
	}
	text, err := read("dev")
	if err == nil {
		n.Interfaces, err = parseInterfaces(text)
	}
	for _, table := range []struct {
		name  string
		parse func(string) (Network, error)
	}{{"fib_trie", parseTrie}, {"ipv6_route", parseRoutes6}} {
		if err == nil {
			text, err = read(table.name)
		}
		if table.name == "ipv6_route" && errors.Is(err, fs.ErrNotExist) {
			err = nil
			continue
		}
		var more Network
		if err == nil {
			more, err = table.parse(text)
		}
		n.Local, n.Routes = append(n.Local, more.Local...), append(n.Routes, more.Routes...)
	}
	for _, protocol := range []string{"tcp", "tcp6", "udp", "udp6"} {
		if err == nil {
			text, err = read(protocol)
		}
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
			continue
		}
		var more []Listener
		if err == nil {
			more, err = parseSockets(protocol, text)
		}
		n.Listening = append(n.Listening, more...)
	}
	if err != nil {
		return Network{}, fmt.Errorf("reading the network of process %d: %w", pid, err)
	}
	return n, nil
}
