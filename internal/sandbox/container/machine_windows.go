package container

import "os"

// ownership is not asked for: paths of Windows are in no container of Linux.
func ownership(os.FileInfo) (uid, gid, links uint64) { return 0, 0, 0 }
