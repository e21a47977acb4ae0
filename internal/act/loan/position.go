package loan

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// Read returns the credential in a value of the header of p, and who sends it: what
// stands in the place of {}, and the user of "Basic {}". ok is false where the value has
// not that form.
func (p Position) Read(value string) (user, credential string, ok bool) {
	if p.Query != "" {
		return "", "", false
	}
	value = strings.Trim(value, " \t")
	before, after, _ := strings.Cut(p.Form, hole)
	if len(value) < len(before)+len(after) || !strings.EqualFold(value[:len(before)], before) || !strings.HasSuffix(value, after) {
		return "", "", false
	}
	credential = strings.TrimLeft(value[len(before):len(value)-len(after)], " ")
	if p.Form != basicForm {
		return "", credential, credential != ""
	}
	raw, err := base64.StdEncoding.DecodeString(credential)
	if err != nil {
		return "", "", false
	}
	user, credential, ok = strings.Cut(string(raw), ":")
	return user, credential, ok && (p.User == "" || user == p.User)
}

// Write returns the value of the header of p with that credential. user is what Read
// returned; that of p wins.
func (p Position) Write(user, credential string) string {
	if p.Form == basicForm {
		if p.User != "" {
			user = p.User
		}
		credential = base64.StdEncoding.EncodeToString([]byte(user + ":" + credential))
	}
	return strings.Replace(p.Form, hole, credential, 1)
}

// SwapQuery puts value in the place of sentinel in a query, where a parameter of that
// name is exactly sentinel. ok is false where there is none, or a name occurs twice.
func SwapQuery(query, name, sentinel, value string) (swapped string, ok bool) {
	parts := strings.Split(query, "&")
	at := -1
	for i, part := range parts {
		k, v, _ := strings.Cut(part, "=")
		k, kerr := url.QueryUnescape(k)
		v, verr := url.QueryUnescape(v)
		switch {
		case kerr != nil || k != name:
			continue
		case verr != nil || at >= 0 || v != sentinel:
			return query, false // servers differ in which of two they take
		}
		at = i
	}
	if at < 0 {
		return query, false
	}
	parts[at] = url.QueryEscape(name) + "=" + url.QueryEscape(value)
	return strings.Join(parts, "&"), true
}
