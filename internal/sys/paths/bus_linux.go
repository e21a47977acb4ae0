package paths

import (
	"fmt"
	"os"
)

// HasSessionBus reports whether there is a place where services of the person who is
// logged in, such as a keyring, can be asked. It asks none, and starts none.
func HasSessionBus() bool {
	if os.Getenv("DBUS_SESSION_BUS_ADDRESS") != "" {
		return true
	}
	_, err := os.Stat(fmt.Sprintf("/run/user/%d/bus", os.Getuid()))
	return err == nil
}
