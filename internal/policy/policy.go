// Package policy evaluates effects against compiled constitutions.
package policy
