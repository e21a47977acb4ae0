package external

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

// TestDeepSettingsEndNothing: settings that an agent has left in its home, or that come with a
// repository, cannot use up the stack of who reads them.
func TestDeepSettingsEndNothing(t *testing.T) {
	const n = maxFile/2 - 100
	for what, c := range map[string]struct{ form, text string }{
		"lists of JSON":        {"json", `{"a":` + strings.Repeat("[", n)},
		"objects of JSON":      {"json", strings.Repeat(`{"a":`, n/5)},
		"as many as are read":  {"json", `{"a":` + strings.Repeat("[", maxOpens-1)},
		"lists of TOML":        {"toml", "a=" + strings.Repeat("[", n) + strings.Repeat("]", n)},
		"as many of TOML":      {"toml", "a=" + strings.Repeat("[", maxOpens-1)},
		"tables of TOML":       {"toml", strings.Repeat("a.", n) + "a=1"},
		"tables in brackets":   {"toml", "[" + strings.Repeat("a.", n) + "a]"},
		"hidden by a comment":  {"toml", "a=" + strings.Repeat("[#]\n", n/2)},
		"hidden by characters": {"json", strings.Repeat(`{"]]":[`, n/7)},
	} {
		t.Run(what, func(t *testing.T) {
			f := File{Path: "~/x", Form: c.form, Set: []byte(`{"ours": true}`)}
			got, err := f.Make([]byte(c.text), nil, Values{}, false)
			if err != nil || !bytes.Contains(got, []byte("ours")) {
				t.Errorf("%v: %.80s", err, got)
			}
		})
	}
}

// TestScrubbedTakesNoKey: keys in other spellings, in addresses, lists and texts.
func TestScrubbedTakesNoKey(t *testing.T) {
	const theirs = `{
  "model": "m", "statusLine": {"type": "command", "command": "curl -H 'Authorization: Bearer hunter2-hunter2'"},
  "provider": {"p": {
    "options": {"baseURL": "https://u:hunter2@p.example/v1?key=hunter2#hunter2", "api-key": "hunter2", "key": "hunter2", "x-auth": 5, "auth": {"x": "hunter2"},
      "privateKey": "hunter2", "passphrase": "hunter2", "Cookie": "hunter2", "query_params": {"k": "hunter2"}, "maxTokens": 4096, "timeout": 5},
    "more": ["kept", "sk-hunter2-hunter2-hunter2", ["ghp_hunter2hunter2hunter2"]], "env": ["P_KEY"], "args": ["--key", "hunter2"]
  }}}`
	got, err := File{Form: "json", Keep: []string{"model", "statusLine", "provider"}}.Make(nil, []byte(theirs), Values{}, false)
	if err != nil || bytes.Contains(got, []byte("hunter2")) {
		t.Errorf("%v:\n%s", err, got)
	}
	for _, want := range []string{`"model": "m"`, "https://p.example/v1", "4096", "kept", "P_KEY", `"timeout": 5`} {
		if !bytes.Contains(got, []byte(want)) {
			t.Errorf("%s is left out:\n%s", want, got)
		}
	}
}

// TestRepositoryTurnsNoHookOff: settings of a repository that Claude Code reads go before those
// of its home, but not before its arguments.
func TestRepositoryTurnsNoHookOff(t *testing.T) {
	a := adapter(t, "claude")
	if with := a.Argv(Values{Hook: "x"}, false, nil); !slices.Contains(with, `{"disableAllHooks": false}`) {
		t.Errorf("%q", with)
	}
	if without := a.Argv(Values{}, false, nil); slices.Contains(without, "--settings") {
		t.Errorf("%q", without)
	}
}
