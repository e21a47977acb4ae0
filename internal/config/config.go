// Package config reads the one configuration file of an installation,
// config.json in the home, and the few environment variables that count, and
// says where each value came from.
//
// It applies nothing and writes nothing. It never looks at the working
// directory: a project is text that strangers wrote.
//
// Invariants:
//
//	C1  What the file says is understood whole or refused with its line and
//	    column; a missing file is every default.
//	C2  A variable can only tighten, be cosmetic, or say what the file leaves open:
//	    the environment may have been set up by the agent's own configuration. The
//	    one that loosens, RINGFENCE_SANDBOX_PERMISSIVE, is in every record that it
//	    touches, and the file can forbid it.
//	C3  The file is refused if others may write to it.
package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"time"

	"ringfence/internal/egress/provider"
	"ringfence/internal/sys/paths"
)

// The environment variables that are read, besides RINGFENCE_HOME.
const (
	EnvAsk = "RINGFENCE_ASK" // "never": nobody is asked, whatever the file says
	EnvLog = "RINGFENCE_LOG" // "error", "warn", "info", "debug"
)

// A Config is every setting, with its default where nothing was said.
type Config struct {
	// AskNever says that escalations are denied without asking. Default false.
	AskNever bool
	// AskWait is how long a person is waited for: 10 s to 1 h. Default 5 min.
	AskWait time.Duration
	// Approvers maps a person, by user name or decimal user id, to roles. In the
	// file it is the other way round. Default: nobody has a role.
	Approvers map[string][]string
	// GuestSocket is where approvers who are other users answer, "" if nowhere: an
	// absolute path outside the home, in a directory that they can enter and only this
	// user can write to.
	GuestSocket string
	// Notify is a program and its first arguments that is run when a question waits; the
	// program is an absolute path. Default: none.
	Notify []string
	// Webhook is an address, "https://…", that is told when a question waits. Default: none.
	Webhook string
	// Terminal is about sessions at a terminal.
	Terminal Terminal
	// Idle is how long the engine stays without a session: 0 s to 24 h. Default
	// 10 min.
	Idle time.Duration
	// Policies are the layers that apply to every session.
	Policies Policies
	// Box says what confines.
	Box Box
	// Network is what the machine is connected to. Default: the public internet.
	Network Network
	// Models are the services that run models, and Prices what they cost. Default: those
	// that are shipped.
	Models *provider.Table
	Prices provider.Prices
	// Profiles have another provider answer, in sessions that are begun with one; by name.
	Profiles []provider.Profile
	// Budgets bound what may be used of models. Default: nothing does.
	Budgets Budgets
	// StatisticsOff says that no statistics of the use of models are kept. Default false.
	StatisticsOff bool
	// StatisticsDays is how many days are kept: 1 to 3650. Default 90.
	StatisticsDays int
	// Log is what the engine prints to its log. Default slog.LevelWarn.
	Log slog.Level
}

// Policies are the directories of bundles that apply whatever a session names;
// "" is none. Default: organisation and user in the policies of the home, where
// they exist.
type Policies struct {
	Organisation string
	User         string
}

// A Source says where a value came from.
type Source string

// The sources.
const (
	FromDefault     Source = "default"
	FromFile        Source = "file"
	FromEnvironment Source = "environment"
)

// A Setting is one value for people.
type Setting struct {
	Key    string `json:"key"`   // as in the file, joined by dots: "ask.seconds"
	Value  string `json:"value"` // as one would write it
	Source Source `json:"source"`
	Where  string `json:"where,omitempty"` // "/home/u/.ringfence/config.json:3:12", or the variable
}

// Provenance is every setting in a fixed order.
type Provenance []Setting

// Of says where the value of key came from, for people: "default", or
// "/home/u/.ringfence/config.json:3:12", or the variable.
func (p Provenance) Of(key string) string {
	for _, s := range p {
		if s.Key == key && s.Where != "" {
			return s.Where
		}
	}
	return string(FromDefault)
}

// ErrInvalid says that the configuration cannot be used as it stands. Show the
// error to the person and stop.
var ErrInvalid = errors.New("invalid configuration")

const maxFile = 1 << 20 // bytes

// file is the shape of config.json. Absent is nil.
type file struct {
	Ask        *ask                `json:"ask"`
	Approvers  map[string][]string `json:"approvers"` // role → names
	Approvals  *approvals          `json:"approvals"`
	Terminal   *terminal           `json:"terminal"`
	Idle       *seconds            `json:"idle"`
	Policies   *policies           `json:"policies"`
	Box        *box                `json:"box"`
	Network    *network            `json:"network"`
	Models     *models             `json:"models"`
	Statistics *statistics         `json:"statistics"`
	Log        *string             `json:"log"`
}

type ask struct {
	Seconds *int  `json:"seconds"`
	Never   *bool `json:"never"`
}

type approvals struct {
	Socket  *string  `json:"socket"`
	Notify  []string `json:"notify"`
	Webhook *string  `json:"webhook"`
}

type statistics struct {
	Off  *bool `json:"off"`
	Days *int  `json:"days"`
}

type seconds struct {
	Seconds *int `json:"seconds"`
}

type policies struct {
	Organisation *string `json:"organisation"`
	User         *string `json:"user"`
}

// Load reads the configuration of home and the environment.
//
// The error is ErrInvalid, beginning with file:line:column or with the variable,
// or that of reading the file.
func Load(home string) (Config, Provenance, error) {
	return load(home, os.LookupEnv)
}

func load(home string, env func(string) (string, bool)) (Config, Provenance, error) {
	path := paths.ConfigFile(home)
	src, err := read(path)
	if err != nil {
		return Config{}, nil, fmt.Errorf("reading configuration: %w", err)
	}
	l := &loader{path: path, src: src, home: home}
	if err := l.all(env); err != nil {
		return Config{}, nil, err
	}
	return l.config, l.settings, nil
}

// read returns the bytes of the file, nil if there is none.
func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err != nil {
		return nil, err
	}
	// Where there are no user ids, the bits say nothing about other users.
	if mode := fi.Mode().Perm(); os.Geteuid() >= 0 && mode&0o022 != 0 {
		return nil, fmt.Errorf("%w: others may write to %s (mode %04o; run chmod go-w %s)", ErrInvalid, path, mode, path)
	}
	src, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(src) > maxFile {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrInvalid, path, maxFile)
	}
	return src, err
}
