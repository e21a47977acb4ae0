package mediator

// A place says where a request of the client is answered.
type place uint8

const (
	placeEra    place = iota // by the era of the client: it opens a connection, or is about it
	placeHere                // here, out of what is known of the connection
	placeAll                 // here, out of what all servers answered: a list
	placeName                // by the server that params.name names
	placeURI                 // by the server whose resource is at params.uri
	placeRef                 // by the server whose prompt or template params.ref names
	placeTask                // by the server that has the task params.taskId
	placeLevels              // here, and by every server that logs
)

// eras is a set of the eras that have a method.
type eras uint8

const (
	inSessions eras = 1 << iota // up to 2025-11-25
	inRequests                  // from 2026-07-28 on
	inBoth     = inSessions | inRequests
)

// A method is a request that a client may make. What is not in the table is
// refused, and nothing else reaches a server.
type method struct {
	name  string
	eras  eras
	place place
	// known are the members of params that are decided on, and that reach the server as
	// the ticket says. Others are left out ([message.only]), and one that differs from these
	// in case is refused.
	known []string
	// needs points to what a server must have declared to be asked; "" asks any.
	needs string
	// shown is the kind of list that the method returns; "" for other results.
	shown string
}

// methods are all requests of clients. The identifier by which each is decided is
// "server." and its name, that of a tool's call "server." and the name of the tool
// (docs/decisions/0007). tools/list is decided as "server".
var methods = [...]method{
	{name: "initialize", eras: inSessions, place: placeEra},
	{name: "ping", eras: inSessions, place: placeEra},
	{name: "server/discover", eras: inRequests, place: placeEra},
	{name: "subscriptions/listen", eras: inRequests, place: placeEra},

	{name: "tools/list", eras: inBoth, place: placeAll, shown: "tools"},
	{name: "prompts/list", eras: inBoth, place: placeAll, shown: "prompts"},
	{name: "resources/list", eras: inBoth, place: placeAll, shown: "resources"},
	{name: "resources/templates/list", eras: inBoth, place: placeAll, shown: "resourceTemplates"},

	{name: "tools/call", eras: inBoth, place: placeName, known: []string{"name", "arguments"}},
	{name: "prompts/get", eras: inBoth, place: placeName, known: []string{"name", "arguments"}, needs: "/prompts"},
	{name: "resources/read", eras: inBoth, place: placeURI, known: []string{"uri"}, needs: "/resources"},
	{name: "resources/subscribe", eras: inSessions, place: placeURI, known: []string{"uri"}},
	{name: "resources/unsubscribe", eras: inSessions, place: placeURI, known: []string{"uri"}},
	{name: "completion/complete", eras: inBoth, place: placeRef, known: []string{"ref", "argument", "context"}, needs: "/completions"},
	{name: "logging/setLevel", eras: inSessions, place: placeLevels, known: []string{"level"}},

	{name: "tasks/get", eras: inBoth, place: placeTask, known: []string{"taskId"}},
	{name: "tasks/result", eras: inSessions, place: placeTask, known: []string{"taskId"}},
	{name: "tasks/list", eras: inSessions, place: placeHere},
	{name: "tasks/cancel", eras: inBoth, place: placeTask, known: []string{"taskId"}},
	{name: "tasks/update", eras: inRequests, place: placeTask, known: []string{"taskId", "inputResponses"}},
}

// methodOf returns the row of a method that the era has.
func methodOf(name string, era eras) (method, bool) {
	for _, m := range methods {
		if m.name == name && m.eras&era != 0 {
			return m, true
		}
	}
	return method{}, false
}

// The requests that a server may make, beside ping. Each is decided under "server."
// and its name, with what the client would be asked as its arguments.
const (
	askSampling    = "sampling/createMessage"
	askElicitation = "elicitation/create"
	askRoots       = "roots/list"
)

// The texts that a server sends on its own, decided under "server." and these names.
const (
	tellMessage  = "notifications/message"
	tellProgress = "notifications/progress"
)
