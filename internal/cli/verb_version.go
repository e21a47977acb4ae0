package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is written by the linker (-X) and by nothing else.
var version = "devel"

// newVersion is "ringfence version".
func newVersion(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version and what it was built from",
		RunE: func(*cobra.Command, []string) error {
			type result struct {
				Version  string `json:"version"`
				Revision string `json:"revision,omitempty"` // of the source, if known
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}
			r := result{Version: version, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
			if info, ok := debug.ReadBuildInfo(); ok {
				for _, set := range info.Settings {
					if set.Key == "vcs.revision" {
						r.Revision = set.Value
					}
				}
			}
			return s.value(r, func() string {
				return fmt.Sprintf("ringfence %s (%s, %s)\n", r.Version, r.Go, r.Platform)
			})
		},
	}
}
