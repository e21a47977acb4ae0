package container

import (
	"os"
	"os/signal"
	"syscall"
)

// Child runs this process as a part of a container, or as what removes containers, and does
// not return, if its arguments say that it is one. main calls it before anything else, in
// every program that has a [Tier].
func Child() {
	if len(os.Args) == 2 && os.Args[1] == watchVerb {
		// Who is told to end ends his own boxes, and this ends after him.
		signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
		os.Exit(runWatch(os.NewFile(0, "what is watched")))
	}
	child(os.Args)
}
