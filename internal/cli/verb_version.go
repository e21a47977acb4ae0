package cli

import (
	"fmt"
	"runtime"

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
			r := struct {
				Version  string `json:"version"`
				Go       string `json:"go"`
				Platform string `json:"platform"`
			}{version, runtime.Version(), runtime.GOOS + "/" + runtime.GOARCH}
			return s.value(r, func() string {
				return fmt.Sprintf("ringfence %s (%s, %s)\n", r.Version, r.Go, r.Platform)
			})
		},
	}
}
