package cli

import (
	"github.com/spf13/cobra"

	"ringfence/internal/daemon/api"
)

// newNet is "ringfence net".
func newNet(s *streams) *cobra.Command {
	c := &cobra.Command{
		Use:   "net",
		Short: "See what boxes do on the network, and by whom they verify it",
	}
	c.AddCommand(newNetLog(s), newNetTop(s), newNetRegistries(s), newNetCA(s))
	return c
}

// caValue is what "net ca" prints with --json.
type caValue struct {
	PEM string `json:"pem"`
}

func newNetCA(s *streams) *cobra.Command {
	return &cobra.Command{
		Use:   "ca",
		Short: "Print the certificate that programs in boxes verify servers by",
		Long: "Print the certificate of the authority of this installation, in PEM. Where no clause\n" +
			"lets a connection itself pass, TLS is opened on its way out, and programs in boxes see\n" +
			"a certificate that this authority signed. It is in the bundle of every box that has a\n" +
			"network; nothing outside of boxes needs it, and nothing outside should trust it.",
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return with(c.Context(), connect, func(e *api.Client) error {
				cert, err := e.Authority(c.Context())
				if err != nil {
					return err
				}
				return s.value(caValue{PEM: string(cert)}, func() string { return string(cert) })
			})
		},
	}
}
