package draft

import (
	"slices"
	"strings"
	"sync"

	"ringfence/internal/act"
)

// A class is what the verbs in a name say that a tool does: any number of the
// following. Zero is that they say nothing.
type class uint16

const (
	observes class = 1 << iota
	writes         // makes or replaces
	edits          // changes what is there, and may show it
	deletes
	moves
	copies
	runs
	fetches
	sends
	unclear // a verb that no row of the table fits
)

// verbs are the verbs that are known. Any other word is taken for a noun.
var verbs = sync.OnceValue(func() map[string]class {
	return classes(map[class]string{
		observes: `read get list ls search find show describe view grep glob stat lookup inspect browse peek tree cat count status diff`,
		writes:   `create write set add put save store make mkdir touch insert init register new`,
		edits:    `edit update append patch replace modify change upsert rewrite`,
		deletes:  `delete remove drop rm rmdir unlink erase purge clear clean wipe destroy trash prune`,
		moves:    `move rename mv`,
		copies:   `copy cp duplicate`,
		runs:     `run exec execute eval evaluate launch spawn invoke shell bash terminal`,
		fetches:  `fetch download crawl scrape`,
		sends:    `send post publish submit notify email mail reply forward share invite upload`,
		unclear: `push pull commit merge rebase reset revert checkout restore clone kill stop start restart enable disable
		install uninstall deploy approve reject cancel pay buy order transfer grant revoke toggle trigger sign open close
		apply sync import export lock unlock archive extract transform convert migrate rollback schedule book manage do use
		call process handle navigate click type fill`,
	})
})

func classes(table map[class]string) map[string]class {
	all := map[string]class{}
	for c, list := range table {
		for w := range strings.FieldsSeq(list) {
			all[w] |= c
		}
	}
	return all
}

// classOf returns what the words of a name say together.
func classOf(name []string) (c class) {
	for _, w := range name {
		c |= verbs()[w]
	}
	return c
}

// A side is an end of a move or copy.
type side int

const (
	eitherSide side = iota
	fromSide
	toSide
)

var (
	fromWords = wordset(`source src from old original input current`)
	toWords   = wordset(`destination dest dst to new target output`)
	deepWords = wordset(`search find grep glob tree recursive recursively walk all`)
)

func sideOf(name []string) side {
	for _, w := range name {
		switch {
		case fromWords.has(w):
			return fromSide
		case toWords.has(w):
			return toSide
		}
	}
	return eitherSide
}

// onPath returns the effects on the path l, and whether they reach everything
// beneath it. The resolver makes overwrite of create where something is there.
func (t *tool) onPath(l leaf) (kinds []act.Kind, tree bool) {
	if t.does&(unclear|runs) != 0 {
		return []act.Kind{act.Read, act.List, act.Create, act.Delete}, true
	}
	from, to := sideOf(l.words) != toSide, sideOf(l.words) != fromSide
	has := map[act.Kind]bool{}
	add := func(when bool, kinds ...act.Kind) {
		for _, k := range kinds {
			has[k] = has[k] || when
		}
	}
	does := func(c class) bool { return t.does&c != 0 }
	add(does(observes|fetches|sends), act.Read, act.List)
	add(does(writes|fetches), act.Create)
	add(does(edits), act.Read, act.Create)
	add(does(deletes), act.Delete)
	add(does(moves), act.Move)
	add(does(moves) && from, act.Read) // it carries what is in it to where it may be read
	add(does(moves) && to, act.Overwrite)
	add(does(copies) && from, act.Read, act.List)
	add(does(copies) && to, act.Create)
	for _, k := range act.Kinds() {
		if has[k] {
			kinds = append(kinds, k)
		}
	}
	return kinds, does(copies) || t.reachesDown()
}

// reachesDown reports whether t says that it looks or works beneath what it is
// given.
func (t *tool) reachesDown() bool {
	return slices.ContainsFunc(t.words, func(w string) bool { return deepWords.has(w) }) || t.has("recursive") || t.has("depth")
}

// onURL returns the effects on a URL.
func (t *tool) onURL() []act.Kind {
	switch {
	case t.does&^(observes|fetches) == 0:
		return []act.Kind{act.Fetch}
	case t.does == sends:
		return []act.Kind{act.Send}
	}
	return []act.Kind{act.Fetch, act.Send}
}
