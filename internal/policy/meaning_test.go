package policy

import (
	"encoding/json"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
)

// testLists are the lists that the vectors know.
var testLists = map[string]List{
	"docs-sites": {Members: []string{"docs.example.org", "*.readthedocs.io"}},
	"dirs":       {Members: []string{"/data", "~/x"}},
	"linked":     {Members: []string{"/lnk", "/var/run"}},
	"mixed": {
		Members: []string{
			"/data", "~/x", "${workspace}/y", "a.org", "a.org:8443", "*.B.org", "10.0.0.0/8", "c.org/x/", "https://d.org/y", "bob@e.org",
			"npm:*", "pypi:x", "git.*", "fs.read", "go", "/opt/run", "openai/gpt", "gone.org", "nobody",
		},
		Added: []string{"late.org"}, Removed: []string{"gone.org"},
	},
}

// A block is one block of a file of vectors.
type block struct {
	name    string
	clauses map[string][]Clause // by layer
	cedar   map[string]string   // by layer
	calls   []string
}

func readBlocks(t *testing.T, file string) []block {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []block
	for line := range strings.SplitSeq(string(data), "\n") {
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "== "):
			blocks = append(blocks, block{name: line[3:], clauses: map[string][]Clause{}, cedar: map[string]string{}})
		case line[0] == '+':
			layer, text, _ := strings.Cut(line[1:], " ")
			var c Clause
			if err := json.Unmarshal([]byte(text), &c); err != nil {
				t.Fatalf("%s: %v", text, err)
			}
			b := &blocks[len(blocks)-1]
			b.clauses[layer] = append(b.clauses[layer], c)
		case line[0] == '|':
			layer, text, _ := strings.Cut(line[1:], " ")
			blocks[len(blocks)-1].cedar[layer] += text + "\n"
		default:
			b := &blocks[len(blocks)-1]
			b.calls = append(b.calls, line)
		}
	}
	return blocks
}

func (b block) load(t *testing.T) *Policy {
	t.Helper()
	return b.bound(t, Binding{Workspace: "/w", Home: "/home/u"})
}

func (b block) bound(t *testing.T, to Binding) *Policy {
	t.Helper()
	var layers []Layer
	for name, clauses := range b.clauses {
		text, err := Cedar(clauses, name == "")
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, Layer{Name: name, Text: text, Lists: testLists})
	}
	for name, text := range b.cedar {
		layers = append(layers, Layer{Name: name, Text: []byte(text), Lists: testLists})
	}
	p, err := Load(layers, to)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestMeaning(t *testing.T) {
	for _, b := range readBlocks(t, "testdata/meaning.txt") {
		t.Run(b.name, func(t *testing.T) {
			p := b.load(t)
			for _, line := range b.calls {
				call, want, _ := strings.Cut(line, " => ")
				d := p.Decide(parseCall(t, call))
				if got := result(d); got != want {
					t.Errorf("%s => %s, want %s\n%+v", call, got, want, d)
				}
			}
		})
	}
}

// result writes a decision as vectors do.
func result(d Decision) string {
	ids := []string{d.Verdict.String()}
	if d.Verdict == act.Escalate {
		for _, a := range d.Ask {
			ids = append(ids, a.Clause)
		}
		return strings.Join(ids, " ")
	}
	for _, r := range d.Rules {
		layer, id, ok := strings.Cut(r, ":")
		if !ok {
			layer, id = "", r
		} else {
			layer += ":"
		}
		if id == Default {
			id = "-"
		} else if strings.HasPrefix(id, "c") {
			id, _, _ = strings.Cut(id, ".")
		}
		if !slices.Contains(ids, layer+id) {
			ids = append(ids, layer+id)
		}
	}
	return strings.Join(ids, " ")
}

func parseCall(t *testing.T, call string) Query {
	t.Helper()
	q := Query{Principal: "p/a", Args: map[string]any{}, Now: time.Unix(0, 0)}
	counts := map[string]int64{}
	q.Counts = func(c string) int64 { return counts[c] }
	for part := range strings.SplitSeq(call, " ; ") {
		words := strings.Fields(part)
		e := act.Effect{Kind: act.Kind(words[0]), Resource: act.Resource{Type: act.Kind(words[0]).On(), Text: words[1], Facts: map[string]any{}}}
		for _, w := range words[2:] {
			key, value, _ := strings.Cut(w, "=")
			switch {
			case key == "tree":
				e.Tree = value == "true"
			case key == "implied":
				e.Implied = value == "true"
			case key == "tool":
				q.Tool = value
			case key == "group":
				e.Group = act.Group(value)
			case key == "label":
				q.Labels = append(q.Labels, act.Label(value))
			case key == "approved":
				q.Approved = strings.Split(value, ",")
			case key == "who":
				q.Principal = value
			case key == "now":
				q.Now, _ = time.Parse(time.RFC3339, value)
			case strings.HasPrefix(key, "arg:"):
				q.Args[key[4:]] = scalar(value)
			case strings.HasPrefix(key, "count:"):
				counts[key[6:]], _ = strconv.ParseInt(value, 10, 64)
			case key == "age":
				e.Resource.Facts[act.FactAgeHours] = scalar(value)
			default:
				e.Resource.Facts[key] = scalar(value)
			}
		}
		q.Effects = append(q.Effects, e)
	}
	return q
}

func scalar(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return b
	}
	return s
}
