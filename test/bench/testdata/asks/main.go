// Command asks makes requests when it is told to: of every line "WHAT TIMES URL" on its
// input it does WHAT so many times with URL, and then says so, or what went wrong. It goes
// through the proxy that HTTPS_PROXY names, whatever NO_PROXY says, and trusts the roots of
// the file in its argument besides those of the machine.
package main

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
)

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "asks:", err)
		os.Exit(1)
	}
}

func serve() error {
	pem, err := os.ReadFile(os.Args[1])
	if err != nil {
		return err
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		return err
	}
	roots.AppendCertsFromPEM(pem)
	clients := map[bool]*http.Client{false: client(roots, false), true: client(roots, true)}
	var held []*http.Client
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var what, at string
		var times int
		if _, err := fmt.Sscan(in.Text(), &what, &times, &at); err != nil {
			return err
		}
		switch what {
		case "get": // one after the other over one connection
			err = each(1, times, func() error { return get(clients[false], at) })
		case "get2": // the same over HTTP/2
			err = each(1, times, func() error { return get(clients[true], at) })
		case "new": // each over a connection of its own
			err = each(1, times, func() error {
				clients[false].CloseIdleConnections()
				return get(clients[false], at)
			})
		case "many": // 16 at once
			err = each(16, times/16, func() error { return get(clients[false], at) })
		case "streams": // all at once
			err = each(times, 1, func() error { return get(clients[true], at) })
		case "hold": // connections that are kept
			for range times {
				one := client(roots, false)
				held = append(held, one)
				if err = get(one, at); err != nil {
					break
				}
			}
		case "drop": // them
			for _, one := range held {
				one.CloseIdleConnections()
			}
			held = nil
		}
		said := "done"
		if err != nil {
			said = strings.ReplaceAll(err.Error(), "\n", " ")
		}
		if _, err := fmt.Println(said); err != nil {
			return err
		}
	}
	return nil
}

func client(roots *x509.CertPool, h2 bool) *http.Client {
	var p http.Protocols
	p.SetHTTP1(!h2)
	p.SetHTTP2(h2)
	return &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots}, Protocols: &p, MaxIdleConnsPerHost: 32, DisableCompression: true,
		Proxy: func(*http.Request) (*url.URL, error) {
			if at := os.Getenv("HTTPS_PROXY"); at != "" {
				return url.Parse(at)
			}
			return nil, nil
		},
	}}
}

func each(callers, times int, do func() error) error {
	errs := make([]error, callers)
	var all sync.WaitGroup
	for k := range callers {
		all.Go(func() {
			for range times {
				if errs[k] = do(); errs[k] != nil {
					return
				}
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func get(c *http.Client, at string) error {
	res, err := c.Get(at)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", at, res.Status)
	}
	return nil
}
