package mediator

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/tools/txtar"
)

// TestWire plays the files of testdata/wire. In a section "client", lines that
// start with "> " are sent and lines that start with "< " must be received next;
// "held" waits until a decision is being held. In "server NAME" it is the other
// way round: "< " is heard, "> " said. A section "tools NAME" holds the elements
// of its list and opens its session; without it the script starts at initialize.
// $TASK is the first id of a task that the client is given.
// "server NAME" may occur several times, once for each start. "decider" is the
// table of fakeDecider and "log" what it logged, in any order.
func TestWire(t *testing.T) {
	files, err := filepath.Glob("testdata/wire/*.txtar")
	if err != nil || len(files) < 10 {
		t.Fatal(len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			a, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			play(t, a)
		})
	}
}

// offers is what we offer to a client, which depends on whether all servers are up yet.
var offers = regexp.MustCompile(`"capabilities":\{"tools".*\},"serverInfo"`)

// taskID finds the id of a task, which stands as $TASK in the files.
var taskID = regexp.MustCompile(`"taskId":"([A-Z2-7]{26})"`)

func play(t *testing.T, a *txtar.Archive) {
	tools := map[string]string{}
	servers := map[string][]fakeServer{}
	var client, log []string
	d := deciding("")
	for _, f := range a.Files {
		lines := strings.FieldsFunc(string(f.Data), func(r rune) bool { return r == '\n' })
		kind, name, _ := strings.Cut(f.Name, " ")
		switch kind {
		case "tools":
			tools[name] = strings.Join(lines, "")
		case "server":
			list, opens := tools[name]
			servers[name] = append(servers[name], func(p *fakeProcess) {
				if opens {
					p.open(list)
				}
				script(t, name, p, lines)
			})
		case "decider":
			d = deciding(string(f.Data))
		case "client":
			client = lines
		case "log":
			log = lines
		default:
			t.Fatalf("unknown section %q", f.Name)
		}
	}
	c := converse(t, d, servers, func(o *Options) {
		o.AskAfter, o.AskEvery = 20*time.Millisecond, time.Hour
	})
	task := "$TASK"
	for _, l := range client {
		l = strings.ReplaceAll(l, "$TASK", task)
		line, sends := strings.CutPrefix(l, "> ")
		switch {
		case l == "held":
			<-d.held
		case sends:
			c.send(line)
		default:
			got := offers.ReplaceAllString(c.receive(), `"capabilities":{"tools":{"listChanged":true}},"serverInfo"`)
			if id := taskID.FindStringSubmatch(got); id != nil && task == "$TASK" {
				task = id[1]
				l = strings.ReplaceAll(l, "$TASK", task)
			}
			if got != strings.TrimPrefix(l, "< ") {
				t.Fatalf("received\n%s, want\n%s", got, strings.TrimPrefix(l, "< "))
			}
		}
	}
	c.close()
	if log != nil {
		for i := range log {
			log[i] = strings.ReplaceAll(log[i], "$TASK", task)
		}
		slices.Sort(log)
		if got := d.logged(""); !slices.Equal(got, log) {
			t.Errorf("the decider saw\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(log, "\n"))
		}
	}
}

// script plays the part of a server, then reads on until it is stopped; "exit"
// ends it.
func script(t *testing.T, name string, p *fakeProcess, lines []string) {
	for _, l := range lines {
		if l == "exit" {
			return
		}
		if line, says := strings.CutPrefix(l, "> "); says {
			p.say(line)
			continue
		}
		if got := p.hear(); got != strings.TrimPrefix(l, "< ") {
			t.Errorf("server %s heard\n%s, want\n%s", name, got, strings.TrimPrefix(l, "< "))
			return
		}
	}
	p.drain()
}
