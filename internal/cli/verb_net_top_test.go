package cli

import (
	"encoding/json"
	"strings"
	"testing"
)

// TestNetTop: what entries add up to.
func TestNetTop(t *testing.T) {
	top := &netTop{log: netLog{asked: map[string][]netLine{}, open: map[string]bool{}}, by: map[string]*topRow{}, of: map[string]string{}}
	for _, e := range []string{
		`{"session":"s","seq":1,"time":"t1","type":"request","body":{"verb":"effect","effects":[{"kind":"fetch","resource":{"type":"URL","text":"https://a.org/x"}}]}}`,
		`{"session":"s","seq":2,"time":"t2","type":"decision","body":{"verdict":"allow"}}`,
		`{"session":"s","seq":3,"time":"t3","type":"result","body":{"ticket":"s/2","carried":{"sent":10,"received":2048}}}`,
		`{"session":"s","seq":4,"time":"t4","type":"request","body":{"verb":"effect","arguments":"{\"repeated\":4}","effects":[{"kind":"connect","resource":{"type":"Host","text":"b.org:443"}}]}}`,
		`{"session":"s","seq":5,"time":"t5","type":"decision","body":{"verdict":"deny"}}`,
		`{"session":"s","seq":6,"time":"t6","type":"request","body":{"verb":"effect","effects":[{"kind":"send","resource":{"type":"URL","text":"https://m.org/v1"}},{"kind":"infer","resource":{"type":"Model","text":"p/m"}}]}}`,
		`{"session":"s","seq":7,"time":"t7","type":"decision","body":{"verdict":"allow"}}`,
		`{"session":"s","seq":8,"time":"t8","type":"result","body":{"ticket":"s/7","carried":{"sent":5,"received":5,"micro_usd":1500000,"usage":{"input":3,"output":4,"cache_read":2}}}}`,
		`{"session":"s","seq":9,"time":"t9","type":"request","body":{"verb":"packages/list","effects":[{"kind":"install","resource":{"type":"Package","text":"npm:a"}}]}}`,
		`{"session":"s","seq":10,"time":"t10","type":"decision","body":{"verdict":"allow"}}`,
		`{"session":"s","seq":11,"time":"t11","type":"request","body":{"verb":"tools/call","effects":[{"kind":"read","resource":{"type":"Path","text":"/a"}}]}}`,
		`{"session":"s","seq":12,"time":"t12","type":"decision","body":{"verdict":"allow"}}`,
	} {
		if err := top.take(json.RawMessage(e)); err != nil {
			t.Fatal(err)
		}
	}
	want := `TO            ALLOWED  DENIED  OUT  IN    TOKENS  USD     LAST
a.org:443     1        0       10   2.0K  0       -       t3
model p/m     1        0       5    5     9       1.5000  t8
b.org:443     0        5       0    0     0       -       t5
npm packages  1        0       0    0     0       -       t10
`
	if got := topText(top.rows()); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if got := topText(nil); !strings.HasPrefix(got, "Nothing") || bytesText(3<<20) != "3.0M" || bytesText(5<<30) != "5.0G" {
		t.Error(got)
	}
}
