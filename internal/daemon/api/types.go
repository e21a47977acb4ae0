package api

import (
	"encoding/json"
	"fmt"
	"time"

	"ringfence/internal/act"
)

// A Hello is what the engine says of itself when a connection begins.
type Hello struct {
	Version int    `json:"version"` // of the protocol
	Program string `json:"program"` // version of the program, for people
	PID     int    `json:"pid"`
	Home    string `json:"home"`
}

// How a session has its escalations answered.
const (
	AskDesk  = "desk"  // at the desk, by another process
	AskNever = "never" // nobody is asked: escalations are denied
)

// An OpenRequest opens a session. The process that sends it is the one that
// waits for approvals, so it cannot give them.
type OpenRequest struct {
	Principal string `json:"principal"` // "persona/agent"
	// Verb is what the person typed, "mcp" or "run", for people. It decides nothing.
	Verb      string       `json:"verb,omitempty"`
	Workspace string       `json:"workspace"`            // absolute path
	PolicyDir string       `json:"policy_dir,omitempty"` // bundle; "" is the default constitution
	Servers   []ServerInfo `json:"servers,omitempty"`    // fixed while the session lives
	Ask       string       `json:"ask"`                  // AskDesk or AskNever; "" is AskNever
	// AskSeconds is how long a person is waited for; 0 is the configured time.
	AskSeconds int `json:"ask_seconds,omitempty"`
	// OwnTerminal says that this process owns its terminal, no agent can write to
	// it, and it prompts there itself: it may then answer its own questions.
	OwnTerminal bool `json:"own_terminal,omitempty"`
	// Box is what the launcher reports of the box the agent is in, nil for none.
	Box json.RawMessage `json:"box,omitempty"`
	// Lists are the files that say which servers are run, absolute. No box of this
	// home may change them from now on.
	Lists []string `json:"lists,omitempty"`
	// Sums are the SHA-256 of Lists, in hex, as the servers were read from them. A list
	// that belongs to a repository is refused until a person has admitted it so.
	Sums []string `json:"sums,omitempty"`
	// Reads are hosts to which every connection of the session's boxes is opened, and what
	// is inside decided: registries of packages, services that run models. At most 256.
	Reads []string `json:"reads,omitempty"`
	// Budget narrows what the session may use of models; nil: as configured.
	Budget *act.Budget `json:"budget,omitempty"`
	// Resumes is the session that this one goes on with: what that used of models is used.
	Resumes string `json:"resumes,omitempty"`
}

// A ServerInfo describes one server that the client runs for a session.
type ServerInfo struct {
	Name string   `json:"name"`
	Argv []string `json:"argv"` // as it is recorded: variables of the environment not expanded
	// Launch identifies what is really started: a hash of argv with variables
	// expanded. "" if Argv is that.
	Launch      string `json:"launch,omitempty"`
	Dir         string `json:"dir,omitempty"`         // its working directory, absolute
	Annotations string `json:"annotations,omitempty"` // name of the annotation, "" to choose by Argv
	// Program is what its program is known by, a line for each file; none if by nothing.
	Program []string `json:"program,omitempty"`
	// Report is what the launcher reports of the box it is in, nil for none.
	Report json.RawMessage `json:"report,omitempty"`
	// Boxes says that it starts commands in boxes of their own, which may change the
	// workspace of the call and Changes, absolute paths.
	Boxes   bool     `json:"boxes,omitempty"`
	Changes []string `json:"changes,omitempty"`
	// Hosts are where its box may send what the policy allows, as weburl.ParseSite reads
	// them; at most 256. Requests name the server as their Tool.
	Hosts []string `json:"hosts,omitempty"`
}

// A BoxRecord says what confines a program that is about to start: the server of
// that name, or else what the ticket allowed.
type BoxRecord struct {
	Server string `json:"server,omitempty"`
	Ticket string `json:"ticket,omitempty"`
	// Box is the Report of the box in one line, as decisions repeat it.
	Box    string          `json:"box"`
	Report json.RawMessage `json:"report"` // the whole of it
}

// BoxFollows is the Box of an OpenRequest that says that each effect of the session
// gets a box of its own, which is on record before the effect starts.
const BoxFollows = `"follows"`

