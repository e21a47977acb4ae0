package cli

import (
	"context"
	"errors"
	"fmt"

	"ringfence/internal/config"
)

// shellOfImages runs what only an image has: what is decided is a program of this machine,
// and of that the whole command is on record.
const shellOfImages = "/bin/sh"

// begins is how the command of an agent begins.
func (g *guest) begins() []string {
	if !g.inImage {
		return []string{g.program.Path}
	}
	name := g.adapter.Programs[0]
	return []string{g.program.Path, "-c", `exec ` + name + ` "$@"`, name}
}

// inImage settles which image the box is made of: the one that the person named, or, for an
// agent where nothing is configured, the one that was made for it.
func (f *execFlags) inImage(ctx context.Context, conf *config.Box, from config.Provenance) error {
	tier := conf.Tier
	if f.tier != "" {
		tier = f.tier
	}
	if f.image != "" {
		if f.tier == "" {
			f.tier, tier = config.TierContainer, config.TierContainer
		}
		if tier != config.TierContainer {
			return &exitError{code: codeUsage, err: fmt.Errorf("--image is of the tier container, and --tier is %s", f.tier), hint: "leave one of them out"}
		}
		conf.Container.Image = f.image
		if f.guest != nil {
			f.guest.inImage = true
		}
		return nil
	}
	if f.guest == nil || tier != config.TierContainer || from.Of("box.container.image") != string(config.FromDefault) {
		return nil
	}
	id, err := imageOf(ctx, conf.Container, f.guest.adapter.Name)
	if err != nil {
		return &exitError{code: codeNotBuilt, err: err, hint: "nothing was run; \"ringfence doctor\" says what this machine can enforce"}
	}
	if id == "" {
		return &exitError{
			code: codeNotBuilt, err: errors.New("there is no image of " + f.guest.adapter.Title + ", or it is not what would be made today"),
			hint: fmt.Sprintf("nothing was run; \"ringfence images build %s\" makes one, and --image names another", f.guest.adapter.Name),
		}
	}
	conf.Container.Image, f.guest.inImage = id, true
	return nil
}
