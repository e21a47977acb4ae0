// Package paths says where things are kept: the home of an installation, and
// the names of everything inside it.
//
// It creates the home and nothing else, and reads none of the files it names.
// No other package may spell one of these names, or read RINGFENCE_HOME.
//
// Invariants:
//
//	P1  A home that somebody else owns, or that others may write to, is refused.
//	P2  Every path returned is absolute.
package paths

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
)

// EnvHome is the environment variable that names the home.
const EnvHome = "RINGFENCE_HOME"

// ErrUnsafeHome marks a directory that cannot be trusted to hold our state.
// Tell the person: they must fix its owner or mode, or choose another home.
var ErrUnsafeHome = errors.New("unsafe directory")

// Home returns the home: $RINGFENCE_HOME made absolute, else ".ringfence" in
// the home directory of the user. It touches nothing; see [EnsureHome].
func Home() (string, error) {
	if dir := os.Getenv(EnvHome); dir != "" {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return "", fmt.Errorf("making %s absolute: %w", EnvHome, err)
		}
		return abs, nil
	}
	user, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("finding the home (set %s): %w", EnvHome, err)
	}
	if !filepath.IsAbs(user) {
		return "", fmt.Errorf("finding the home: the user's home %q is not absolute (set %s)", user, EnvHome)
	}
	return filepath.Join(user, DefaultName), nil
}

// EnsureHome returns [Home] after creating it, mode 0700, if nothing is there.
// The error is [ErrUnsafeHome] if P1 does not hold.
func EnsureHome() (string, error) {
	home, err := Home()
	if err != nil {
		return "", err
	}
	if err := ensurePrivate(home); err != nil {
		return "", fmt.Errorf("opening home %s: %w", home, err)
	}
	return home, nil
}

// ensurePrivate creates dir, mode 0700, or checks that the directory there is
// ours and writable by nobody else.
func ensurePrivate(dir string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	fi, err := os.Stat(dir)
	if err != nil {
		return err
	}
	if uid, known := owner(fi); known && uid != os.Geteuid() {
		return fmt.Errorf("%w: it belongs to user %d, and this is user %d", ErrUnsafeHome, uid, os.Geteuid())
	}
	if mode := fi.Mode().Perm(); checksMode && mode&0o022 != 0 {
		return fmt.Errorf("%w: others may write to it (mode %04o; run chmod go-w %s)", ErrUnsafeHome, mode, dir)
	}
	return nil
}

// LedgerDir holds the ledger: its database and its newest checkpoint.
func LedgerDir(home string) string { return filepath.Join(home, "ledger") }

const keysName = "keys"

// Keys holds private keys, one file each.
func Keys(home string) string { return filepath.Join(home, keysName) }

// LedgerKey is the private key that signs checkpoints of the ledger.
func LedgerKey(home string) string { return filepath.Join(Keys(home), "ledger.key") }

// NoticeKey is the file of the key by which notices to people are signed.
func NoticeKey(home string) string { return filepath.Join(Keys(home), "notices.key") }

// Vault is the encrypted file of secrets.
func Vault(home string) string { return filepath.Join(home, "vault.age") }

// VaultKey is the key of the vault, where no keyring of the system keeps it.
func VaultKey(home string) string { return filepath.Join(Keys(home), "vault.key") }

// VaultUses says when each secret was last lent.
func VaultUses(home string) string { return filepath.Join(home, "vault-uses.json") }

// DotEnv may hold keys of model providers, as NAME=VALUE lines.
func DotEnv(home string) string { return filepath.Join(home, ".env") }

// AuthorityFile is the certificate of the authority that boxes trust, which is no secret.
func AuthorityFile(home string) string { return filepath.Join(home, "authority.pem") }

// TrustedKeys holds public keys of other installations whose records this
// person accepts, one file each.
func TrustedKeys(home string) string { return filepath.Join(home, "trusted-keys") }

// EngineLock is the file whose lock decides which process is the engine.
func EngineLock(home string) string { return filepath.Join(home, "engine.lock") }

// EngineLog is what the engine prints.
func EngineLog(home string) string { return filepath.Join(home, "engine.log") }

// StateFile is the database of everything mutable that is not a record:
// questions, grants, budgets, sessions.
func StateFile(home string) string { return filepath.Join(home, "state.db") }

// StatisticsFile is the database of what was asked of models: numbers only.
func StatisticsFile(home string) string { return filepath.Join(home, "statistics.db") }

// ServersFile returns the list of MCP servers that a person has added, and that is used
// where no other is named.
func ServersFile(home string) string { return filepath.Join(home, "servers.json") }

// PinsFile holds the reviewed tool definitions.
func PinsFile(home string) string { return filepath.Join(home, "pins.json") }

// MCPToken holds what clients of the mediator over HTTP show.
func MCPToken(home string) string { return filepath.Join(home, "mcp-token") }

// Sessions holds one directory for each session that keeps files.
func Sessions(home string) string { return filepath.Join(home, "sessions") }

// Reviews holds one directory for each review: what boxes changed and nobody applied.
func Reviews(home string) string { return filepath.Join(home, "reviews") }

