package cli

import (
	"ringfence/internal/review"
	"ringfence/internal/sandbox/native"
)

// follow finds out what in the workspace of r links and configuration lead to: a box on
// the live workspace holds that, and a review marks it. Where it cannot be told, all of
// the workspace counts as led to. person is the home of the person, "" if not known.
func follow(r *review.Review, person string) *review.Review {
	led, err := native.Leads(r.Workspace, person)
	r.Led = nil
	for _, l := range led {
		r.Led = append(r.Led, review.Led{Path: l.Path, By: l.By})
	}
	if err != nil {
		r.Led = append(r.Led, review.Led{Path: r.Workspace, By: err.Error()})
	}
	return r
}
