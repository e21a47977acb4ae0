package cli

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"ringfence/internal/mediator"
	"ringfence/internal/mediator/listen"
	"ringfence/internal/sys/atomicfile"
	"ringfence/internal/sys/ipc"
	"ringfence/internal/sys/paths"
)

// listenFlags are the flags of "ringfence mcp" that are about HTTP.
type listenFlags struct {
	address         string
	tokenFile       string
	tlsCert, tlsKey string
}

func (f *listenFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.address, "listen", "", "serve clients over HTTP at `ADDRESS`, such as 127.0.0.1:8765 or unix:PATH")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` with the token that clients show (default: one in the home, made if there is none)")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "`FILE` with the certificate, in PEM; needed where other machines can connect")
	flags.StringVar(&f.tlsKey, "tls-key", "", "`FILE` with its key, in PEM")
}

// A listening is where clients connect over HTTP.
type listening struct {
	l       net.Listener
	options listen.Options
	where   string // for people
}

// open begins to listen; nothing is answered yet. nil is standard input and output.
func (f listenFlags) open() (*listening, error) {
	if f.address == "" {
		if f.tokenFile != "" || f.tlsCert != "" || f.tlsKey != "" {
			return nil, &exitError{code: codeUsage, err: errors.New("--token-file, --tls-cert and --tls-key need --listen")}
		}
		return nil, nil
	}
	on, err := f.listening()
	if err != nil {
		hint := ""
		if errors.Is(err, ipc.ErrOpen) {
			hint = "--tls-cert and --tls-key name a certificate and its key; for clients of this machine, listen on 127.0.0.1"
		}
		return nil, &exitError{code: codeUsage, err: err, hint: hint}
	}
	return on, nil
}

func (f listenFlags) listening() (*listening, error) {
	if path, ok := strings.CutPrefix(f.address, "unix:"); ok {
		if f.tokenFile != "" || f.tlsCert != "" || f.tlsKey != "" {
			return nil, errors.New("a Unix socket needs neither a token nor TLS: the kernel says who connects")
		}
		path, err := filepath.Abs(path)
		if err != nil {
			return nil, fmt.Errorf("finding the socket: %w", err)
		}
		l, err := ipc.Listen(path)
		if errors.Is(err, ipc.ErrLocked) {
			return nil, fmt.Errorf("something listens at %s already", path)
		}
		if err != nil {
			return nil, err
		}
		users := slices.Compact([]uint32{uint32(os.Geteuid()), 0})
		return &listening{l, listen.Options{Users: users}, "unix:" + path + ", path " + listen.Path}, nil
	}
	certificate, err := f.certificate()
	if err != nil {
		return nil, err
	}
	token, file, err := f.token()
	if err != nil {
		return nil, err
	}
	address := f.address
	if !strings.Contains(address, ":") {
		address = "127.0.0.1:" + address
	}
	l, err := ipc.ListenTCP(address, certificate)
	if err != nil {
		return nil, err
	}
	scheme := "http://"
	if certificate != nil {
		scheme = "https://"
	}
	where := scheme + l.Addr().String() + listen.Path + ", with the token in " + file
	return &listening{l, listen.Options{Token: token, Hosts: hosts(l.Addr(), certificate)}, where}, nil
}

// hosts are the names under which clients may reach an address: those of this machine
// for itself, and those of the certificate.
func hosts(at net.Addr, certificate *tls.Certificate) []string {
	host, port, err := net.SplitHostPort(at.String())
	if err != nil {
		return nil
	}
	names := []string{host}
	if ip := net.ParseIP(host); ip != nil && ip.IsLoopback() {
		names = append(names, "localhost", "127.0.0.1", "::1")
	}
	usual := "80"
	if certificate != nil {
		usual = "443"
		if leaf, err := x509.ParseCertificate(certificate.Certificate[0]); err == nil {
			names = append(names, leaf.DNSNames...)
			for _, ip := range leaf.IPAddresses {
				names = append(names, ip.String())
			}
		}
	}
	var all []string
	for _, n := range names {
		all = append(all, strings.ToLower(net.JoinHostPort(n, port)))
		if port == usual {
			all = append(all, strings.TrimSuffix(strings.ToLower(net.JoinHostPort(n, port)), ":"+port))
		}
	}
	return all
}

func (f listenFlags) certificate() (*tls.Certificate, error) {
	if (f.tlsCert == "") != (f.tlsKey == "") {
		return nil, errors.New("--tls-cert and --tls-key go together")
	}
	if f.tlsCert == "" {
		return nil, nil
	}
	c, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("reading the certificate: %w", err)
	}
	return &c, nil
}

// minToken is how short a token may be, in bytes.
const minToken = 20

// token reads the token that clients must show, or makes one where nobody named a file.
func (f listenFlags) token() (token, file string, err error) {
	file = f.tokenFile
	if file == "" {
		home, err := paths.EnsureHome()
		if err != nil {
			return "", "", err
		}
		file = paths.MCPToken(home)
		// Of two that make one, the second finds that of the first.
		err = atomicfile.CreateNew(file, []byte(rand.Text()+rand.Text()+"\n"), 0o600)
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", "", fmt.Errorf("making a token: %w", err)
		}
	}
	info, err := os.Stat(file)
	if err != nil {
		return "", "", fmt.Errorf("reading the token: %w", err)
	}
	if mode := info.Mode().Perm(); info.Mode().IsRegular() && mode&0o077 != 0 && os.PathSeparator == '/' {
		return "", "", fmt.Errorf("reading the token: others may read %s (mode %04o; run chmod 600)", file, mode)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", "", fmt.Errorf("reading the token: %w", err)
	}
	token = strings.TrimSpace(string(text))
	if len(token) < minToken || len(token) > 4096 || strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return "", "", fmt.Errorf("reading the token: %s must hold one word of %d to 4096 visible ASCII characters", file, minToken)
	}
	return token, file, nil
}

// close lets go of an address that was not served.
func (on *listening) close() error {
	if on == nil {
		return nil
	}
	return on.l.Close()
}

// serve answers clients until ctx ends.
func (on *listening) serve(ctx context.Context, s *streams, m *mediator.Mediator, log *slog.Logger) error {
	on.options.Log = log
	return m.Serve(ctx, func(ctx context.Context) error {
		fmt.Fprintf(s.err, "MCP at %s\n", on.where)
		return listen.New(m, on.options).Serve(ctx, on.l)
	})
}
