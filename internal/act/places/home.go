package places

import "iter"

// InHome yields, of those places of the gate's table that count anywhere, where they
// are in the home: the part before any wildcard.
func (r Roots) InHome() iter.Seq2[string, Class] {
	return func(yield func(string, Class) bool) {
		for i := range table {
			t := &table[i]
			fixed := t.fixed()
			if t.at != anywhere || fixed == "" || r.Home == "" || r.Home == "/" {
				continue
			}
			if !yield(r.Home+"/"+fixed, class[t.kind]) {
				return
			}
		}
	}
}
