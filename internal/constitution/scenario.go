package constitution

// A Scenario is one effect and what the policy must decide about it.
type Scenario struct{}

func scenarios(*Compiled) []Scenario { return nil }
