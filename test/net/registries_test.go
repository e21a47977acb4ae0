//go:build linux

package net_test

import (
	"encoding/json"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// TestRegistries: the clients of npm and Go install from the registries as they are. Where
// these are not in reach it needs them.
func TestRegistries(t *testing.T) {
	private := []string{}
	for _, host := range []string{"registry.npmjs.org", "proxy.golang.org"} {
		conn, err := net.DialTimeout("tcp", host+":443", 5*time.Second)
		if err != nil {
			if os.Getenv("CI") == "true" {
				t.Fatalf("this test needs %s: %v", host, err)
			}
			t.Skipf("needs %s in reach: %v", host, err)
		}
		at, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
		conn.Close()
		private = append(private, at+map[bool]string{true: "/32", false: "/128"}[net.ParseIP(at).To4() != nil]) // a mirror may have such an address
	}
	p := newPlace(t)
	config, err := json.Marshal(map[string]any{"network": map[string]any{"private": private}})
	if err == nil {
		err = os.WriteFile(filepath.Join(p.Own, "config.json"), config, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	p.policy, err = p.Policy(t.Context(), "The agent may install any package.",
		"The agent may run any command.", "The agent may read any file.", "The agent may read, change, delete and move any file in the workspace.")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []reachCase{
		{name: "npm", needs: []string{"npm"}, want: []string{"left-pad"}, script: `
echo '{}' >package.json
npm install --cache "$PWD/cache" --no-audit --no-fund --loglevel error left-pad@1.3.0 && ls node_modules`},
		{name: "go", needs: []string{"go"}, want: []string{"golang.org/x/text v0.14.0"}, script: `
export GOPATH=/tmp/gopath GOCACHE=/tmp/gocache GOFLAGS=-modcacherw GOTOOLCHAIN=local GOSUMDB=off
printf 'module x\nrequire golang.org/x/text v0.14.0\n' >go.mod
go mod download golang.org/x/text && go list -m golang.org/x/text`},
	} {
		t.Run(c.name, func(t *testing.T) {
			p.need(t, c)
			p.reach(t, c)
		})
	}
}
