package cli

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/agent/external"
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
	Key     string   `json:"key"`             // "environment", "" for none
	Needs   []string `json:"needs,omitempty"` // variables that hold one
	Keeps   []string `json:"keeps,omitempty"` // what is taken over of the person's settings
	Quiet   []string `json:"quiet,omitempty"` // hosts that it does not reach
	Home    string   `json:"home"`            // where its private homes are
	Good    bool     `json:"good"`
	Missing []string `json:"missing,omitempty"`
}

func newAgentsDoctor(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:         "doctor NAME",
		Short:       "Find out what an agent needs, and whether it is there",
		Args:        cobra.ExactArgs(1),
		Annotations: exits(status{codeFailed, "something that it needs is missing"}),
		RunE: func(_ *cobra.Command, args []string) error {
			a, err := adapterOf(args[0])
			if err != nil {
				return err
			}
			d, err := examineAgent(a)
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

func examineAgent(a external.Adapter) (agentDiagnosis, error) {
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
	d := agentDiagnosis{knownAgent: knownOf(a, look), Quiet: a.Quiet, Home: filepath.Join(paths.AgentHomes(own), a.Name)}
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
	d.Good = len(d.Missing) == 0
	return d, nil
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
	line("reads", strings.Join(d.Reads, ", "))
	key := d.Key
	if key == "" {
		key = fmt.Sprintf("none in the environment: set %s, or keep one with \"ringfence secret set\"", strings.Join(d.Needs, " or "))
	}
	line("key", key)
	for _, k := range d.Keeps {
		line("keeps", k)
	}
	line("refused", strings.Join(d.Quiet, ", "))
	line("homes", d.Home)
	for _, m := range d.Missing {
		line("missing", m)
	}
	return b.String()
}
