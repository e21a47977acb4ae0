package mediator

import (
	"fmt"
	"strings"
	"testing"

	"ringfence/internal/act/strictjson"
)

// TestPagedResult: a large result comes as its beginning and pages, which together are it,
// each page decided; small ones and those for programs stay whole.
func TestPagedResult(t *testing.T) {
	whole := strings.Repeat("aé漢😀\n", 500)
	quoted, err := strictjson.Quote(whole)
	if err != nil {
		t.Fatal(err)
	}
	results := []string{
		`{"content":[{"type":"text","text":` + string(quoted) + `}],"isError":true}`,
		`{"content":[{"type":"text","text":` + string(quoted) + `}],"structuredContent":{}}`,
		`{"content":[{"type":"image","data":"` + strings.Repeat("A", 2000) + `"}]}`,
	}
	d := deciding("")
	c := converse(t, d, map[string][]fakeServer{"fs": {func(p *fakeProcess) {
		p.open(`{"name":"a"}`)
		for i, r := range results {
			p.hear()
			p.say(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":%s}`, 3+i, r))
		}
		p.drain()
	}}}, func(o *Options) { o.PageAbove = 1000 })
	c.open()
	line := c.ask(callLine("1", "a", "{}"), `"isError":true`, `"resource_link"`)
	text := func(line, pointer string) string {
		v, err := strictjson.Text([]byte(field(t, line, pointer)))
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	got, uri := text(line, "/content/0/text"), text(line, "/content/2/uri")
	pages := 0
	for ; uri != ""; pages++ {
		line = c.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"`+uri+`"}}`, `"contents"`)
		got += text(line, "/contents/0/text")
		if uri = ""; strings.Contains(line, "go on with") {
			uri = text(line, "/contents/1/uri")
		}
	}
	if got != whole || pages < 5 {
		t.Errorf("%d bytes on %d pages, of %d", len(got), pages, len(whole))
	}
	if n := len(d.logged("decide tools/call fs.resources/read ")); n != pages {
		t.Errorf("%d pages were decided, of %d", n, pages)
	}
	for _, bad := range []string{"none?from=0", "", "../etc/passwd?from=0"} {
		c.ask(`{"jsonrpc":"2.0","id":2,"method":"resources/read","params":{"uri":"`+spillPrefix+bad+`"}}`, `"code":-32002`)
	}
	c.ask(callLine("3", "a", "{}"), results[1])
	c.ask(callLine("4", "a", "{}"), `"resource_link"`, `\"type\":\"image\"`)
}
