package hold

import "golang.org/x/sys/unix"

const nativeArch = unix.AUDIT_ARCH_AARCH64

// oldCalls are the calls that this architecture does not have.
var oldCalls map[int32]func(*worker) answer
