package a

import "ringfence/internal/act"

func f(v act.Verdict, other int) act.Verdict {
	switch v { // want "needs a default that denies"
	case act.Deny:
	case act.Allow:
	}
	switch v {
	case act.Deny:
		return act.Deny
	default:
		return act.Allow // want "must deny"
	}
}

func g(v act.Verdict, other int) bool {
	switch other {
	case 1:
	}
	switch v {
	case act.Allow:
		return true
	case act.Escalate:
		return false
	default:
		return false
	}
}

func h(v act.Verdict) bool {
	if v == act.Deny {
		return false
	}
	return v != act.Deny // want "need not be a verdict"
}
