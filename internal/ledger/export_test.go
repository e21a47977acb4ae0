package ledger

import (
	"bytes"
	"crypto/ed25519"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/sumdb/tlog"

	"ringfence/internal/sys/keychain"
)

var update = flag.Bool("update", false, "write the vectors in testdata anew")

// forged is an export that its maker can shape at will, key included.
type forged struct {
	session string
	leaves  [][]byte // all in the tree, those of others among them
	mine    []int64  // indexes of the session's
	key     ed25519.PrivateKey
}

func (f forged) export(t testing.TB) []byte {
	t.Helper()
	var tree frontier
	hashes := map[int64]tlog.Hash{}
	reader := tlog.HashReaderFunc(func(indexes []int64) (out []tlog.Hash, err error) {
		for _, i := range indexes {
			out = append(out, hashes[i])
		}
		return out, nil
	})
	for n, raw := range f.leaves {
		stored, err := tlog.StoredHashes(int64(n), raw, reader)
		if err != nil {
			t.Fatal(err)
		}
		for i, h := range stored {
			hashes[tlog.StoredHashIndex(0, int64(n))+int64(i)] = h
		}
		tree.add(leafHash(raw), func(tileRoot) {})
	}
	s, err := signer(f.key, "example.com/test")
	if err != nil {
		t.Fatal(err)
	}
	c, err := sign(s, tree.size, tree.root())
	if err != nil {
		t.Fatal(err)
	}
	out := []byte(exportHeader(f.session, int64(len(f.mine)), f.key.Public().(ed25519.PublicKey), c))
	for _, i := range f.mine {
		path, err := tlog.ProveRecord(c.Size, i, reader)
		if err != nil {
			t.Fatal(err)
		}
		out = fmt.Appendf(out, "%d %s %s\n", i, encodePath(path), f.leaves[i])
	}
	return out
}

// chainOf makes leaves of one session with the given bodies, and its end.
func chainOf(session string, bodies ...string) forged {
	f := forged{session: session, key: testKey}
	prev := [32]byte{}
	for i, body := range append(bodies, "{}") {
		typ := "note"
		if i == len(bodies) {
			typ = TypeEnd
		}
		raw := appendLeaf(nil, leaf{
			body: []byte(body), session: []byte(session), typ: []byte(typ), prev: prev, boot: 1, seq: int64(i),
			time: fmt.Appendf(nil, "2026-11-30T12:00:00.%06dZ", i),
		})
		f.leaves, f.mine = append(f.leaves, raw), append(f.mine, int64(i))
		prev = leafHash(raw)
	}
	return f
}

