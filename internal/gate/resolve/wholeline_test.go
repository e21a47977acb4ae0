package resolve_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ringfence/internal/act"
	"ringfence/internal/gate/resolve"
	"ringfence/internal/policy"
)

// TestWholeLine: of a line that a shell runs as it is, each program and each file that it
// names counts, and what is only known when it runs is refused.
func TestWholeLine(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(dir, "bin")
	for _, name := range []string{"sh", "rm", "ls", "git", "sudo"} {
		if err := os.MkdirAll(bin, 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/true\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	view := resolve.View{Workspace: dir, Home: dir + "/home", Path: []string{bin}}
	ann := &policy.ToolAnnotation{Args: map[string]policy.Arg{"/c": {Role: policy.RoleCommand, Effects: []act.Kind{act.Execute}, Shell: true}}}
	for line, want := range map[string]string{
		"ls":                                  "execute ls",
		"d=sub; rm -rf $d":                    "execute sh, execute rm",
		"for f in *; do rm $f; done":          "execute sh, execute rm",
		"f() { rm x; }; f $y":                 "execute sh, execute rm",
		"echo $(git log) $x":                  "execute sh, execute git",
		"x=1; echo $x > out.txt":              "execute sh, create out.txt",
		"if ls $x; then echo; fi 2>/dev/null": "execute sh, execute ls",
		"d=/srv; echo x > $d/x":               "!",
		"$x -rf /":                            "!",
		`c=rm; "$c" a`:                        "!",
		"eval $x":                             "!",
		"sudo $x":                             "!",
		"ls $x | xargs rm":                    "execute sh, execute ls", // no xargs here
		"ls $(":                               "!",
	} {
		args, err := json.Marshal(map[string]string{"c": line})
		if err != nil {
			t.Fatal(err)
		}
		r, err := view.Call(resolve.Call{Tool: "agent.shell", Args: args, Annotation: ann, Dir: dir})
		got := "!"
		if err == nil {
			var all []string
			for _, e := range r.Effects {
				text := string(e.Kind) + " " + filepath.Base(e.Resource.Text)
				if e.Kind == act.Execute {
					program, _ := e.Resource.Facts[policy.FactProgram].(string)
					text = "execute " + program
				}
				all = append(all, text)
			}
			got = strings.Join(all, ", ")
		}
		if got != want {
			t.Errorf("%s: %s (%v), want %s", line, got, err, want)
		}
	}
}
