package listen

import (
	"encoding/base64"
	"math/big"
	"net/http"
	"net/textproto"
	"slices"
	"strings"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/mediator"
)

// named are the methods whose header Mcp-Name says what is in params, and where.
var named = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// tasked are the methods whose header Mcp-Name, if it is there, says which task.
var tasked = []string{"tasks/get", "tasks/update", "tasks/cancel"}

// mismatch says what of the headers of a message of 2026-07-28 is not what its body
// says, "" if nothing (L4). A body that names no version is for the mediator to refuse.
func (h *Handler) mismatch(header http.Header, m mediator.Message, version string) string {
	if version == "" {
		return "the header " + headerVersion + " is missing"
	}
	if in := m.Version(); in != "" && in != version {
		return headerVersion + " is not the version in _meta"
	}
	method, ok := only(header, headerMethod)
	if !ok || method != m.Method() {
		return headerMethod + " must be there once, and be the method of the body"
	}
	if slices.Contains(tasked, m.Method()) && len(header.Values(headerName)) > 0 {
		value, ok := only(header, headerName)
		want, _ := m.Param("taskId")
		if got, fine := decoded(value); !ok || !fine || got != want {
			return headerName + " is not params.taskId of the body"
		}
	}
	if key := named[m.Method()]; key != "" && m.Request() {
		value, ok := only(header, headerName)
		want, there := m.Param(key)
		if !there && value == "" && ok {
			return "" // that params have none is for the mediator to refuse
		}
		if got, fine := decoded(value); !ok || !fine || got != want {
			return headerName + " must be there once, and be params." + key + " of the body"
		}
		if m.Method() == "tools/call" {
			return h.mirrored(header, m, want)
		}
	}
	return ""
}

// decoded undoes the encoding of a value that is not plain ASCII.
func decoded(value string) (string, bool) {
	inner, ok := strings.CutPrefix(value, "=?base64?")
	if ok {
		inner, ok = strings.CutSuffix(inner, "?=")
	}
	if !ok {
		return value, plain(value)
	}
	raw, err := base64.StdEncoding.Strict().DecodeString(inner)
	return string(raw), err == nil
}

// plain reports whether a value of a header is visible ASCII, spaces and tabs.
func plain(value string) bool {
	for _, c := range []byte(value) {
		if c != '\t' && (c < 0x20 || c > 0x7e) {
			return false
		}
	}
	return true
}

// mirrored says which header Mcp-Param-… is not what the arguments of a call say, as
// far as the definition of the tool wants headers.
func (h *Handler) mirrored(header http.Header, m mediator.Message, tool string) string {
	for _, each := range h.m.Mirrored(tool) {
		name := headerParam + each.Header
		values := header[textproto.CanonicalMIMEHeaderKey(name)]
		v, there := m.Argument(each.Pointer)
		if !there || v.Kind == strictjson.Null {
			if len(values) > 0 {
				return name + " is there, and the argument is not"
			}
			continue
		}
		if len(values) != 1 || !same(v, strings.Trim(values[0], " \t")) {
			return name + " must be there once, and be what the argument says"
		}
	}
	return ""
}

// same reports whether a header says what a value says.
func same(v strictjson.Value, header string) bool {
	got, ok := decoded(header)
	if !ok {
		return false
	}
	switch v.Kind {
	case strictjson.String:
		text, err := v.Text()
		return err == nil && text == got
	case strictjson.True, strictjson.False:
		return got == string(v.Raw)
	case strictjson.Digits:
		return len(v.Raw) <= 32 && len(got) <= 32 && sameNumber(string(v.Raw), got)
	default: // an array or an object is in no header
		return false
	}
}

// sameNumber compares whole numbers by what they are: 42.0 is 42.
func sameNumber(a, b string) bool {
	if a == b {
		return true
	}
	if strings.ContainsAny(a+b, "eExX/_pPbBoO") {
		return false
	}
	x, ok := new(big.Rat).SetString(a)
	y, fine := new(big.Rat).SetString(b)
	return ok && fine && x.Cmp(y) == 0
}
