package resolve

import (
	"os"
	"path"
	"strings"
	"sync"

	"golang.org/x/text/unicode/norm"

	"ringfence/internal/act"
	"ringfence/internal/act/weburl"
)

// The values of [act.FactClass].
const (
	classOwn         = "own-state"
	classLater       = "runs-later"
	classCredentials = "credentials"
	classMetadata    = "metadata"
)

// beneath reports whether p is dir or lies beneath it.
func beneath(p, dir string) bool {
	if dir == "" || dir == "/" {
		return dir == "/"
	}
	return strings.HasPrefix(p, dir) && (len(p) == len(dir) || p[len(dir)] == '/')
}

// classOfPath returns the class of p for an effect of kind k, "" for none. A
// workspace that lies in our home is the session's, not our state.
//
// An effect on everything beneath p has the class of what there is beneath p in
// fixed places, credentials before all else; a move, and a change of everything beneath p, has the class of
// what p could hold afterwards.
func (v View) classOfPath(p string, k act.Kind, tree bool) string {
	whole := tree || k == act.Move || k == act.Delete
	for _, s := range v.OwnState {
		if beneath(p, s) && !(beneath(v.Workspace, s) && beneath(p, v.Workspace)) || whole && beneath(s, p) {
			return classOwn
		}
	}
	c := v.classOfName(p, k == act.Move || tree && k.In(act.Mutate))
	if c == "" {
		c = classOfGit(p, k)
	}
	if tree && c != classCredentials {
		if below := v.classBeneath(p); c == "" || below == classCredentials {
			return below
		}
	}
	return c
}

// classOfName looks p up in the table of places; with whole, as a directory of
// which everything comes into being, changes or vanishes at once.
func (v View) classOfName(p string, whole bool) string {
	folded, home := fold(p), fold(v.Home)
	index, best := placeIndex(), -1
	for i := 0; i < len(folded); {
		rest := folded[i+1:]
		end := strings.IndexByte(rest, '/')
		first := rest
		if end >= 0 {
			first = rest[:end]
		}
		for _, rows := range [...][]int{index[first], index[wild]} {
			for _, row := range rows {
				if best >= 0 && row >= best {
					break
				}
				if v.applies(&places[row], p, folded[:i], home) && places[row].matches(rest, whole) {
					best = row
				}
			}
		}
		if end < 0 {
			break
		}
		i += 1 + end
	}
	if best < 0 {
		return ""
	}
	return places[best].class
}

// applies reports whether a pattern of r may begin after dir. What is in the
// workspace is no part of the machine, even if the workspace is in /opt or /usr,
// and no setting of the person for being in a hidden directory of the home.
func (v View) applies(r *placeRow, p, dir, home string) bool {
	switch r.at {
	case inHome:
		return dir == home && (r.pattern != anyHidden || beneath(v.Home, v.Workspace) || !beneath(p, v.Workspace))
	case inRoot:
		return dir == "" && (r.class != classLater || v.Workspace == "/" || !beneath(p, v.Workspace))
	default:
		return true
	}
}

// classBeneath returns the class of the first place of the table that exists
// beneath p, of those whose position does not depend on the project.
func (v View) classBeneath(p string) string {
	for i := range places {
		r := &places[i]
		root := v.Home
		if r.at == inRoot {
			root = ""
		}
		if r.at == anywhere || root == "/" || r.at == inHome && !beneath(v.Home, p) && !beneath(p, v.Home) {
			continue
		}
		fixed := r.fixed()
		if fixed == "" || !beneath(root+"/"+fixed, p) {
			continue
		}
		if _, err := os.Lstat(root + "/" + fixed); err == nil {
			return r.class
		}
	}
	return ""
}

// fold writes p as the table does: lower case and NFC, so that on a file system
// that does not tell the spellings apart none escapes.
func fold(p string) string {
	p = strings.ToLower(p)
	if !ascii(p) {
		p = norm.NFC.String(p)
	}
	return p
}

// wild is the index of rows whose first component has a wildcard.
const wild = "*"

// placeIndex is the rows of places by their first component, in their order.
var placeIndex = sync.OnceValue(func() map[string][]int {
	index := map[string][]int{}
	for i, r := range places {
		first, _, _ := strings.Cut(r.pattern, "/")
		if strings.Contains(first, wild) {
			first = wild
		}
		index[first] = append(index[first], i)
	}
	return index
})

// fixed returns the components of the pattern before the first wildcard.
func (r *placeRow) fixed() string {
	p := r.pattern
	if i := strings.IndexByte(p, '*'); i >= 0 {
		p = p[:max(0, strings.LastIndexByte(p[:i], '/'))]
	}
	return p
}

// matches reports whether rest, the end of a folded path, is the place or lies
// beneath a place that ends in "/**". With whole, a directory on the way to the
// place matches too.
func (r *placeRow) matches(rest string, whole bool) bool {
	pattern := r.pattern
	for {
		p, morePattern, inPattern := strings.Cut(pattern, "/")
		name, moreRest, inRest := strings.Cut(rest, "/")
		if p == "**" {
			return true
		}
		if ok := p == name || strings.Contains(p, "*") && glob(p, name); !ok {
			return false
		}
		switch {
		case !inPattern:
			return !inRest
		case !inRest:
			return morePattern == "**" || whole
		}
		pattern, rest = morePattern, moreRest
	}
}

func glob(pattern, name string) bool {
	ok, err := path.Match(pattern, name)
	return err == nil && ok
}

// metadataHosts are names and addresses at which clouds hand out the
// credentials of the machine: AWS, ECS and EKS, Google, Azure, Alibaba, Oracle,
// Tencent, Scaleway and OpenStack.
var metadataHosts = map[string]bool{
	"169.254.169.254": true, "169.254.170.2": true, "169.254.170.23": true,
	"169.254.169.253": true, "169.254.0.23": true, "169.254.42.42": true,
	"168.63.129.16": true, "100.100.100.200": true, "192.0.0.192": true,
	"[fd00:ec2::254]": true, "[fd00:ec2::23]": true, "[fd20:ce::254]": true, "[fd00:42::42]": true,
	"metadata": true, "metadata.google.internal": true, "metadata.goog": true,
	"metadata.azure.com": true, "metadata.azure.internal": true, "metadata.tencentyun.com": true,
	"instance-data": true, "instance-data.ec2.internal": true,
}

// classOfHost returns "metadata" or "". An IPv4 address that an IPv6 address
// carries for a gateway counts as that address.
func classOfHost(h weburl.Host) string {
	text := h.String()
	if v4, ok := h.Embedded(); ok {
		text = v4.String()
	}
	if metadataHosts[text] || strings.HasSuffix(text, ".metadata.google.internal") {
		return classMetadata
	}
	return ""
}
