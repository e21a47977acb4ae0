package mediator

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// madeTask makes a task of a call of the tool a, and returns the member that names it.
func madeTask(t *testing.T, c *conversation) string {
	t.Helper()
	made := c.ask(modernLine(1, "tools/call", `"name":"a","arguments":{}`), `"resultType":"task"`)
	return `"taskId":"` + newID.FindStringSubmatch(made)[1] + `"`
}

// theirTask is a server that makes a task of a call and then answers as it is told.
func theirTask(get ...string) *talker {
	return &talker{answers: map[string][]string{
		"server/discover": {discoverAnswer}, "tools/list": {toolsAnswer}, "tasks/get": get,
		"tools/call":   {`{"resultType":"task","taskId":"t1","status":"working"}`},
		"tasks/update": {`{"resultType":"complete","status":"failed","error":{"code":-32042,"data":"evil.example"}}`},
	}}
}

// TestD2bTasks: nothing that a server says of a task gets past the decisions on results, on
// errors and on what is asked.
func TestD2bTasks(t *testing.T) {
	f, err := os.Open("testdata/tasks.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		var k struct{ Name, Get, Want string }
		if err := json.Unmarshal(lines.Bytes(), &k); err != nil {
			t.Fatal(err)
		}
		t.Run(k.Name, func(t *testing.T) {
			c := speaking(t, deciding("tools/list fs.asks/list allow\ntools/call fs.elicitation/create deny policy no"), theirTask(k.Get))
			got := c.ask(modernLine(2, "tasks/get", madeTask(t, c)), k.Want)
			if strings.Contains(got, "evil.example") && !strings.Contains(got, `"error":{"code":`) {
				t.Errorf("it reached the client: %s", got)
			}
		})
	}
}

// TestD2bOnce: what the Decider withheld of a result is not to be had by asking again, nor
// is another result; the same one is. An answer to an update says nothing.
func TestD2bOnce(t *testing.T) {
	ends := func(content string) string {
		return `{"taskId":"t1","status":"completed","result":{"content":[` + content + `]}}`
	}
	for name, table := range map[string]string{"": "", "changed": `finish fs.a {"content":[]}`, "withheld": "finish fs.a none"} {
		t.Run(name, func(t *testing.T) {
			c := speaking(t, deciding(table), theirTask(ends(`"secret"`), ends(`"secret"`), ends(`"other"`)))
			id := madeTask(t, c)
			for i, want := range map[string][]string{
				"": {`"secret"`, `"secret"`}, "changed": {`"content":[]`, errGiven.Error()}, "withheld": {"is withheld", errGiven.Error()},
			}[name] {
				c.ask(modernLine(2+i, "tasks/get", id), want)
			}
			c.ask(modernLine(4, "tasks/get", id), errGiven.Error())
			if got := c.ask(modernLine(5, "tasks/update", id+`,"inputResponses":{}`), `{"resultType":"complete"}`); strings.Contains(got, "evil") {
				t.Errorf("update: %s", got)
			}
		})
	}
}