// An Opened is a session that was opened or resumed.
type Opened struct {
	Session    string   `json:"session"` // public
	Token      string   `json:"token"`   // secret: whoever has it can resume the session
	Principal  string   `json:"principal"`
	PolicyHash string   `json:"policy_hash"`
	Notes      []string `json:"notes,omitempty"` // for people: what is not enforced, what was assumed
	// Held are the lists of servers that are known, absolute: what runs for the
	// session must not change them.
	Held []string `json:"held,omitempty"`
	// Ports are those of hosts that the policy names, and those of the web: where programs in
	// boxes are listened to that connect without a proxy.
	Ports []uint16 `json:"ports,omitempty"`
	// Blocked are the servers that must not be started, and why.
	Blocked map[string]string `json:"blocked,omitempty"`
}

// A Person is who is at the other end of a connection, as the kernel tells.
type Person struct {
	UID   uint32 `json:"uid"`
	PID   int    `json:"pid"`
	SID   int    `json:"sid"`
	TTY   string `json:"tty,omitempty"`
	Name  string `json:"name,omitempty"`
	Known bool   `json:"known"` // SID and TTY are established
}

// A Question is an escalation that waits for a person.
type Question struct {
	ID          string           `json:"id"`
	Session     string           `json:"session"`
	Principal   string           `json:"principal"`
	Tool        string           `json:"tool,omitempty"`
	Effects     []act.Effect     `json:"effects"`
	Args        string           `json:"args,omitempty"`       // in the agent's words: 64 KiB at most, and a preview unless one question is asked for
	ArgsBytes   int              `json:"args_bytes,omitempty"` // size of the whole
	Clauses     []QuestionClause `json:"clauses"`
	Digest      string           `json:"digest"` // hex; what an answer binds to
	Asker       Person           `json:"asker"`
	OwnTerminal bool             `json:"own_terminal,omitempty"`
	Asked       time.Time        `json:"asked"`
	Deadline    time.Time        `json:"deadline"`
	Calls       int              `json:"calls"` // identical calls that wait
	Mark        uint64           `json:"mark"`  // names exactly these calls; a yes quotes it
	Text        string           `json:"text"`  // for terminals: everything above, safe to print
	// Scopes are the ways in which a yes can be for the session; none: it cannot.
	Scopes     []QuestionScope `json:"scopes,omitempty"`
	ScopesText string          `json:"scopes_text,omitempty"` // for terminals, safe to print
}

// A QuestionScope is one way to say yes for the session.
type QuestionScope struct {
	Form string `json:"form"`           // "exact", "directory", "subtree", "domain" or "tool"
	Text string `json:"text"`           // what is allowed
	Such string `json:"such,omitempty"` // an example of what is within
	Not  string `json:"not,omitempty"`  // an example of what is not
}

// A QuestionClause is one clause that a question asks about.
type QuestionClause struct {
	ID    string `json:"id"`
	Text  string `json:"text"`
	Count int    `json:"count"` // how many different people
	Role  string `json:"role,omitempty"`
	Have  int    `json:"have"` // how many have said yes
}

// A Choice is a person's answer. The zero Choice is a no.
type Choice struct {
	Yes  bool   `json:"yes"`
	Mark uint64 `json:"mark,omitempty"` // Question.Mark as it was shown; 0 is the oldest call alone
	// Message is of a no, for the agent: UTF-8, at most 1000 bytes. It is shown to it on
	// one line, without controls. Whoever waits may not give one.
	Message string `json:"message,omitempty"`
	// Scope makes a yes one for the session: which of Question.Scopes, from 1.
	Scope int `json:"scope,omitempty"`
}

// A QuestionEvent is one change at the desk. Kind is "asked", "changed",
// "approved", "refused", "expired" or "withdrawn".
type QuestionEvent struct {
	Kind     string   `json:"kind"`
	Question Question `json:"question"`
}

// A ToolPin is what the engine knows of the definition of one tool.
type ToolPin struct {
	Server     string          `json:"server"`
	Tool       string          `json:"tool"`
	Status     string          `json:"status"`               // "proposed", "drifted", "rejected", "approved"
	Hash       string          `json:"hash"`                 // of the newest definition seen
	Approved   []string        `json:"approved,omitempty"`   // hashes
	Definition json.RawMessage `json:"definition,omitempty"` // tools.review: the newest, as the server sent it
	Diff       string          `json:"diff,omitempty"`       // tools.review: against the approved one, safe to print
	Remarks    []string        `json:"remarks,omitempty"`    // on one that waits for review: what to look at, safe to print
}

