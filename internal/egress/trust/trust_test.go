package trust

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"encoding/pem"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

func certificate(text string) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(text)})
}

// Each field by field, as the format has it; the suite of tools has Java read one.
func TestStore(t *testing.T) {
	bundle := Bundle(slices.Concat([]byte("# roots\n"), certificate("first"), pem.EncodeToMemory(&pem.Block{Type: "CRL", Bytes: []byte("x")})), certificate("ours"))
	got := Store(bundle, time.UnixMilli(0x1234))
	const want = "feedfeed 00000002 00000002" +
		" 00000002 0006 726f6f742d31 0000000000001234 0005 582e353039 00000005 6669727374" +
		" 00000002 0006 726f6f742d32 0000000000001234 0005 582e353039 00000004 6f757273"
	body, sum := got[:len(got)-sha1.Size], got[len(got)-sha1.Size:]
	if hex.EncodeToString(body) != strings.ReplaceAll(want, " ", "") {
		t.Errorf("%x", body)
	}
	salted := slices.Concat([]byte("\x00c\x00h\x00a\x00n\x00g\x00e\x00i\x00tMighty Aphrodite"), body)
	if s := sha1.Sum(salted); !bytes.Equal(s[:], sum) {
		t.Errorf("the sum is %x, not %x", sum, s)
	}
}

// T1 and T2.
func TestBundle(t *testing.T) {
	ours := certificate("ours")
	for _, system := range []string{"", "no certificates", "-----BEGIN CERTIFICATE-----\ncut", string(certificate("theirs"))} {
		all := Bundle([]byte(system), ours)
		if !bytes.HasPrefix(all, []byte(system)) || !bytes.HasSuffix(all, ours) {
			t.Errorf("%q: %q", system, all)
		}
		if n := binary.BigEndian.Uint32(Store(all, time.Now())[8:]); n == 0 {
			t.Errorf("%q: ours is not in the store", system)
		}
	}
}

// Each line of testdata/environment.txt is a variable as Go, Python, curl, … read it.
func TestEnvironment(t *testing.T) {
	text, err := os.ReadFile("testdata/environment.txt")
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(strings.TrimSpace(string(text)), "\n")
	got := Environment([]string{"HOME=/h", "no_proxy=mine", "JAVA_TOOL_OPTIONS=-Dmine=1"}, 3128, false)
	routed := Environment(nil, 3128, true)
	if told := func(kv string) bool { return strings.HasPrefix(kv, "NODE_USE_ENV_PROXY=") }; slices.ContainsFunc(routed, told) || !slices.ContainsFunc(got, told) {
		t.Error("Node is told of the proxy where it need not be, or not where it must")
	}
	slices.Sort(got)
	if os.Getenv("RINGFENCE_TEST_UPDATE") != "" {
		if err := os.WriteFile("testdata/environment.txt", []byte(strings.Join(got, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s", strings.Join(got, "\n"))
	}
}
