package inspect

import "slices"

// Scrub returns content with the registered secrets replaced as [Inspector.Redact] does,
// and nothing else. Content that holds none is returned as it is, not copied.
func (in *Inspector) Scrub(content []byte) []byte {
	if !in.holds(content, isJSON(content)) {
		return content
	}
	f := in.Scan(content)
	f.Matches = slices.DeleteFunc(f.Matches, func(m Match) bool { return m.Kind != KnownSecret })
	return in.Redact(content, f)
}
