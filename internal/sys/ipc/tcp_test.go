package ipc

import (
	"crypto/tls"
	"errors"
	"testing"
)

func TestListenTCP(t *testing.T) {
	for address, want := range map[string]string{
		"127.0.0.1:0": "", "localhost:0": "", "127.9.9.9:0": "", "0.0.0.0:0": "open", ":0": "open", "192.0.2.1:0": "open",
		"[::]:0": "open", "example.com:0": "other", "127.0.0.1": "other", "[::ffff:127.0.0.1]:0": "", "[::ffff:192.0.2.1]:0": "open",
	} {
		l, err := ListenTCP(address, nil)
		got := ""
		switch {
		case errors.Is(err, ErrOpen):
			got = "open"
		case err != nil:
			got = "other"
		default:
			l.Close()
		}
		if got != want {
			t.Errorf("%s: %v, want %q", address, err, want)
		}
	}
	if l, err := ListenTCP("0.0.0.0:0", &tls.Certificate{}); err != nil {
		t.Errorf("with a certificate: %v", err)
	} else {
		l.Close()
	}
}
