package mitm

import (
	"bytes"
	"net/http"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxFields bounds the header lines of a head.
const maxFields = 256

// A head is what frames what follows the head of a request.
type head struct {
	method  string
	oldHTTP bool // HTTP/1.0
	hosts   int
	length  int64 // -1: none given
	chunked bool
	upgrade bool // to WebSocket
	encoded bool // any Transfer-Encoding
}

// readHead reads a head of CR LF lines with its empty line. The error is a *RefusedError.
func readHead(b []byte) (head, error) {
	line, rest, _ := bytes.Cut(b, []byte("\r\n"))
	h := head{length: -1}
	if err := h.requestLine(line); err != nil {
		return h, err
	}
	for n := 0; len(rest) > 2; n++ {
		if n == maxFields {
			return h, refusal("head", "a head has more than %d lines", maxFields)
		}
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, err := readField(line)
		if err == nil {
			err = h.field(name, value)
		}
		if err != nil {
			return h, err
		}
	}
	return h, h.whole()
}

// requestLine reads "METHOD target HTTP/1.1", with one space each.
func (h *head) requestLine(line []byte) error {
	method, rest, ok := strings.Cut(string(line), " ")
	target, version, ok2 := strings.Cut(rest, " ")
	switch {
	case !ok || !ok2 || !isToken(method):
		return refusal("head", "the first line of a request cannot be read")
	case version == "HTTP/1.0":
		h.oldHTTP = true
	case version != "HTTP/1.1":
		return refusal("head", "the version of a request is %.20q", version)
	}
	h.method = method
	return checkTarget(target)
}

// checkTarget refuses a target of which servers may take different parts for the path.
func checkTarget(target string) error {
	if target == "" || !utf8.ValidString(target) {
		return refusal("head", "the target of a request is empty or not valid UTF-8")
	}
	for i := range len(target) {
		if c := target[i]; c <= ' ' || c == 0x7f || c == '#' {
			return refusal("head", "the target of a request has the character %q", c)
		}
	}
	return nil
}

// readField reads "name: value", without its line end.
func readField(line []byte) (name, value string, err error) {
	name, value, ok := strings.Cut(string(line), ":")
	switch {
	case line[0] == ' ' || line[0] == '\t':
		return "", "", refusal("head", "a header line is folded")
	case !ok || !isToken(name):
		return "", "", refusal("head", "a header line has no name that can be read: %.40q", line)
	}
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return "", "", refusal("head", "the header %.40s has the character %q", name, c)
		}
	}
	return strings.ToLower(name), strings.Trim(value, " \t"), nil
}

// field takes in what frames the request. name is in lower case.
func (h *head) field(name, value string) error {
	if likeFraming(name) {
		return refusal("head", "some servers read %q as another header", name)
	}
	switch name {
	case "host":
		h.hosts++
		if i := strings.IndexAny(value, "/\\?#@, \t"); i >= 0 {
			return refusal("head", "the host of a request has the character %q", value[i])
		}
	case "content-length":
		n, err := strconv.ParseUint(value, 10, 63)
		if h.length >= 0 || err != nil || !allDigits(value) {
			return refusal("head", "the length of a request is given twice, or is no number: %.40q", value)
		}
		h.length = int64(n)
	case "transfer-encoding":
		if h.encoded || !strings.EqualFold(value, "chunked") {
			return refusal("head", "the transfer encoding %.40q is not known", value)
		}
		h.encoded, h.chunked = true, true
	case "connection":
		for token := range strings.SplitSeq(strings.ToLower(value), ",") {
			if framing(strings.Trim(token, " \t")) {
				return refusal("head", "a header is not of this connection alone: %.40q", token)
			}
		}
	case "upgrade":
		h.upgrade = h.upgrade || strings.EqualFold(value, "websocket")
	}
	return nil
}

// whole checks what only the whole head tells.
func (h *head) whole() error {
	switch {
	case h.hosts != 1 && !h.bare():
		return refusal("head", "the request names %d hosts", h.hosts)
	case h.chunked && h.length >= 0:
		return refusal("head", "the request has a length and is chunked")
	case h.chunked && h.oldHTTP:
		return refusal("head", "HTTP/1.0 has no chunks")
	case h.upgrade && (h.method != http.MethodGet || h.oldHTTP || h.chunked || h.length > 0):
		return refusal("upgrade", "only a GET of HTTP/1.1 without a body is upgraded")
	case (h.method == http.MethodConnect || h.method == http.MethodTrace) && (h.chunked || h.length > 0):
		return refusal("head", "%s has no body", h.method)
	}
	return nil
}

// bare reports whether it is a CONNECT as Python and OpenSSL send it to a proxy, whose target
// alone says for which host it is.
func (h *head) bare() bool { return h.hosts == 0 && h.oldHTTP && h.method == http.MethodConnect }

// framing reports whether the header of that name says where a request ends or whose
// it is.
func framing(name string) bool {
	return name == "content-length" || name == "transfer-encoding" || name == "host"
}

// likeFraming reports whether some servers read name as one that frames.
func likeFraming(name string) bool {
	return strings.Contains(name, "_") && framing(strings.ReplaceAll(name, "_", "-"))
}

// noTrailer reports whether the header of that name, in lower case, means something
// else before a body than behind it (RFC 9110 §6.5.1).
func noTrailer(name string) bool {
	switch name {
	case "authorization", "cookie", "set-cookie", "content-type", "content-encoding", "content-range",
		"connection", "upgrade", "expect", "te", "trailer", "range", "cache-control", "max-forwards",
		"proxy-authorization", "proxy-connection", "keep-alive":
		return true
	}
	return framing(name)
}

func allDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}

// isToken reports whether s is a token (RFC 9110 §5.6.2).
func isToken(s string) bool {
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0:
		default:
			return false
		}
	}
	return s != ""
}