// A ToolQuery selects pins; empty parts select all.
type ToolQuery struct {
	Server string `json:"server,omitempty"`
	Tool   string `json:"tool,omitempty"`
}

// A PinRequest approves or rejects one definition. The hash must be the one that
// was reviewed, so that a definition that changed meanwhile is not meant.
type PinRequest struct {
	Server  string `json:"server"`
	Tool    string `json:"tool"`
	Hash    string `json:"hash"`
	Approve bool   `json:"approve"`
}

// A ReviewRecord is what a person does with what a box changed.
type ReviewRecord struct {
	Review    string   `json:"review"`
	Session   string   `json:"session,omitempty"` // that made the changes
	Workspace string   `json:"workspace"`
	Action    string   `json:"action"`          // "apply" or "discard"
	Paths     []string `json:"paths,omitempty"` // none: all
	RunsLater bool     `json:"runs_later,omitempty"`
	Force     bool     `json:"force,omitempty"`
}

// A LedgerQuery selects entries; empty parts select all.
type LedgerQuery struct {
	Session string `json:"session,omitempty"`
	Kind    string `json:"kind,omitempty"`
	After   uint64 `json:"after,omitempty"`  // entries whose index in the tree is greater
	Tail    int    `json:"tail,omitempty"`   // only the newest so many
	Follow  bool   `json:"follow,omitempty"` // then go on with new ones until cancelled
}

// A Verification is what the engine found in its own record. Status is "valid",
// "invalid" or "incomplete".
type Verification struct {
	Status     string   `json:"status"`
	Entries    uint64   `json:"entries"`
	Sessions   int      `json:"sessions"`
	Root       string   `json:"root,omitempty"`
	Checkpoint string   `json:"checkpoint,omitempty"` // the signed note
	Key        string   `json:"key,omitempty"`        // verifier key of the signer
	Problems   []string `json:"problems,omitempty"`   // each names an entry
}

// A SessionInfo is one session of the record.
type SessionInfo struct {
	ID         string    `json:"id"`
	Principal  string    `json:"principal"`
	Workspace  string    `json:"workspace"`
	PolicyHash string    `json:"policy_hash,omitempty"`
	Started    time.Time `json:"started"`
	Ended      time.Time `json:"ended,omitzero"`
	Entries    uint64    `json:"entries"`
	Open       bool      `json:"open"` // it has not ended
}

// An OpenSession is one that has not ended, for people.
type OpenSession struct {
	ID        string    `json:"id"`
	Principal string    `json:"principal"`
	Verb      string    `json:"verb,omitempty"`
	PID       int       `json:"pid,omitempty"` // of its client; 0: not known
	Since     time.Time `json:"since"`
	// Lost says that its client is not connected.
	Lost bool `json:"lost,omitempty"`
}

// String is s on one line.
func (s OpenSession) String() string {
	by := s.Principal
	if s.Verb != "" {
		by = s.Verb + " by " + s.Principal
	}
	if s.PID != 0 {
		by += fmt.Sprintf(", process %d", s.PID)
	}
	if s.Lost {
		by += ", not connected"
	}
	return fmt.Sprintf("%s (%s, since %s)", s.ID, by, s.Since.Local().Format("2006-01-02 15:04:05"))
}

// A Status is how the engine is.
type Status struct {
	Program     string    `json:"program"`
	PID         int       `json:"pid"`
	Home        string    `json:"home"`
	Started     time.Time `json:"started"`
	Connections int       `json:"connections"`
	Sessions    int       `json:"sessions"`
	// Open are those sessions, oldest first.
	Open        []OpenSession `json:"open,omitempty"`
	Questions   int           `json:"questions"`
	Entries     uint64        `json:"entries"`
	Root        string        `json:"root,omitempty"`
	MemoryBytes uint64        `json:"memory_bytes"`
	Notes       []string      `json:"notes,omitempty"`
}
