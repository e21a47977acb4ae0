package mitm

import (
	"context"
	"fmt"
	"net"
	"net/http"

	"ringfence/internal/act/weburl"
)

// An Interceptor serves connections with one minter. Minter must be set.
type Interceptor struct {
	Minter  Minter
	Limits  Limits
	Refused func(host string, why RefusedError) // see [Options]; it may be nil
}

// Serve is [Serve] for host, which is "name" or "name:port".
func (i *Interceptor) Serve(ctx context.Context, conn net.Conn, host string, h http.Handler) error {
	name, port, err := weburl.ParseHostPort(host)
	if err != nil {
		conn.Close()
		return fmt.Errorf("opening TLS: the host %q %w", host, err)
	}
	o := Options{Host: name, Port: port, Minter: i.Minter, Handler: h, Limits: i.Limits}
	if i.Refused != nil {
		o.Refused = func(why RefusedError) { i.Refused(host, why) }
	}
	return Serve(ctx, conn, o)
}
