package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/agent/external"
	"ringfence/internal/daemon/api"
	"ringfence/internal/sys/paths"
)

// newAgents is "ringfence agents".
func newAgents(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "agents",
		Short: "See which agents are known, and what each needs",
		Long:  "See the agents that \"ringfence run\" knows by name, whether they are here, and what each needs.",
	}
	c.AddCommand(newAgentsList(s), newAgentsDoctor(s))
	return c
}

// A knownAgent is one line of the list.
type knownAgent struct {
	Name    string `json:"name"`
	Title   string `json:"title"`
	Program string `json:"program,omitempty"` // "" if it is not here
	Version string `json:"version,omitempty"` // as its package says, where it came in one
	Problem string `json:"problem,omitempty"` // why it cannot be run
}

func newAgentsList(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "List the agents that are known",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			all, err := external.List()
			if err != nil {
				return err
			}
			person, err := paths.UserHome()
			if err != nil {
				return err
			}
			known := make([]knownAgent, 0, len(all))
			for _, a := range all {
				known = append(known, knownOf(a, lookAround(person)))
			}
			return s.value(known, func() string {
				var b strings.Builder
				for _, k := range known {
					where := k.Program
					if where == "" {
						where = "not here"
					}
					fmt.Fprintf(&b, "%-9s %-12s %s %s\n", k.Name, k.Title, where, k.Version)
				}
				return b.String()
			})
		},
	}
}

func knownOf(a external.Adapter, look external.Look) knownAgent {
	k := knownAgent{Name: a.Name, Title: a.Title}
	p, err := a.Find(look)
	if err != nil {
		k.Problem = err.Error()
	}
	k.Program = p.Path
	k.Version = versionOf(p.Path)
	return k
}

// versionOf is the version that the package of a program says, "" if it is in none.
func versionOf(program string) string {
	for dir := filepath.Dir(program); len(dir) > 1 && strings.Contains(dir, "/node_modules/"); dir = filepath.Dir(dir) {
		text, err := os.ReadFile(filepath.Join(dir, "package.json"))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return ""
		}
		version, ok, err := strictjson.Find(text, "/version")
		if err != nil || !ok {
			return ""
		}
		return strings.Trim(string(version.Raw), `"`)
	}
	return ""
}

// An agentDiagnosis is what an agent needs to run, and whether it has it.
type agentDiagnosis struct {
	knownAgent
	Reads   []string `json:"reads,omitempty"` // beyond what every box sees
	Key     string   `json:"key"`             // "environment" or "vault", "" for none
	Needs   []string `json:"needs,omitempty"` // variables that hold one
	Keeps   []string `json:"keeps,omitempty"` // what is taken over of the person's settings
	Quiet   []string `json:"quiet,omitempty"` // hosts that it does not reach
	Home    string   `json:"home"`            // where its private homes are
	Good    bool     `json:"good"`
	Missing []string `json:"missing,omitempty"`
	Tested  string   `json:"tested,omitempty"` // the version that is known
	Quirks  []string `json:"quirks,omitempty"`

	Exits map[string]string `json:"exits,omitempty"` // what its exit statuses mean
}

func newAgentsDoctor(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:         "doctor NAME",
		Short:       "Find out what an agent needs, and whether it is there",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "something that it needs is missing"}),
		RunE: func(c *cobra.Command, args []string) error {
			a, err := adapterOf(args[0])
			if err != nil {
				return err
			}
			d, err := examineAgent(c.Context(), a)
			if err != nil {
				return err
			}
			if err := s.value(d, d.text); err != nil {
				return err
			}
			if !d.Good {
				return &exitError{code: codeFailed}
			}
			return nil
		},
	}
}

func examineAgent(ctx context.Context, a external.Adapter) (agentDiagnosis, error) {
	person, err := paths.UserHome()
	if err != nil {
		return agentDiagnosis{}, err
	}
	own, err := paths.EnsureHome()
	if err != nil {
		return agentDiagnosis{}, err
	}
	conf, _, err := settings()
	if err != nil {
		return agentDiagnosis{}, err
	}
	look := lookAround(person)
	d := agentDiagnosis{knownAgent: knownOf(a, look), Tested: a.Tested, Quirks: a.Quirks, Exits: a.Exits, Quiet: a.Quiet, Home: filepath.Join(paths.AgentHomes(own), a.Name)}
	if p, err := a.Find(look); err == nil {
		d.Reads = p.ReadOnly
	} else {
		d.Missing = append(d.Missing, err.Error())
	}
	for _, f := range a.Files {
		if len(f.Keep) > 0 {
			d.Keeps = append(d.Keeps, f.Path+": "+strings.Join(f.Keep, ", "))
		}
	}
	d.Keeps = append(d.Keeps, a.Instructions...)
	if p, ok := conf.Models.Named(a.Provider); ok {
		d.Needs = p.Variables
	}
	keys, err := ownSecrets(conf.Models.Keyed(), "")
	if err != nil {
		return d, err
	}
	for _, k := range keys {
		if k.Name == a.Provider {
			d.Key = "environment"
		}
	}
	if d.Key == "" {
		if d.Key, err = keptKey(ctx, a.Provider); err != nil {
			d.Missing = append(d.Missing, err.Error())
		}
	}
	d.Good = len(d.Missing) == 0
	return d, nil
}

// keptKey is "vault" if a key of that name is kept there, else "".
func keptKey(ctx context.Context, name string) (string, error) {
	where := ""
	err := with(ctx, connect, func(e *api.Client) error {
		l, err := e.Secrets(ctx)
		if slices.ContainsFunc(l.Secrets, func(i api.SecretInfo) bool { return i.Name == name }) {
			where = "vault"
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("looking for a key in the vault: %w", err)
	}
	return where, nil
}

func (d agentDiagnosis) text() string {
	var b strings.Builder
	line := func(what, value string) {
		if value != "" {
			fmt.Fprintf(&b, "%-9s %s\n", what, value)
		}
	}
	line("agent", d.Title)
	line("program", strings.TrimSpace(d.Program+" "+d.Version))
	if d.Version != "" && d.Version != d.Tested {
		line("tested", d.Tested+", which is another version")
	}
	line("reads", strings.Join(d.Reads, ", "))
	key := d.Key
	if key == "" {
		key = fmt.Sprintf("none in the environment or the vault: set %s, or keep one with \"ringfence secret set\"", strings.Join(d.Needs, " or "))
	}
	line("key", key)
	for _, k := range d.Keeps {
		line("keeps", k)
	}
	line("refused", strings.Join(d.Quiet, ", "))
	line("homes", d.Home)
	for _, status := range slices.Sorted(maps.Keys(d.Exits)) {
		line("exit "+status, d.Exits[status])
	}
	for _, q := range d.Quirks {
		line("note", q)
	}
	for _, m := range d.Missing {
		line("missing", m)
	}
	return b.String()
}
