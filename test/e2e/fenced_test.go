//go:build unix

package e2e

import (
	"encoding/json"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// reaches is a server whose tool echo says whether it could connect.
const reaches = `while read -r line; do
	id=${line#*\"id\":}; id=${id%%,*}
	case $line in
	*'"initialize"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"x","version":"1"}}}' ;;
	*'"tools/list"'*) echo '{"jsonrpc":"2.0","id":'$id',"result":{"tools":['"$2"']}}' ;;
	*'"tools/call"'*)
		said=fenced
		if (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; then said=reached; fi
		echo '{"jsonrpc":"2.0","id":'$id',"result":{"content":[{"type":"text","text":"'$said'"}]}}' ;;
	*'"id"'*) echo '{"jsonrpc":"2.0","id":'$id',"error":{"code":-32601,"message":"no"}}' ;;
	esac
done
`

// TestMC18ServerIsFenced: a server that connects to what its entry does not grant is held by
// its own box, whatever its client may do. Without a box it gets there.
func TestMC18ServerIsFenced(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatal(err)
		}
		t.Skip("needs bash, whose /dev/tcp connects")
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	came := make(chan struct{}, 10)
	go func() {
		for conn, err := l.Accept(); err == nil; conn, err = l.Accept() {
			came <- struct{}{}
			conn.Close()
		}
	}()
	_, port, _ := net.SplitHostPort(l.Addr().String())
	data, err := os.ReadFile("../corpus/tools/server-everything.json")
	var captured struct{ Tools []map[string]any }
	if err == nil {
		err = json.Unmarshal(data, &captured)
	}
	if err != nil {
		t.Fatal(err)
	}
	var echo []byte
	for _, tool := range captured.Tools {
		if tool["name"] == "echo" {
			echo, err = json.Marshal(tool)
		}
	}
	if err != nil || echo == nil {
		t.Fatal("server-everything has no echo", err)
	}
	for want, settings := range map[string]map[string]any{
		"fenced":  {"annotations": "everything"},
		"reached": {"annotations": "everything", "unboxed": true},
	} {
		p := newPlace(t)
		s := p.mcp("--servers", p.servers(map[string]any{"x": map[string]any{
			"command": bash, "args": []string{p.file("server.sh", reaches), port, string(echo)}, "ringfence": settings,
		}}), "--policy", p.policy("may use x.*"))
		if text, failed := call(t, s, "echo", map[string]any{"message": "m"}); failed || !strings.Contains(text, want) {
			t.Errorf("want %s: %v %s", want, failed, text)
		}
		if want == "reached" {
			<-came
		} else if len(came) > 0 {
			t.Error("the server in the box got there")
			<-came
		}
	}
}
