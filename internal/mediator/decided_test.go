package mediator

import "testing"

// TestD4Undecided: what of a request is not decided reaches no server, and the rest keeps its bytes.
func TestD4Undecided(t *testing.T) {
	const parent = `"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"`
	for _, c := range []struct{ method, sent, want string }{
		{"resources/read", `{"uri":"x:1","path":"/etc/shadow","Extra":{"k":"s"},"_meta":{"k":1,"io.modelcontextprotocol/x":2},"task":{"a":1}}`, `{"uri":"x:1","_meta":{}}`},
		{"resources/read", `{"a":1, "uri" : "x:1" ,"inputResponses":{"a":1},"requestState":"s"}`, `{"uri" : "x:1"}`},
		{"resources/read", `{"_meta":{` + parent + `,"tracestate":"a=b","baggage":"c=d"},"uri":"x:1"}`, `{"_meta":{` + parent + `},"uri":"x:1"}`},
		{"resources/read", `{"_meta":{"traceparent":"a secret","trace\u0073tate":"a"},"uri":"x:1"}`, `{"_meta":{},"uri":"x:1"}`},
		{"tools/call", `{"name":"a","arguments":{"x":1},"uri":"u","_meta":{"z":1,"progressToken":5},"task":{"ttl":9,"note":"s"}}`, `{"name":"a","arguments":{"x":1},"_meta":{"progressToken":7},"task":{"ttl":9}}`},
		{"tools/call", `{"name":"a","task":{"ttl":"a secret"}}`, `{"name":"a","task":{}}`},
	} {
		m, err := readClient([]byte(`{"more":{"s":1},"jsonrpc":"2.0","id":"a","method":"` + c.method + `","params":` + c.sent + `,"extra":[1]}`))
		if err != nil {
			t.Fatal(err)
		}
		var line []byte
		if c.method == "tools/call" {
			p, rerr := readCall(m)
			if err = rerr; err == nil {
				line, err = p.toServer(m, 7, "a", oneOr(p.arguments.of(m.raw)))
			}
		} else {
			row, _ := methodOf(c.method, inBoth)
			p, rerr := readParams(m, row)
			if err = rerr; err == nil {
				line, err = p.toServer(m, 7, p.decided(m))
			}
		}
		want := `{"jsonrpc":"2.0","id":7,"method":"` + c.method + `","params":` + c.want + "}\n"
		if err != nil || string(line) != want {
			t.Errorf("%s\nbecomes %s\nwant    %s %v", c.sent, line, want, err)
		}
	}
}

func oneOr(args []byte) []byte {
	if args == nil {
		return []byte("{}")
	}
	return args
}
