package constitution

import (
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"ringfence/internal/act"
	"ringfence/internal/policy"
)

// vectorLists are the lists that the vectors know.
var vectorLists = map[string]policy.List{"docs-sites": {Members: []string{"docs.example.org", "*.readthedocs.io"}}}

// A vectorBlock is one block of test/corpus/meaning.txt.
type vectorBlock struct {
	name   string
	layers map[string][]string // lines of the constitution, by layer
	calls  []string
}

func readVectors(t *testing.T, file string) []vectorBlock {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var blocks []vectorBlock
	layer := ""
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || line[0] == '#':
		case strings.HasPrefix(line, "== "):
			blocks = append(blocks, vectorBlock{name: line[3:], layers: map[string][]string{}})
			layer = ""
		case strings.HasPrefix(line, "> ["):
			layer = strings.Trim(line, "> []")
		case strings.HasPrefix(line, "> "):
			b := &blocks[len(blocks)-1]
			b.layers[layer] = append(b.layers[layer], line[2:])
		default:
			b := &blocks[len(blocks)-1]
			b.calls = append(b.calls, line)
		}
	}
	return blocks
}

func (b vectorBlock) load(t *testing.T) *policy.Policy {
	t.Helper()
	var layers []policy.Layer
	for name, lines := range b.layers {
		c, err := Compile(Source{Name: b.name, Text: []byte(strings.Join(lines, "\n\n")), Layer: name}, Options{Granting: name == "", Lists: vectorLists})
		if err != nil {
			t.Fatal(err)
		}
		layers = append(layers, policy.Layer{Name: name, Text: c.Cedar, Lists: vectorLists})
	}
	p, err := policy.Load(layers, policy.Binding{Workspace: "/w", Home: "/home/u"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestMeaning runs the vectors of decision 0002 from the English on.
func TestMeaning(t *testing.T) {
	for _, b := range readVectors(t, "../../test/corpus/meaning.txt") {
		t.Run(b.name, func(t *testing.T) {
			p := b.load(t)
			for _, line := range b.calls {
				call, want, _ := strings.Cut(line, " => ")
				if got := verdictText(p.Decide(parseCall(call))); got != want {
					t.Errorf("%s => %s, want %s", call, got, want)
				}
			}
		})
	}
}

// verdictText writes a decision as vectors do.
func verdictText(d policy.Decision) string {
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
		if id == policy.Default {
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

// parseCall reads the left side of a vector.
func parseCall(call string) policy.Query {
	q := policy.Query{Principal: "p/a", Args: map[string]any{}, Now: time.Unix(0, 0)}
	counts := map[string]int64{}
	q.Counts = func(c string) int64 { return counts[c] }
	for part := range strings.SplitSeq(call, " ; ") {
		f := strings.Fields(part)
		e := act.Effect{Kind: act.Kind(f[0]), Resource: act.Resource{Type: act.Kind(f[0]).On(), Text: f[1], Facts: map[string]any{}}}
		for _, w := range f[2:] {
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
				q.Args[key[4:]] = scalarOf(value)
			case strings.HasPrefix(key, "count:"):
				counts[key[6:]], _ = strconv.ParseInt(value, 10, 64)
			case key == "age":
				e.Resource.Facts[act.FactAgeHours] = scalarOf(value)
			default:
				e.Resource.Facts[key] = scalarOf(value)
			}
		}
		q.Effects = append(q.Effects, e)
	}
	if q.Tool == "" && q.Effects[0].Kind == act.Call {
		q.Tool = q.Effects[0].Resource.Text
	}
	return q
}

func scalarOf(s string) any {
	if n, err := strconv.ParseInt(s, 10, 64); err == nil {
		return n
	}
	if b, err := strconv.ParseBool(s); err == nil {
		return b
	}
	return s
}
