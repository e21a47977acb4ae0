package native

import (
	"bufio"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"ringfence/internal/sandbox"
)

// A person is who the program runs as, as the box knows him.
type person struct {
	uid, gid    int
	name, group string
	home, shell string
}

const maxAccounts = 4 << 20 // bytes read of /etc/passwd and /etc/group each

// hostname is the name of every box.
const hostname = "box"

// personOf says who uid and gid are: by the account of the host, and by HOME, USER
// and LOGNAME of the program's own environment.
func personOf(s sandbox.Spec, uid, gid int) person {
	who := person{uid: uid, gid: gid, name: "user", group: "user", shell: "/bin/sh"}
	if f := account("/etc/passwd", 2, uid); len(f) >= 7 {
		who.name = f[0]
		who.shell = f[6]
		// A directory that is not there, as "/nonexistent", is no home.
		if fi, err := os.Stat(f[5]); err == nil && fi.IsDir() {
			who.home = f[5]
		}
	}
	if f := account("/etc/group", 2, gid); len(f) >= 3 {
		who.group = f[0]
	}
	for _, e := range s.Env {
		if home, ok := strings.CutPrefix(e, "HOME="); ok && filepath.IsAbs(home) && !strings.ContainsAny(home, ":\n\x00") {
			who.home = filepath.Clean(home)
		}
	}
	// What a link leads to is what is made or hidden.
	if real, err := filepath.EvalSymlinks(who.home); err == nil && who.home != "" {
		who.home = real
	}
	return who
}

// account returns the fields of the line of an account file whose field at index is
// id, or nil.
func account(file string, index, id int) []string {
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	want := strconv.Itoa(id)
	for sc := bufio.NewScanner(io.LimitReader(f, maxAccounts)); sc.Scan(); {
		if fields := strings.Split(sc.Text(), ":"); len(fields) > index && fields[index] == want && printable(sc.Text()) {
			return fields
		}
	}
	return nil
}

// printable reports whether a line can stand in a file of the box as it is.
func printable(line string) bool {
	return strings.IndexFunc(line, func(r rune) bool { return r < ' ' || r == 0x7f }) < 0
}

// synthetic returns the files of /etc that are made up: what the machine has there
// names its people and its network.
func synthetic(who person, network sandbox.Network) (map[string]string, error) {
	home := who.home
	if home == "" {
		home = "/"
	}
	passwd, group := "", ""
	if who.uid != 0 {
		passwd = "root:x:0:0:root:/root:/bin/sh\n"
	}
	if who.gid != 0 {
		group = "root:x:0:\n"
	}
	passwd += strings.Join([]string{who.name, "x", strconv.Itoa(who.uid), strconv.Itoa(who.gid), "", home, who.shell}, ":") + "\n"
	group += who.group + ":x:" + strconv.Itoa(who.gid) + ":\n"
	if who.uid != overflowID {
		passwd += "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	}
	if who.gid != overflowID {
		group += "nogroup:x:65534:\n"
	}
	files := map[string]string{
		"/etc/passwd":        passwd,
		"/etc/group":         group + "tty:x:5:\n",
		"/etc/hostname":      hostname + "\n",
		"/etc/hosts":         "127.0.0.1 localhost " + hostname + "\n::1 localhost ip6-localhost ip6-loopback\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nservices: files\nprotocols: files\nrpc: files\n",
		"/etc/resolv.conf":   "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n",
	}
	if network == sandbox.NetworkPolicy {
		// A person may be asked about a name.
		files["/etc/resolv.conf"] = "nameserver 127.0.0.1\noptions timeout:15 attempts:2\n"
	}
	if network != sandbox.NetworkOpen {
		return files, nil
	}
	// With the network of the machine go the names that it has there.
	for _, name := range []string{"/etc/hosts", "/etc/resolv.conf"} {
		text, err := os.ReadFile(name)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if len(text) <= maxCopied {
			files[name] = string(text)
		}
	}
	return files, nil
}

// overflowID is what stands for users that a user namespace does not know
// (/proc/sys/kernel/overflowuid; the number is fixed in practice).
const overflowID = 65534
