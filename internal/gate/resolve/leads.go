package resolve

import (
	"path"
	"strings"

	"ringfence/internal/sys/look"
)

// Leads returns where the absolute path p leads, p itself if no component of it is a
// symbolic link or if that cannot be found out, and whether no agent can have made one of
// the links: each is in a directory that only the administrator can change, outside the
// workspace and the home. What is beneath p need not be there.
func (v View) Leads(p string) (real string, sure bool) {
	end, err := follow(p)
	if err != nil || end.path == p {
		return p, false
	}
	w := walker{cur: "/"}
	for parts := strings.Split(p, "/"); len(parts) > 0; {
		name := parts[0]
		parts = parts[1:]
		dir := w.cur
		target, err := w.step(name, parts)
		if err != nil {
			return p, false // it changed while we looked
		}
		if target != "" {
			parts = append(strings.Split(target, "/"), parts...)
			if !v.settled(dir) {
				return end.path, false
			}
		}
	}
	return end.path, true
}

// settled reports whether no agent can make or replace anything in dir, nor replace dir.
func (v View) settled(dir string) bool {
	if beneath(dir, v.Workspace) || beneath(dir, v.Home) {
		return false
	}
	for ; look.Settled(dir); dir = path.Dir(dir) {
		if dir == "/" {
			return true
		}
	}
	return false
}
