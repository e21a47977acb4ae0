package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/sys/paths"
)

// An amount is a flag that says how many bytes: a number above 0, with K, M, G or T for
// 1,024 to the power of 1 to 4. Its zero value says nothing.
type amount int64

// String implements pflag.Value.
func (a *amount) String() string {
	if *a == 0 {
		return ""
	}
	return strconv.FormatInt(int64(*a), 10)
}

// Type implements pflag.Value.
func (*amount) Type() string { return "amount" }

// Set implements pflag.Value.
func (a *amount) Set(text string) error {
	digits := strings.TrimSuffix(strings.TrimSuffix(strings.ToUpper(strings.TrimSpace(text)), "B"), "I")
	shift := 0
	if i := strings.IndexAny(digits, "KMGT"); i > 0 && i == len(digits)-1 {
		shift = 10 * (1 + strings.IndexByte("KMGT", digits[i]))
		digits = digits[:i]
	}
	n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
	if err != nil || n <= 0 || n > math.MaxInt64>>shift {
		return errors.New("it is a number of bytes above 0, such as 536870912, 512M or 2G")
	}
	*a = amount(n << shift)
	return nil
}

// A number is a flag that counts something: above 0. Its zero value says nothing.
type number int

// String implements pflag.Value.
func (n *number) String() string {
	if *n == 0 {
		return ""
	}
	return strconv.Itoa(int(*n))
}

// Type implements pflag.Value.
func (*number) Type() string { return "count" }

// Set implements pflag.Value.
func (n *number) Set(text string) error {
	v, err := strconv.ParseInt(text, 10, 32)
	if err != nil || v <= 0 {
		return errors.New("it is a whole number above 0")
	}
	*n = number(v)
	return nil
}

// A span is a flag that says how long: above 0. Its zero value says nothing.
type span time.Duration

// String implements pflag.Value.
func (d *span) String() string {
	if *d == 0 {
		return ""
	}
	return time.Duration(*d).String()
}

// Type implements pflag.Value.
func (*span) Type() string { return "time" }

// Set implements pflag.Value.
func (d *span) Set(text string) error {
	v, err := time.ParseDuration(text)
	if err != nil || v <= 0 {
		return errors.New("it is a time above 0, such as 90s, 5m or 1h30m")
	}
	*d = span(v)
	return nil
}

// seconds is d in whole seconds, at least 1 unless it says nothing.
func (d *span) seconds() int { return int((time.Duration(*d) + time.Second - 1) / time.Second) }

// A named is a flag that names variables of the environment: NAME, or NAME=VALUE.
type named []string

// String implements pflag.Value.
func (n *named) String() string { return strings.Join(*n, ",") }

// Type implements pflag.Value.
func (*named) Type() string { return "variable" }

// Set implements pflag.Value.
func (n *named) Set(text string) error {
	name, _, _ := strings.Cut(text, "=")
	if name == "" || strings.ContainsAny(name, " \t\n\x00") || strings.Contains(text, "\x00") {
		return fmt.Errorf("it is NAME or NAME=VALUE, and %q is no name of a variable", name)
	}
	*n = append(*n, text)
	return nil
}

// unset returns the names without a value that are not set here.
func (n *named) unset() []string {
	var all []string
	for _, text := range *n {
		if _, ok := paths.Variable(text); !ok && !strings.Contains(text, "=") {
			all = append(all, text)
		}
	}
	return all
}
