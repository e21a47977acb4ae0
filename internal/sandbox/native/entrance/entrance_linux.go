// Package entrance opens the sockets at which programs of a box come to its way out, within
// the network of the box.
//
// It accepts nothing and knows no protocol: the sockets are handed to who does. It adds no
// route and needs no right but to listen at low ports, which whoever builds the box has.
//
// Invariants:
//
//	W1  All sockets that were asked for, or none and an error; only those of IPv6 may be
//	    missing, where there is no IPv6.
//	W2  Nothing is listened at beyond what was asked for.
package entrance

import (
	"errors"

	"golang.org/x/sys/unix"
)

// The kinds of sockets.
const (
	Proxy    = iota + 1 // on 127.0.0.1 and ::1
	Resolver            // TCP, on 127.0.0.1
	Packet              // the resolver over UDP
	Direct              // on all addresses
	Tools               // on 127.0.0.1
)

// backlog is how many connections wait to be accepted.
const backlog = 512

// Open listens at the ports of proxy and resolver, at that of tools unless it is 0, and at
// ports. It returns the kind of each socket, and their descriptors, which belong to the caller.
func Open(proxy, resolver, tools int, ports []int) (kinds, fds []int, err error) {
	add := func(kind int, to unix.Sockaddr, socket int) {
		if err != nil {
			return
		}
		fd, e := listenAt(to, socket)
		if _, six := to.(*unix.SockaddrInet6); six && (errors.Is(e, unix.EAFNOSUPPORT) || errors.Is(e, unix.EADDRNOTAVAIL)) {
			return // there is no IPv6
		}
		if err = e; e == nil {
			kinds, fds = append(kinds, kind), append(fds, fd)
		}
	}
	four := [4]byte{127, 0, 0, 1}
	six := [16]byte{15: 1}
	add(Proxy, &unix.SockaddrInet4{Port: proxy, Addr: four}, unix.SOCK_STREAM)
	add(Proxy, &unix.SockaddrInet6{Port: proxy, Addr: six}, unix.SOCK_STREAM)
	add(Resolver, &unix.SockaddrInet4{Port: resolver, Addr: four}, unix.SOCK_STREAM)
	add(Packet, &unix.SockaddrInet4{Port: resolver, Addr: four}, unix.SOCK_DGRAM)
	if tools != 0 {
		add(Tools, &unix.SockaddrInet4{Port: tools, Addr: four}, unix.SOCK_STREAM)
	}
	for _, p := range ports {
		add(Direct, &unix.SockaddrInet4{Port: p}, unix.SOCK_STREAM)
		add(Direct, &unix.SockaddrInet6{Port: p}, unix.SOCK_STREAM)
	}
	if err != nil {
		for _, fd := range fds {
			unix.Close(fd)
		}
		return nil, nil, err
	}
	return kinds, fds, nil
}

func listenAt(to unix.Sockaddr, kind int) (int, error) {
	family := unix.AF_INET
	if _, six := to.(*unix.SockaddrInet6); six {
		family = unix.AF_INET6
	}
	fd, err := unix.Socket(family, kind|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, err
	}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = unix.Bind(fd, to)
	}
	if err == nil && kind == unix.SOCK_STREAM {
		err = unix.Listen(fd, backlog)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}
