package policy

// A List is a named set of resources, as lists.json holds it. Its members are
// Members and Added without Removed, compared as text.
type List struct {
	Members []string `json:"members,omitempty"` // found by the resolver
	Added   []string `json:"added,omitempty"`   // by hand; survives a refresh
	Removed []string `json:"removed,omitempty"` // by hand; survives a refresh
	From    string   `json:"from,omitempty"`    // how the members were found, for the next refresh
}
