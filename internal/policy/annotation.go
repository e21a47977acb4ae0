package policy

import "ringfence/internal/act"

// An Annotation says what the tools of one server do with their arguments. It
// is what turns a call into effects. It is data: shipped for known servers,
// drafted for others and reviewed by a person, never taken from the server.
//
// JSON, one file a server; unknown members are refused.
type Annotation struct {
	Name     string                    `json:"name"`               // "filesystem": what "ringfence": {"annotations": …} names
	Packages []string                  `json:"packages,omitempty"` // npm packages or program base names in a server's argv that select it
	Tools    map[string]ToolAnnotation `json:"tools"`
}

// A ToolAnnotation describes one tool.
type ToolAnnotation struct {
	// Pins are the definition hashes (mediator's tool pin, hex SHA-256) that are
	// trusted at once. A definition with another hash waits for `tools review`.
	Pins []string `json:"pins,omitempty"`
	// Group is the group of the tool when a call has no effect of its own
	// (kind call): "observe", "mutate", "irreversible", "remote". Empty is
	// unknown, which counts as all but observe.
	Group act.Group `json:"group,omitempty"`
	// Args maps a JSON pointer with * for every element or member ("/path",
	// "/paths/*", "/files/*/path") to the role of what stands there. Every
	// argument of a call must be covered by a pointer here: one that is not is
	// denied. A pointer covers all beneath it unless a longer one does.
	Args map[string]Arg `json:"args"`
	// Effects are effects that no single argument carries, or that depend on
	// several.
	Effects []Implied `json:"effects,omitempty"`
	// Sets are labels that a call of this tool gives the session when decided.
	Sets []act.Label `json:"sets,omitempty"`
	// Reads are labels that its results give the session when released.
	Reads []act.Label `json:"reads,omitempty"`
	// Grant makes it one of the tools by which an agent asks for a connection.
	Grant GrantTool `json:"grant,omitempty"`
}

// A GrantTool says what a tool does with the connections that people granted a session.
type GrantTool string

// The tools. Ask always asks a person, whatever a policy allows; the others are allowed
// unless a clause forbids them.
const (
	GrantAsk    GrantTool = "ask"    // for its one connect effect
	GrantRevoke GrantTool = "revoke" // of the argument /domain
	GrantList   GrantTool = "list"
)

// A Role says what an argument names.
type Role string

// The roles. Plain arguments name nothing that a policy could protect.
const (
	RolePlain     Role = "plain"     // content, numbers, switches: no resource
	RolePath      Role = "path"      // a path or file:// URL; relative to the server's working directory, or to the argument named by Base
	RolePattern   Role = "pattern"   // a glob or regular expression that the server applies beneath a path argument; may not contain ".." or start with "/"
	RoleURL       Role = "url"       // an absolute http or https URL
	RoleHost      Role = "host"      // host, or host:port
	RoleRepo      Role = "repo"      // a path inside a git work tree, or where one will be made
	RoleRemote    Role = "remote"    // remote name or URL of git; resolved through the repository named by Base, with the ref named by Ref
	RoleRef       Role = "ref"       // branch, tag or revision: must not begin with "-"
	RoleCommand   Role = "command"   // a command line (string) or argv (array)
	RoleRecipient Role = "recipient" // mail address
	RolePackage   Role = "package"   // "name" or "name@version" of the registry named by Registry
	RoleSecret    Role = "secret"    // name of a secret
	RoleMemory    Role = "memory"    // name of a memory store
	// RoleURI is the URI of an MCP resource, or a template of them (RFC 6570). Of its
	// effects those count that are on what it names: a path if it is a file URL, a URL
	// if its scheme is http or https, nothing otherwise. A template names the directory
	// or site above its first expression.
	RoleURI Role = "uri"
)

// An Arg is the role of one argument and the effects that follow from it.
type Arg struct {
	Role    Role       `json:"role"`
	Effects []act.Kind `json:"effects,omitempty"` // on the resource that it names; "create" on a path that exists becomes "overwrite"
	When    []When     `json:"when,omitempty"`    // first that holds replaces Effects
	// Default is used when the argument is absent, as if the agent had given
	// it: "." for a repo, "@default" for a remote (the one that git would use).
	Default  any    `json:"default,omitempty"`
	Base     string `json:"base,omitempty"`     // pointer of the path or repo that this is relative to
	Ref      string `json:"ref,omitempty"`      // RoleRemote: pointer of the branch
	RefTo    string `json:"ref_to,omitempty"`   // RoleRemote: pointer of the remote branch, stronger than Ref
	Push     bool   `json:"push,omitempty"`     // RoleRemote: pushurl and pushInsteadOf apply
	Registry string `json:"registry,omitempty"` // RolePackage: "npm"
	Tree     bool   `json:"tree,omitempty"`     // the effect reaches everything beneath
	Real     bool   `json:"real,omitempty"`     // dispatch the resolved value in place of the given one
	Bool     bool   `json:"bool,omitempty"`     // must be a JSON boolean
	// Shell, of RoleCommand, says that a shell is given the line as it is: what of it cannot
	// be resolved beforehand counts as running that shell, in place of being refused.
	Shell bool  `json:"shell,omitempty"`
	Enum  []any `json:"enum,omitempty"` // must be one of these
}

// A When is a condition on the arguments of the call, as given.
type When struct {
	Arg     string     `json:"arg"` // JSON pointer, no wildcard
	Equals  any        `json:"equals,omitempty"`
	In      []any      `json:"in,omitempty"`
	Is      string     `json:"is,omitempty"`  // "present" "absent" "truthy" "falsy" (only the booleans and null are, anything else is neither); "path": a ref with a Base that git would read as a path
	And     []When     `json:"and,omitempty"` // must hold too
	Effects []act.Kind `json:"effects"`
}

// An Implied effect is added when all of When hold (its own Effects are
// ignored).
type Implied struct {
	When []When   `json:"when,omitempty"`
	Kind act.Kind `json:"kind"`
	// On is the resource: a JSON pointer of an argument with a role of the
	// right type ("/path"), or a template of a URL with pointers in braces
	// ("https://api.github.com/repos/{/owner}/{/repo}"), whose parts are
	// escaped and, with Fold, lowered.
	On   string `json:"on"`
	Fold bool   `json:"fold,omitempty"`
	Tree bool   `json:"tree,omitempty"`
}
