package mediator

import (
	"maps"
	"strings"
	"testing"
)

const (
	tasksOfSessions = `"tasks":{"list":{},"cancel":{},"requests":{"tools":{"call":{}}}}`
	tasksOfRequests = `"extensions":{"io.modelcontextprotocol/tasks":{}}`
	madeOfSessions  = `{"task":{"taskId":"t1","status":"working"}}`
	madeOfRequests  = `{"resultType":"task","taskId":"t1","status":"working"}`
	callForTask     = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{},"task":{}}}`
)

// TestTasksBetweenEras: a server makes tasks for clients of its own era only, whatever it and
// they say that they have.
func TestTasksBetweenEras(t *testing.T) {
	requests := map[string][]string{
		"server/discover": {strings.Replace(discoverAnswer, `{"tools":{}}`, `{"tools":{},`+tasksOfSessions+`,`+tasksOfRequests+`}`, 1)},
	}
	sessions := map[string][]string{
		"server/discover": {`!{"code":-32601,"message":"x"}`},
		"initialize":      {strings.Replace(sessionAnswer, `{"tools":{}}`, `{"tools":{},`+tasksOfSessions+`,`+tasksOfRequests+`}`, 1)},
	}
	modern := modernLine(1, "tools/call", `"name":"a","arguments":{}`)
	for name, c := range map[string]struct {
		server           map[string][]string
		made, call, want string
		sent             bool // the call, to the server
	}{
		"sessions at sessions, asked for":     {sessions, madeOfSessions, callForTask, `"result":{"task":{"taskId":"`, true},
		"sessions at sessions, not asked for": {sessions, madeOfRequests, callLine("1", "a", "{}"), "of the type task, which it may not be here", true},
		"sessions at requests, asked for":     {requests, madeOfRequests, callForTask, "does not offer calls as tasks", false},
		"sessions at requests, not asked for": {requests, madeOfRequests, callLine("1", "a", "{}"), "of the type task, which it may not be here", true},
		"requests at requests":                {requests, madeOfRequests, modern, `"result":{"resultType":"task","taskId":"`, true},
		"requests at sessions":                {sessions, madeOfRequests, modern, "of the type task, which it may not be here", true},
	} {
		t.Run(name, func(t *testing.T) {
			k := &talker{answers: map[string][]string{"tools/list": {toolsAnswer}, "tools/call": {c.made}}}
			maps.Copy(k.answers, c.server)
			conv := speaking(t, deciding(""), k)
			if c.call != modern {
				conv.ask(`{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{`+tasksOfRequests+`}}}`, `"result"`)
				conv.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			}
			conv.ask(c.call, c.want)
			heard := k.last("tools/call")
			if sent := heard != ""; sent != c.sent {
				t.Errorf("the server heard %q", heard)
			}
			if c.call != modern && strings.Contains(heard, extTasks) {
				t.Errorf("the server is told of tasks that the client cannot have: %s", heard)
			}
			m := modernLine(2, "server/discover", "")
			want := map[bool]string{false: tasksOfSessions, true: tasksOfRequests}[c.server["initialize"] == nil]
			if c.call != modern {
				m = `{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
			}
			offered := conv.ask(m)
			if same := (c.call == modern) == (c.server["initialize"] == nil); strings.Contains(offered, want) != same {
				t.Errorf("offered: %s", offered)
			}
		})
	}
}

// TestR4OneID: two tasks of one id cannot be told apart, so the second is none.
func TestR4OneID(t *testing.T) {
	d := deciding("")
	conv := speaking(t, d, theirTask())
	madeTask(t, conv)
	conv.ask(modernLine(2, "tools/call", `"name":"a","arguments":{}`), errSameTask.Error())
}
