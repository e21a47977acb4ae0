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

// CredentialsIn yields where credentials usually are beneath the path p, whether they
// exist or not. p itself is never among them: who names a place of credentials wants it.
func (r Roots) CredentialsIn(p string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, in := range []iter.Seq2[string, Class]{r.Fixed(p), r.InHome()} {
			for name, class := range in {
				if class == Credentials && name != p && Beneath(name, p) && !yield(name) {
					return
				}
			}
		}
	}
}
