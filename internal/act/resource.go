package act

// A ResourceType says what kind of thing an effect is on.
type ResourceType string

// The types of resource, each with its canonical text.
const (
	Path      ResourceType = "Path"      // absolute real path
	Host      ResourceType = "Host"      // host:port; punycode, lower case, IPv6 in brackets
	URL       ResourceType = "URL"       // as the WHATWG URL standard serialises it
	Package   ResourceType = "Package"   // npm:name@version
	Repo      ResourceType = "Repo"      // repo:/path
	Remote    ResourceType = "Remote"    // <remote URL>#refs/heads/x; without # when no ref is named
	Command   ResourceType = "Command"   // argv as JSON, the program as its resolved path
	Recipient ResourceType = "Recipient" // address, domain in lower case
	Secret    ResourceType = "Secret"    // name of the secret, never its value
	Model     ResourceType = "Model"     // provider/model
	Memory    ResourceType = "Memory"    // name of the store
	Person    ResourceType = "Person"    // who is asked
	Tool      ResourceType = "Tool"      // server.tool
)

// A Resource is what an effect is on: its type, its canonical text, and typed
// facts about it that the resolver established.
//
// A fact is a string, an int64, a bool or a []string; a policy that meets any
// other type denies. The names are those of the schema that package policy
// ships; a fact that is not known is absent, never zero.
type Resource struct {
	Type  ResourceType   `json:"type"`
	Text  string         `json:"text"`
	Facts map[string]any `json:"facts,omitempty"`
}

// The facts that resolvers set, by the type of resource they describe.
const (
	FactRemoteURL = "url"       // Remote: string, the URL without the ref
	FactRef       = "ref"       // Remote: string, "refs/heads/main"; absent when every ref could be touched
	FactAgeHours  = "ageHours"  // Package: int64, whole hours since publication
	FactResembles = "resembles" // Package: string, the popular package whose name it nearly has, "" if none; the name says it, nobody gives it
	FactExists    = "exists"    // Path: bool, something is there now
	FactNewRepo   = "new"       // Repo: bool, the effect makes the repository
	// FactConfigured: Remote: true where the configuration of the repository
	// names it, else absent.
	FactConfigured = "configured"
)

// String returns the canonical text.
func (r Resource) String() string { return r.Text }

// FactClass marks resources that an invariant is about, whatever the policy
// says. Path: "own-state" (our home, ledger, policy), "runs-later" (the host
// will execute or trust it: hooks, shell start-up files, tool configuration),
// "credentials" (keys and tokens of this person). Host and URL: "metadata" (the
// metadata service of a cloud). Absent for everything else.
const FactClass = "class"
