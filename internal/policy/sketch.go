package policy

// English returns c in controlled English.
func English(c Clause) string { return c.Text }
