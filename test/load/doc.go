// Package load has many clients work through one engine at once, and checks that
// each of them gets what it would get alone.
//
// It asserts no times: those are figures of test/bench.
package load
