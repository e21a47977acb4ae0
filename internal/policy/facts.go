package policy

import (
	"fmt"
	"reflect"

	"github.com/cedar-policy/cedar-go/types"

	"ringfence/internal/act"
)

// A name is an attribute that policies may read, of a resource or of the
// context (schema.cedarschema). No attribute has two meanings but args, which
// both may have.
type name uint8

// The names, in the order of nameTexts.
const (
	nameName name = iota
	nameExt
	nameExists
	nameHardlinked
	nameClass
	nameNew
	nameProgram
	nameArgs
	nameHost
	namePort
	namePrivate
	nameScheme
	namePath
	nameURL
	nameRef
	nameConfigured
	nameDomain
	nameRegistry
	nameVersion
	nameAgeHours
	nameResembles
	nameApproved
	nameSession
	nameTool
	nameCounts
	nameHour
	nameText
	nameNumber
	nameFlag
	nameLabels
	names // how many there are
)

// nameTexts are the names as policies write them.
var nameTexts = [names]types.String{
	"name", "ext", act.FactExists, factHardlinked, act.FactClass, act.FactNewRepo, FactProgram, "args", "host", "port", "private",
	"scheme", "path", act.FactRemoteURL, act.FactRef, act.FactConfigured, "domain", "registry", "version", act.FactAgeHours, act.FactResembles,
	"approved", "session", "tool", "counts", "hour", "text", "number", "flag", "labels",
}

// FactProgram is the fact of a Command that holds the bare name which would run
// this program: string, "go"; "" when no bare name does. Without it a program in
// one of the system's own directories has its base name.
const FactProgram = "program"

// factHardlinked is the fact of a Path that is true where the file has another
// name too, so that a change shows somewhere else (package gate/resolve).
const factHardlinked = "hardlinked"

// A nameSet is a set of names.
type nameSet uint32

func setOf(ns ...name) nameSet {
	var s nameSet
	for _, n := range ns {
		s |= 1 << n
	}
	return s
}

func (s nameSet) has(n name) bool { return s&(1<<n) != 0 }

// nameOf returns the set of the one name that text is, nothing for others.
func nameOf(text types.String) nameSet {
	for n, t := range nameTexts {
		if t == text {
			return setOf(name(n))
		}
	}
	return 0
}

// treeNames are the attributes of the types that have trees.
var treeNames = map[types.EntityType]nameSet{
	typePath: setOf(nameName, nameExt, nameExists, nameHardlinked, nameClass),
	typeRepo: setOf(nameName, nameNew, nameClass),
}

// couldHave reports whether a resource of r's type can have an attribute.
func (r *resource) couldHave(name nameSet) bool {
	of, known := treeNames[r.uid.Type]
	return !known || of&name != 0
}

// A value is the value of one attribute of a resource.
type value struct {
	name name
	val  types.Value
}

// factTypes says which facts a resolver may give for each type of resource, besides
// [act.FactClass], and of which Go type they are.
var factTypes = map[act.ResourceType]map[string]any{
	act.Path:    {act.FactExists: false, factHardlinked: false},
	act.Repo:    {act.FactNewRepo: false},
	act.Remote:  {act.FactRemoteURL: "", act.FactRef: "", act.FactConfigured: false},
	act.Package: {act.FactAgeHours: int64(0)},
	act.Command: {FactProgram: ""},
}

// checkFacts returns an error for a fact that the schema does not have for the
// type of r, or not with that type.
func checkFacts(r act.Resource) error {
	for k, v := range r.Facts {
		want, ok := factTypes[r.Type][k]
		if k == act.FactClass {
			want, ok = "", true
		}
		if !ok {
			return fmt.Errorf("%s has no fact %q", r.Type, k)
		}
		if reflect.TypeOf(v) != reflect.TypeOf(want) {
			return fmt.Errorf("fact %q of %s is a %T, want %T", k, r.Type, v, want)
		}
	}
	return nil
}
