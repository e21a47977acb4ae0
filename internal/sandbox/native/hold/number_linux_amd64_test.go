package hold

import "golang.org/x/sys/unix"

const sysOpen = unix.SYS_OPEN
