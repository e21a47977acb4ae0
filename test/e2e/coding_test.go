//go:build unix

package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestCodingTask: an ordinary task of forty calls under the shipped constitution
// for coding. Nothing that belongs to it is denied, and a person is asked twice:
// about the file that is deleted, and about the push.
func TestCodingTask(t *testing.T) {
	p := newPlace(t)
	p.file("go.mod", "module greet\n\ngo 1.26\n")
	p.file("greet.go", "package greet\n\n// Hello greets.\nfunc Hello(name string) string { return \"Helo, \" + name }\n")
	p.file("old.go", "package greet\n\nfunc old() {}\n")
	p.file("docs/notes.md", "# Notes\n")
	remote := p.repository()
	text := p.file(p.home+"/coding.md", p.ok("constitution", "shipped", "coding")+
		"\nThe agent may create and edit files in ~/remotes.\n")
	p.ok("constitution", "compile", text, "-o", p.home+"/coding")
	asked := p.approver()
	s := p.mcp("--policy", p.home+"/coding", "--servers", p.servers(map[string]any{
		"filesystem": map[string]any{"ringfence": map[string]any{"builtin": "filesystem"}},
		"git":        map[string]any{"ringfence": map[string]any{"builtin": "git", "paths": []string{remote}}},
	}))
	author := map[string]any{"name": "Agent", "email": "agent@example.com"}
	type args = map[string]any
	task := []struct {
		tool string
		args args
	}{
		{"filesystem__list_allowed_directories", args{}},
		{"filesystem__list_directory", args{"path": "."}},
		{"filesystem__directory_tree", args{"path": "."}},
		{"filesystem__read_text_file", args{"path": "go.mod"}},
		{"filesystem__read_text_file", args{"path": "greet.go"}},
		{"filesystem__read_multiple_files", args{"paths": []string{"old.go", "docs/notes.md"}}},
		{"filesystem__search_files", args{"path": ".", "pattern": "*.go"}},
		{"filesystem__get_file_info", args{"path": "greet.go"}},
		{"git__git_status", args{}},
		{"git__git_log", args{"maxCount": 5}},
		{"git__git_branch", args{"mode": "create", "branchName": "fix-greeting"}},
		{"git__git_checkout", args{"target": "fix-greeting"}},
		{"filesystem__edit_file", args{"path": "greet.go", "edits": []any{args{"oldText": "Helo", "newText": "Hello"}}, "dryRun": true}},
		{"filesystem__edit_file", args{"path": "greet.go", "edits": []any{args{"oldText": "Helo", "newText": "Hello"}}}},
		{"filesystem__read_text_file", args{"path": "greet.go", "head": 4}},
		{"filesystem__create_directory", args{"path": "internal/words"}},
		{"filesystem__write_file", args{"path": "internal/words/words.go", "content": "package words\n"}},
		{"filesystem__write_file", args{"path": "greet_test.go", "content": "package greet\n"}},
		{"filesystem__write_file", args{"path": "greet_test.go", "content": "package greet\n\nimport \"testing\"\n\nfunc TestHello(t *testing.T) {}\n"}},
		{"filesystem__move_file", args{"source": "docs/notes.md", "destination": "docs/README.md"}},
		{"git__git_diff", args{}},
		{"git__git_diff", args{"nameOnly": true}},
		{"git__git_add", args{"paths": []string{"greet.go", "greet_test.go"}}},
		{"git__git_status", args{}},
		{"git__git_diff", args{"staged": true}},
		{"git__git_commit", args{"message": "Fix the greeting", "author": author}},
		{"git__git_show", args{"object": "HEAD"}},
		{"git__git_blame", args{"filePath": "greet.go"}},
		{"filesystem__delete_file", args{"path": "old.go"}},
		{"git__git_add", args{"all": true}},
		{"git__git_commit", args{"message": "Remove what is not used", "author": author}},
		{"git__git_log", args{"oneline": true}},
		{"git__git_checkout", args{"target": "main"}},
		{"git__git_merge", args{"branch": "fix-greeting"}},
		{"git__git_tag", args{"mode": "list"}},
		{"git__git_remote", args{"mode": "list"}},
		{"git__git_stash", args{"mode": "list"}},
		{"git__git_reflog", args{"maxCount": 3}},
		{"filesystem__list_directory_with_sizes", args{"path": "internal"}},
		{"git__git_push", args{"remote": "origin", "branch": "main"}},
	}
	if len(task) != 40 {
		t.Fatalf("the task has %d calls", len(task))
	}
	for i, c := range task {
		if text, failed := call(t, s, c.tool, c.args); failed {
			t.Errorf("call %d, %s %v: %s", i+1, c.tool, c.args, text)
		}
	}
	if n := asked(); n > 2 {
		t.Errorf("a person was asked %d times, more than 2", n)
	}
	if answers := p.ok("ledger", "show", "--type", "answer", "--json"); strings.Contains(answers, "refused") || strings.Count(answers, `"approved":true`) != asked() {
		t.Errorf("the answers on record are\n%s", answers)
	}
	denied := 0
	for _, c := range p.calls() {
		if strings.Contains(c, " deny") {
			denied++
			t.Log(c)
		}
	}
	if denied != 0 {
		t.Errorf("%d calls were denied", denied)
	}
	if out, err := git(remote, "log", "--format=%s", "main"); err != nil || !strings.HasPrefix(out, "Remove what is not used\nFix the greeting\n") {
		t.Errorf("the remote has %v %q", err, out)
	}
	if _, err := os.Stat(fmt.Sprintf("%s/old.go", p.work)); err == nil {
		t.Error("old.go is still there")
	}
	p.ok("ledger", "verify")
}
