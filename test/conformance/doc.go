// Package conformance runs the official conformance suite of MCP through the real
// binary: its clients speak HTTP to "ringfence mcp --listen", behind which is the
// conformance server of the Go SDK, over standard streams and over HTTP, with sessions
// and without. Of the client's side, what servers and authorization servers see of us,
// the suite plays the servers, and a mediator in this process is the client.
//
// A scenario passes if none of its checks failed or warned. What does not pass is
// listed in testdata/expected.txt, with the reason; what is listed and passes is an
// error too. It is no test of the servers or of the suite: what the SDK's server does
// not do without us is listed as well.
package conformance