// Policies holds bundles and the layers of the organisation and the user.
func Policies(home string) string { return filepath.Join(home, "policies") }

// Caches returns the directory in which each server of tools keeps its caches.
func Caches(home string) string { return filepath.Join(home, "cache") }

// Images returns the directory of what was fetched for images of agents.
func Images(home string) string { return filepath.Join(home, "images") }

// Proposals returns the directory of clauses that are proposed, and heeded by nothing.
func Proposals(home string) string { return filepath.Join(home, "proposals") }

// Runs returns the directory in which it is kept what was run.
func Runs(home string) string { return filepath.Join(home, "runs") }

// HolderSocket returns where people come who want to look at a session that a process holds:
// beside the socket of the engine.
func HolderSocket(home, session string) (string, error) {
	engine, err := EngineSocket(home)
	if err != nil {
		return "", err
	}
	return filepath.Join(filepath.Dir(engine), session+".sock"), nil
}

// Hooks returns the directory of what is kept for hooks of agents.
func Hooks(home string) string { return filepath.Join(home, "hooks") }

// AgentHomes returns the directory of the private homes of agents.
func AgentHomes(home string) string { return filepath.Join(home, "homes") }

// FreshWorkspaces returns where workspaces are made that nobody named: in the person's home, as
// no box sees what is ours.
func FreshWorkspaces() (string, error) {
	user, err := UserHome()
	return filepath.Join(user, "ringfence-work"), err
}

// SetupFile keeps what files of other programs were before "ringfence init" changed them.
func SetupFile(home string) string { return filepath.Join(home, "init.json") }

// RegistriesFile keeps what package managers said of their registries.
func RegistriesFile(home string) string { return filepath.Join(home, "registries.json") }

// TrustStore keeps the trust store of Java that boxes get, behind the sum of what it was
// made of.
func TrustStore(home string) string { return filepath.Join(home, "trust.jks") }

// ConfigFile is the configuration of the installation.
func ConfigFile(home string) string { return filepath.Join(home, "config.json") }

// maxSocket is the longest path a Unix socket can have everywhere: sun_path
// holds 104 bytes on the BSDs and macOS, 108 on Linux, with a final NUL.
const maxSocket = 103

const socketName = "engine.sock"

// EngineSocket returns the path of the engine's socket. It is in home, or,
// where that path would be too long for a socket, in a private directory below
// $XDG_RUNTIME_DIR or /tmp that is named after home. The choice is kept as a
// link in home, so that processes with different environments agree on it.
// The home must exist.
func EngineSocket(home string) (string, error) {
	inHome := filepath.Join(home, socketName)
	if len(inHome) <= maxSocket {
		return inHome, nil
	}
	if target, err := os.Readlink(inHome); err == nil && usableSocketDir(target) {
		return target, nil
	}
	outside, err := outsideSocket(home)
	if err != nil {
		return "", fmt.Errorf("placing the engine's socket: %w", err)
	}
	if err := os.Remove(inHome); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("placing the engine's socket: %w", err)
	}
	err = os.Symlink(outside, inHome)
	if errors.Is(err, fs.ErrExist) { // another process was first: its choice holds
		outside, err = os.Readlink(inHome)
	}
	if err != nil {
		return "", fmt.Errorf("placing the engine's socket: %w", err)
	}
	return outside, nil
}

// usableSocketDir reports whether the directory of path is there and private.
func usableSocketDir(path string) bool {
	dir := filepath.Dir(path)
	fi, err := os.Lstat(dir)
	return err == nil && fi.IsDir() && filepath.IsAbs(path) && ensurePrivate(dir) == nil
}

// socketsPrefix begins the name of the directory in /tmp for sockets of a user.
const socketsPrefix = "ringfence-"

// socketBases are the directories in which sockets are whose home has too long a path.
func socketBases() (bases []string) {
	if run := os.Getenv("XDG_RUNTIME_DIR"); filepath.IsAbs(run) {
		bases = append(bases, filepath.Join(run, "ringfence"))
	}
	return append(bases, filepath.Join("/tmp", socketsPrefix+strconv.Itoa(os.Geteuid())))
}

// outsideSocket makes the private directory for the socket of home.
func outsideSocket(home string) (string, error) {
	sum := sha256.Sum256([]byte(home))
	name := hex.EncodeToString(sum[:8])
	var errs []error
	for _, base := range socketBases() {
		path := filepath.Join(base, name, socketName)
		if len(path) > maxSocket {
			errs = append(errs, fmt.Errorf("%s: %d bytes is too long for a socket", path, len(path)))
			continue
		}
		if err := errors.Join(ensureReal(base), ensureReal(filepath.Dir(path))); err != nil {
			errs = append(errs, err)
			continue
		}
		return path, nil
	}
	return "", errors.Join(errs...)
}

// ensureReal is ensurePrivate for a place where others may plant links.
func ensureReal(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	fi, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	if !fi.IsDir() {
		return fmt.Errorf("%w: %s is not a directory", ErrUnsafeHome, dir)
	}
	if err := ensurePrivate(dir); err != nil {
		return fmt.Errorf("%s: %w", dir, err)
	}
	return nil
}
