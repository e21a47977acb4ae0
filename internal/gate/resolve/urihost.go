package resolve

import (
	"strconv"
	"strings"

	"ringfence/internal/act/weburl"
)

// ports are the schemes by which libraries reach other machines, and the ports that they
// take (the registries of IANA for schemes and services). A server that hands a URI to one
// of these libraries connects, whatever it says that its resources are.
var ports = map[string]uint16{
	"amqp": 5672, "amqps": 5671, "cifs": 445, "coap": 5683, "dav": 80, "davs": 443, "dict": 2628, "ftp": 21, "ftps": 990,
	"git": 9418, "gopher": 70, "gophers": 70, "hdfs": 8020, "http": 80, "https": 443, "imap": 143, "imaps": 993, "ldap": 389,
	"ldaps": 636, "mqtt": 1883, "mqtts": 8883, "nfs": 2049, "nntp": 119, "pop3": 110, "pop3s": 995, "rsync": 873, "rtmp": 1935,
	"rtmps": 443, "rtsp": 554, "rtsps": 322, "scp": 22, "sftp": 22, "smb": 445, "smbs": 445, "smtp": 25, "smtps": 465, "ssh": 22,
	"svn": 3690, "telnet": 23, "tftp": 69, "vnc": 5900, "webdav": 80, "webdavs": 443, "webhdfs": 9870, "ws": 80, "wss": 443, "xmpp": 5222,
}

// ownNumbers is the number below which a host that is just a number is taken for a name
// that a server gave, as in note://17, and not for an address: these are in 0.0.0.0/8.
const ownNumbers = 1 << 24

// reached finds what a URI reaches whose scheme belongs to its server: a host, if a
// library would connect to one, or plain if nobody but the server knows. rest is what
// follows scheme and colon.
func reached(scheme, rest string) (subject, error) {
	port := uint16(0)
	for word := range strings.FieldsFuncSeq(scheme, func(r rune) bool { return r < 'a' || r > 'z' }) {
		if word == "file" || word == "files" {
			return nil, bad(`write "file:///" and the path`, "has a scheme of files that servers read in their own ways")
		}
	}
	for word := range strings.FieldsFuncSeq(scheme, func(r rune) bool { return strings.ContainsRune("+-.", r) }) {
		if p := ports[word]; p != 0 {
			port = p
		}
	}
	known := port != 0
	if !known && !strings.HasPrefix(rest, "//") {
		return plain{}, nil
	}
	text := strings.TrimLeft(rest, "/")
	if !known {
		text = rest[2:]
	}
	if i := strings.IndexAny(text, "/?#"); i >= 0 {
		text = text[:i]
	}
	text = text[strings.LastIndexByte(text, '@')+1:]
	host, given, err := weburl.ParseHostPort(text)
	if err != nil && !known && !strings.Contains(text, "[") {
		// What is behind the colon is no port, so this is no host to any reader but one that stops there.
		name, _, _ := strings.Cut(text, ":")
		host, err = weburl.ParseHost(name)
		if err != nil {
			return plain{}, nil // no host: a name that the server gave
		}
	}
	if err != nil || known && host.IsZero() {
		return nil, bad("", "names a host that cannot be read")
	}
	if !known && !reaches(host, text) {
		return plain{}, nil
	}
	if given != 0 {
		port = given
	}
	if port == 0 {
		port = ports["https"]
	}
	return hostSubject{host, port}, nil
}

// reaches reports whether a host as it was written, of a scheme that is not known to
// connect, is an address or one of the names of this machine and its surroundings.
func reaches(h weburl.Host, text string) bool {
	addr, is := h.Addr()
	switch {
	case classOfHost(h) != "":
		return true
	case !is:
		name := h.String()
		return name == "localhost" || strings.HasSuffix(name, ".localhost") || name == "localhost.localdomain" || name == "ip6-localhost"
	case addr.IsLoopback() || addr.IsPrivate() || addr.IsLinkLocalUnicast() || strings.Count(text, ".") == 3 || addr.Is6():
		return true
	}
	n, err := strconv.ParseUint(strings.TrimSuffix(text, "."), 10, 64)
	return err == nil && n >= ownNumbers
}