func verifyBytes(t testing.TB, b []byte, trusted ...ed25519.PublicKey) Verification {
	t.Helper()
	v, err := VerifyExport(bytes.NewReader(b), trusted)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func exportOf(t testing.TB, l *Ledger, session string) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := l.Export(t.Context(), session, &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// smallExport is a session of three entries among others.
func smallExport(t testing.TB) []byte {
	l := mustOpen(t, t.TempDir(), testOptions())
	mustAppend(t, l, Entry{"a", "request", []byte(`{"tool":"fs.read"}`)}, Entry{"b", "request", []byte(`{"n":1.5}`)})
	mustAppend(t, l, Entry{"a", "decision", []byte(`{"verdict":"allow"}`)}, Entry{"b", "note", []byte(`{}`)})
	mustAppend(t, l, Entry{"a", TypeEnd, []byte(`{}`)})
	return exportOf(t, l, "a")
}

func TestExportOfLargeLedger(t *testing.T) {
	l := mustOpen(t, t.TempDir(), testOptions())
	for i := range 1500 {
		session := fmt.Sprint("s", i%2)
		if i%500 == 7 {
			session = "rare"
		}
		mustAppend(t, l, Entry{session, "decision", fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	mustAppend(t, l, Entry{"rare", TypeEnd, []byte("{}")})
	if v := verifyBytes(t, exportOf(t, l, "rare"), testPublic...); v.Status != Valid || v.Entries != 4 || v.Session != "rare" || !v.Ended || v.Size < 1502 {
		t.Errorf("ended session: %+v", v)
	}
	if v := verifyBytes(t, exportOf(t, l, "s1"), testPublic...); v.Status != Incomplete || !strings.Contains(v.Reason, "not ended") || v.Entries != 747 {
		t.Errorf("running session: %+v", v)
	}
	if err := l.Export(t.Context(), "none", &bytes.Buffer{}); err == nil {
		t.Error("exported a session that is not there")
	}
}

// TestR13EveryBit flips each bit of an export: the result must be Invalid,
// whether or not the key is trusted.
func TestR13EveryBit(t *testing.T) {
	good := smallExport(t)
	if v := verifyBytes(t, good, testPublic...); v.Status != Valid {
		t.Fatalf("unchanged: %+v", v)
	}
	for i := range len(good) * 8 {
		bad := bytes.Clone(good)
		bad[i/8] ^= 1 << (i % 8)
		if v := verifyBytes(t, bad, testPublic...); v.Status != Invalid || v.Reason == "" || v.Line == 0 {
			t.Fatalf("bit %d of byte %d flipped: %+v\n%s", i%8, i/8, v, bad)
		}
		if v := verifyBytes(t, bad); v.Status != Invalid {
			t.Fatalf("bit %d of byte %d flipped, no key trusted: %+v", i%8, i/8, v)
		}
	}
	// The last digit of base64 has bits that mean nothing.
	for i := range len(good) - 1 {
		if good[i+1] != '=' {
			continue
		}
		for c := range 256 {
			bad := bytes.Clone(good)
			bad[i] = byte(c)
			if v := verifyBytes(t, bad, testPublic...); v.Status != Invalid && byte(c) != good[i] {
				t.Fatalf("byte %d changed to %q: %+v", i, byte(c), v)
			}
		}
	}
	for n := range good {
		if v := verifyBytes(t, good[:n], testPublic...); v.Status != Invalid {
			t.Fatalf("cut to %d bytes: %+v", n, v)
		}
	}
}

// An exportCase is an export and what verifying it must give.
type exportCase struct {
	name   string
	bytes  []byte
	status Status
	line   int
	index  int64
}

// r13Cases are the ways to cheat with an export that are not bit flips.
func r13Cases(t *testing.T) []exportCase {
	good := string(smallExport(t))
	lines := strings.SplitAfter(good, "\n")
	head, entries := lines[:11], lines[11:14]
	join := func(count string, e ...string) []byte {
		h := strings.Replace(strings.Join(head, ""), "entries 3", "entries "+count, 1)
		return []byte(h + strings.Join(e, ""))
	}
	index := func(line string) int64 {
		n, _ := strconv.ParseInt(line[:strings.Index(line, " ")], 10, 64)
		return n
	}
	stranger := ed25519.NewKeyFromSeed([]byte(strings.Repeat("s", 32)))
	fork, forgedKey, future, foreign := chainOf("a", `{"n":1}`, `{"n":2}`), chainOf("a", `{"n":1}`), chainOf("a", `{"n":1}`, `{"n":2}`), chainOf("a", `{"n":1}`)
	fork.leaves = append(fork.leaves, appendLeaf(nil, leaf{
		body: []byte(`{"n":3}`), session: []byte("a"), typ: []byte(TypeEnd), prev: leafHash(fork.leaves[0]), boot: 1, seq: 1,
		time: []byte("2026-11-30T12:00:00.000009Z"),
	}))
	fork.mine = []int64{0, 1, 3}
	forgedKey.key = stranger
	future.leaves[1] = bytes.Replace(future.leaves[1], []byte(`"v":1}`), []byte(`"v":2}`), 1)
	foreign.leaves[1] = bytes.Replace(foreign.leaves[1], []byte(`"session":"a"`), []byte(`"session":"b"`), 1)
	backwards := chainOf("a", `{}`)
	backwards.leaves[0] = bytes.Replace(backwards.leaves[0], []byte("2026"), []byte("2027"), 1)
	unlinked := chainOf("a", `{}`, `{}`)
	unlinked.leaves[0] = bytes.Replace(unlinked.leaves[0], []byte("{}"), []byte(`{"a":1}`), 1)
	early := chainOf("a", `{}`, `{}`)
	early.leaves[1] = bytes.Replace(early.leaves[1], []byte(`"note"`), []byte(`"session-end"`), 1)
	early.leaves[2] = bytes.Replace(early.leaves[2], fmt.Appendf(nil, "%x", leafHash(chainOf("a", `{}`, `{}`).leaves[1])), fmt.Appendf(nil, "%x", leafHash(early.leaves[1])), 1)
	return []exportCase{
		{"unchanged", []byte(good), Valid, 0, -1},
		{"deletion in the middle", join("2", entries[0], entries[2]), Invalid, 13, index(entries[2])},
		{"deletion of the end", join("2", entries[0], entries[1]), Incomplete, 0, -1},
		{"deletion of the beginning", join("2", entries[1], entries[2]), Invalid, 12, index(entries[1])},
		{"truncation", join("3", entries[0], entries[1]), Invalid, 14, -1},
		{"reordering", join("3", entries[1], entries[0], entries[2]), Invalid, 12, index(entries[1])},
		{"repetition", join("4", entries[0], entries[0], entries[1], entries[2]), Invalid, 13, index(entries[0])},
		{"something after the end", join("3", append(entries, "\n")...), Invalid, 15, -1},
		{"no entries", join("0"), Invalid, 3, -1},
		{"entry under another index", join("3", strings.Replace(entries[0], "1 ", "2 ", 1), entries[1], entries[2]), Invalid, 12, 2},
		{"fork", fork.export(t), Invalid, 14, 3},
		{"forged checkpoint by a stranger", forgedKey.export(t), Incomplete, 0, -1},
		{"forged checkpoint under our key", bytes.Replace(forgedKey.export(t), []byte(publicText(stranger)), []byte(publicText(testKey)), 1), Invalid, 10, -1},
		{"rollback of the checkpoint only", bytes.Replace([]byte(good), []byte("\n6\n"), []byte("\n5\n"), 1), Invalid, 10, -1},
		{"other session", bytes.Replace([]byte(good), []byte("session a"), []byte("session b"), 1), Invalid, 2, -1},
		{"fewer entries than there are", join("2", entries...), Invalid, 14, -1},
		{"changed entry", bytes.Replace([]byte(good), []byte("allow"), []byte("alloy"), 1), Invalid, 13, index(entries[1])},
		{"broken entry", bytes.Replace([]byte(good), []byte(`"verdict":`), []byte(`"verdict" `), 1), Invalid, 13, index(entries[1])},
		{"changed signature", []byte(strings.Replace(good, lines[9], lines[9][:40]+"AAAA"+lines[9][44:], 1)), Invalid, 10, -1},
		{"entry of another session", foreign.export(t), Invalid, 13, 1},
		{"time goes back", backwards.export(t), Invalid, 13, 1},
		{"unlinked", unlinked.export(t), Invalid, 13, 1},
		{"entry after the end", early.export(t), Invalid, 14, 2},
		{"unknown leaf version", future.export(t), Incomplete, 0, -1},
		{"unknown version", bytes.Replace(future.export(t), []byte("export/v1\nsession"), []byte("export/v2\nSESSION"), 1), Incomplete, 1, -1},
		{"version 1 that says 2", bytes.Replace([]byte(good), []byte("export/v1"), []byte("export/v2"), 1), Invalid, 1, -1},
		{"not an export", []byte("PK\x03\x04"), Invalid, 1, -1},
		{"empty", nil, Invalid, 1, -1},
		{"long line", bytes.Repeat([]byte("x"), maxLine*2), Invalid, 1, -1},
	}
}

// inWords is what a person is told of those cases.
var inWords = map[string]string{
	"deletion in the middle":          "entry 5: it is number 2 of session a, and number 1, which belongs before it, is missing",
	"truncation":                      "line 3 says that there are 3 entries, and 2 are whole",
	"reordering":                      "number 0, which belongs before it, is missing or was moved",
	"repetition":                      "entry 1: it is there twice",
	"something after the end":         "something follows the last of the 3 entries",
	"fewer entries than there are":    "something follows the last of the 2 entries that line 3 says there are",
	"entry under another index":       "entry 2: it is not what was signed: its number",
	"forged checkpoint under our key": "lines 6 to 10, with the key in line 4",
	"rollback of the checkpoint only": "lines 6 to 10, with the key in line 4",
	"changed signature":               "its signature is not by the key in force over what it says",
	"other session":                   "the header says session b, and the entries are of session a",
	"entry of another session":        "entry 1: it is of session b, not a",
	"changed entry":                   "entry 3: it is not what was signed",
	"broken entry":                    "what was recorded has been changed (",
	"unlinked":                        "it and entry 0, the one before it in session a, do not fit together",
	"entry after the end":             "session a had ended before it, with entry 1",
	"empty":                           "not an export",
	"not an export":                   "not an export",
	"forged checkpoint by a stranger": "not among the trusted keys",
	"version 1 that says 2":           "it says that it is version 2",
}

func TestR13Export(t *testing.T) {
	for _, c := range r13Cases(t) {
		v := verifyBytes(t, c.bytes, testPublic...)
		if v.Status != c.status || v.Line != c.line || v.Index != c.index || (v.Reason == "") != (c.status == Valid) || !strings.Contains(v.Reason, inWords[c.name]) {
			t.Errorf("%s: %v at line %d, index %d (%s); want %v at %d, %d", c.name, v.Status, v.Line, v.Index, v.Reason, c.status, c.line, c.index)
		}
	}
	if v := verifyBytes(t, smallExport(t), ed25519.NewKeyFromSeed(make([]byte, 32)).Public().(ed25519.PublicKey)); v.Status != Incomplete {
		t.Errorf("wrong key: %+v, want incomplete", v)
	}
}

// bodies are the bodies of testdata/bodies.jsonl: JSON strings that hold a body,
// and whether it is canonical.
func bodies(t *testing.T) (cases []exportCase) {
	text, err := os.ReadFile("testdata/bodies.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		var c struct {
			Body  string `json:"body"`
			Bytes []byte `json:"base64"` // for bytes that are not text
			Valid bool   `json:"valid"`
		}
		if err := json.Unmarshal([]byte(line), &c); err != nil {
			t.Fatalf("bodies.jsonl:%d: %v", i+1, err)
		}
		want := exportCase{fmt.Sprintf("bodies.jsonl:%d", i+1), chainOf("a", c.Body+string(c.Bytes)).export(t), Valid, 0, -1}
		if !c.Valid {
			want.status, want.line, want.index = Invalid, 12, 0
		}
		cases = append(cases, want)
	}
	return cases
}

func TestBodies(t *testing.T) {
	for _, c := range bodies(t) {
		if v := verifyBytes(t, c.bytes, testPublic...); v.Status != c.status || v.Line != c.line || v.Index != c.index {
			t.Errorf("%s: %+v, want %v", c.name, v, c.status)
		}
	}
}

// TestVectors checks that the vectors in testdata are what this program makes,
// from a fixed key and clock, and that they verify as they should.
func TestVectors(t *testing.T) {
	vectors := map[string][]byte{"small.export": smallExport(t), "key.pub": []byte(keychain.PublicText(testPublic[0]) + "\n")}
	l := mustOpen(t, t.TempDir(), testOptions())
	for i := range 300 {
		session := "long"
		if i%20 != 0 {
			session = "other"
		}
		mustAppend(t, l, Entry{session, "note", fmt.Appendf(nil, `{"é":%d.5,"\u20ac":"\u0007","n":%de-3}`, i, i)})
	}
	vectors["running.export"] = exportOf(t, l, "long")
	record := all(t, l, Query{FromIndex: 200, Limit: 1})[0]
	proof, err := l.Prove(t.Context(), 200)
	if err != nil {
		t.Fatal(err)
	}
	vectors["entry200.tlog-proof"], vectors["entry200.leaf"] = proof, record.Raw
	for name, want := range vectors {
		path := filepath.Join("testdata", name)
		if *update {
			if err := os.WriteFile(path, want, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s is not what this program makes (%v); if the format has changed, say so and run with -update", path, err)
		}
	}
	if v := VerifyProof(proof, record.Raw, testPublic); v.Status != Valid || v.Size != 301 {
		t.Errorf("proof: %+v", v)
	}
	if v := VerifyProof(proof, record.Raw, nil); v.Status != Incomplete {
		t.Errorf("proof without a trusted key: %+v", v)
	}
	for i := range len(proof) * 8 {
		bad := bytes.Clone(proof)
		bad[i/8] ^= 1 << (i % 8)
		if v := VerifyProof(bad, record.Raw, testPublic); v.Status == Valid {
			t.Fatalf("bit %d of byte %d of a proof flipped: valid", i%8, i/8)
		}
	}
	if v := VerifyProof(proof, append(record.Raw, ' '), testPublic); v.Status != Invalid || v.Index != 200 {
		t.Errorf("proof of another leaf: %+v", v)
	}
}

// TestAU07SecondVerifier has docs/verify-export.mjs judge every case above and
// random mutations, and expects the same answers as ours.
func TestAU07SecondVerifier(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal("needs node")
		}
		t.Skip("needs node")
	}
	cases := append(r13Cases(t), bodies(t)...)
	rng := rand.New(rand.NewPCG(7, 7))
	good := smallExport(t)
	for i := range 400 {
		cases = append(cases, exportCase{name: fmt.Sprint("mutation ", i), bytes: mutate(rng, good)})
	}
	dir := t.TempDir()
	args := []string{"../../docs/verify-export.mjs", "--key", publicText(testKey)}
	for i, c := range cases {
		path := filepath.Join(dir, fmt.Sprint(i))
		if err := os.WriteFile(path, c.bytes, 0o600); err != nil {
			t.Fatal(err)
		}
		args = append(args, path)
	}
	cmd := exec.Command(node, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 1 {
		t.Fatalf("exit status of the second verifier: %v, want 1", err)
	}
	answers := strings.Split(strings.TrimSpace(string(out)), "\n")
	if len(answers) != len(cases) {
		t.Fatalf("%d answers to %d cases", len(answers), len(cases))
	}
	for i, c := range cases {
		var got struct {
			Status, Reason string
			Line           int
			Index          int64
		}
		if err := json.Unmarshal([]byte(answers[i]), &got); err != nil {
			t.Fatal(err)
		}
		want := verifyBytes(t, c.bytes, testPublic...)
		if got.Status != want.Status.String() || got.Line != want.Line || got.Index != want.Index {
			t.Errorf("%s: it says %+v, ours %+v\n%.2000q", c.name, got, want, c.bytes)
		}
	}
}

// mutate changes a few bytes or lines.
func mutate(rng *rand.Rand, good []byte) []byte {
	b := bytes.Clone(good)
	switch rng.IntN(4) {
	case 0:
		b[rng.IntN(len(b))] = byte(rng.Uint32())
	case 1:
		i := rng.IntN(len(b))
		b = append(b[:i:i], b[min(len(b), i+1+rng.IntN(4)):]...)
	case 2:
		i := rng.IntN(len(b))
		b = append(append(b[:i:i], good[rng.IntN(len(good)-8):][:8]...), good[i:]...)
	case 3:
		lines := bytes.SplitAfter(b, []byte("\n"))
		i, j := rng.IntN(len(lines)), rng.IntN(len(lines))
		lines[i], lines[j] = lines[j], lines[i]
		b = bytes.Join(lines, nil)
	}
	return b
}

func FuzzVerifyExport(f *testing.F) {
	for _, name := range []string{"small.export", "running.export"} {
		b, err := os.ReadFile(filepath.Join("testdata", name))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b[:min(len(b), 4000)])
	}
	small, err := os.ReadFile("testdata/small.export")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if v := verifyBytes(t, b, testPublic...); v.Status == Valid && !bytes.Equal(b, small) {
			t.Errorf("an export that was never made is valid: %q", b)
		}
	})
}

func FuzzParseLeaf(f *testing.F) {
	for _, raw := range chainOf("a", `{"a":[1,"\n",{"é":null}]}`).leaves {
		f.Add(raw)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if l, err := parseLeaf(raw); err == nil && !bytes.Equal(appendLeaf(nil, l), raw) {
			t.Errorf("two spellings of one leaf: %q", raw)
		}
	})
}
