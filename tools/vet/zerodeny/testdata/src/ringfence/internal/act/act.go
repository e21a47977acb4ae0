package act

type Verdict uint8

const (
	Deny Verdict = iota
	Escalate
	Allow
)
