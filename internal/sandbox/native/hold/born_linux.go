package hold

import (
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ringfence/internal/act/places"
)

// births are the repositories that came into being in the box, by their real
// paths. They follow the renames that we perform; a record that something else has
// taken the place of is worth nothing.
type births struct {
	mu   sync.Mutex
	at   map[string]identity
	tell func(path string)
}

// maxBirths bounds what a program can make us remember.
const maxBirths = 4096

const ruleMany = RuleLater + ": the box has made too many repositories of its own"

// An identity tells a file from a later one of the same inode number.
type identity struct {
	major, minor uint32
	inode        uint64
	born         unix.StatxTimestamp
}

func identify(path string) (identity, bool) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_SYMLINK_NOFOLLOW|unix.AT_STATX_DONT_SYNC, unix.STATX_INO|unix.STATX_BTIME, &st)
	if err != nil {
		return identity{}, false
	}
	return identity{st.Dev_major, st.Dev_minor, st.Ino, st.Btime}, true
}

func (b *births) add(path string) {
	id, ok := identify(path)
	b.mu.Lock()
	_, known := b.at[path]
	if ok = ok && len(b.at) < maxBirths; ok {
		b.at[path] = id
	}
	b.mu.Unlock()
	if ok && !known && b.tell != nil {
		b.tell(path)
	}
}

func (b *births) full() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.at) >= maxBirths
}

// is reports whether path is one of them, or beneath one.
func (b *births) is(path string) bool { return b.around(path) != "" }

// around returns the record that path is at or beneath, "" if there is none.
func (b *births) around(path string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.at) == 0 {
		return ""
	}
	for p := path; p != ""; p = p[:max(0, strings.LastIndexByte(p, '/'))] {
		was, ok := b.at[p]
		if !ok {
			continue
		}
		if now, there := identify(p); there && now == was {
			return p
		}
		delete(b.at, p)
	}
	return ""
}

// removed forgets what was at path.
func (b *births) removed(path string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.at, path)
}

// moved follows a rename; with swapped, what was at to is at from now.
func (b *births) moved(from, to string, swapped bool) {
	b.mu.Lock()
	var told []string
	if len(b.at) > 0 {
		next := make(map[string]identity, len(b.at))
		for p, id := range b.at {
			switch {
			case places.Beneath(p, from):
				p = to + p[len(from):]
				told = append(told, p)
			case places.Beneath(p, to) && swapped:
				p = from + p[len(to):]
				told = append(told, p)
			case places.Beneath(p, to):
				continue
			}
			next[p] = id
		}
		b.at = next
	}
	b.mu.Unlock()
	for _, p := range told {
		if b.tell != nil {
			b.tell(p)
		}
	}
}
