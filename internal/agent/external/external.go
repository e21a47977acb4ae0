// Package external knows agents and editors that are not ours: where each keeps the list
// of its MCP servers, and in what form ([Place]); what it needs to run in a box ([Adapter]);
// and how its settings are changed, so that it works through us outside of one ([Editor]).
//
// It is not an installer and starts nothing: it turns files that are given to it into
// entries of the JSON that every client uses ([Entry.Raw]), which package mediator reads,
// and into other files, which its callers write.
//
// Invariants:
//
//	X1  An entry says what its file says and no more: a placeholder that cannot be
//	    written in the usual form is a [Entry.Problem], never a guess.
//	X2  Errors name line and column. No content makes it panic, and all is bounded.
//	X3  It reads no file and no environment: who calls it looks ([Look]).
//	X4  What an agent gets of the person's settings is what its adapter names, without keys.
//	X5  A program is shown with what belongs to it, never with the person's home or a
//	    directory that other programs of his share.
//	X6  A change of settings leaves every byte that it is not about, comments too.
package external

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
)

// A Place is where a program keeps a list of servers.
type Place struct {
	File    string // absolute
	Project bool   // it belongs to the project, and so may have come with a repository
	form    form
}

// A form is how a list is written.
type form struct {
	read func(data []byte, project string) ([]Entry, error)
}

// An Entry is one server of a list.
type Entry struct {
	Name    string
	Raw     []byte   // the value of a member of "mcpServers"; nil if there is a problem
	Problem string   // why it cannot be taken over, "" if it can
	Secret  []string // names of variables and headers whose value stands in the file
}

// maxEntries bounds the entries of one list.
const maxEntries = 256

// A client is one program.
type client struct {
	name   string
	places func(home, config, project string) []Place
}

// clients are the programs that are known, by the name a person types.
func clients() []client {
	return []client{
		{"claude", func(home, config, project string) []Place {
			return []Place{
				{File: filepath.Join(home, ".claude.json"), form: form{claude}},
				{File: filepath.Join(config, "Claude", "claude_desktop_config.json"), form: form{usual}},
				{File: filepath.Join(home, "Library", "Application Support", "Claude", "claude_desktop_config.json"), form: form{usual}},
				{File: filepath.Join(project, ".mcp.json"), Project: true, form: form{usual}},
			}
		}},
		{"cursor", func(home, _, project string) []Place {
			return []Place{
				{File: filepath.Join(home, ".cursor", "mcp.json"), form: form{usual}},
				{File: filepath.Join(project, ".cursor", "mcp.json"), Project: true, form: form{usual}},
			}
		}},
		{"vscode", func(home, config, project string) []Place {
			return []Place{
				{File: filepath.Join(config, "Code", "User", "mcp.json"), form: form{vscode}},
				{File: filepath.Join(home, "Library", "Application Support", "Code", "User", "mcp.json"), form: form{vscode}},
				{File: filepath.Join(project, ".vscode", "mcp.json"), Project: true, form: form{vscode}},
			}
		}},
		{"codex", func(home, _, project string) []Place {
			return []Place{
				{File: filepath.Join(home, ".codex", "config.toml"), form: form{codex}},
				{File: filepath.Join(project, ".codex", "config.toml"), Project: true, form: form{codex}},
			}
		}},
		{"gemini", func(home, _, project string) []Place {
			return []Place{
				{File: filepath.Join(home, ".gemini", "settings.json"), form: form{gemini}},
				{File: filepath.Join(project, ".gemini", "settings.json"), Project: true, form: form{gemini}},
			}
		}},
	}
}

// Names returns the programs that are known.
func Names() []string {
	var names []string
	for _, c := range clients() {
		names = append(names, c.name)
	}
	return names
}

// Places returns where the program called name keeps its lists, for the person whose
// home is home and whose configuration is beneath config, and for the project. All are
// absolute. It returns nil for a program that is not known.
func Places(name, home, config, project string) []Place {
	i := slices.IndexFunc(clients(), func(c client) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return clients()[i].places(home, config, project)
}

// Read reads the list data from p. project is what a list for many projects is looked
// up by. Entries come in the order of their names. Errors begin with line:column.
func (p Place) Read(data []byte, project string) ([]Entry, error) {
	entries, err := p.form.read(data, project)
	if err != nil {
		return nil, err
	}
	if len(entries) > maxEntries {
		return nil, fmt.Errorf("1:1: %d servers, at most %d", len(entries), maxEntries)
	}
	slices.SortStableFunc(entries, func(a, b Entry) int { return strings.Compare(a.Name, b.Name) })
	return entries, nil
}
