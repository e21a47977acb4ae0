// Package load has many clients work through one engine at once, and checks that
// each of them gets what it would get alone, and that nothing is left of it when they have
// gone.
//
// It asserts no times: those are figures of test/bench.
package load
