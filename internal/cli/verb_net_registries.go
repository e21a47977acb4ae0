package cli

import (
	"strings"

	"github.com/spf13/cobra"
)

// registryValue is one line of "net registries".
type registryValue struct {
	Kind  string `json:"kind"`
	URL   string `json:"url"`
	By    string `json:"by"` // what names it
	Files string `json:"files,omitempty"`
}

func newNetRegistries(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "registries",
		Short: "Print where packages come from, and what names it",
		Long: "Print the registries that this machine is set up for. What a box asks one of them is\n" +
			"decided as installing packages (\"may install npm packages that are at least two days\n" +
			"old\"), not as requests to a host. They are named by the configuration, by the settings\n" +
			"of package managers, and by the managers themselves; never by files of a project.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			conf, _, err := settings()
			if err != nil {
				return err
			}
			all, wrong := registriesOf(c.Context(), conf)
			s.sayEach("%s", wrong)
			values := []registryValue{}
			for _, r := range all {
				v := registryValue{Kind: string(r.Ecosystem), URL: r.URL.String(), By: r.By}
				for _, h := range r.Files {
					v.Files = strings.TrimSpace(v.Files + " " + h.String())
				}
				values = append(values, v)
			}
			return s.value(values, func() string {
				if len(values) == 0 {
					return "No registry is known: name one in \"registries\" of \"network\" in config.json.\n"
				}
				var b strings.Builder
				for _, v := range values {
					b.WriteString(v.Kind + strings.Repeat(" ", max(7-len(v.Kind), 1)) + v.URL + "\n        by " + v.By + "\n")
				}
				return b.String()
			})
		},
	}
}
