package hold

import "strings"

// A naming is what the value of a setting of git is.
type naming uint8

const (
	namesNothing naming = iota
	namesHooks          // a directory of hooks
	namesPath           // another file or directory that git takes orders from
	namesCommand        // a command line of the shell, or a program
)

// orders are the settings of git that name what it runs or obeys without being told to
// at that time (git-config(1)), by section and key, subsections left out. What is run
// by its own name only, as aliases and tools to merge with, is not among them.
var orders = map[string]naming{
	"core.hookspath": namesHooks, "core.attributesfile": namesPath, "init.templatedir": namesPath,

	"core.fsmonitor": namesCommand, "core.sshcommand": namesCommand, "core.editor": namesCommand, "core.pager": namesCommand,
	"core.askpass": namesCommand, "core.gitproxy": namesCommand, "core.alternaterefscommand": namesCommand,
	"sequence.editor": namesCommand, "pager.*": namesCommand, "interactive.difffilter": namesCommand,
	"diff.external": namesCommand, "diff.command": namesCommand, "diff.textconv": namesCommand, "merge.driver": namesCommand,
	"filter.clean": namesCommand, "filter.smudge": namesCommand, "filter.process": namesCommand,
	"credential.helper": namesCommand, "gpg.program": namesCommand, "gpg.defaultkeycommand": namesCommand,
	"uploadpack.packobjectshook": namesCommand, "remote.uploadpack": namesCommand, "remote.receivepack": namesCommand,
	"trailer.command": namesCommand, "trailer.cmd": namesCommand, "hook.command": namesCommand, "submodule.update": namesCommand,
}

// kindOf returns what the value of the setting key is.
func kindOf(key string) naming {
	first, last := strings.IndexByte(key, '.'), strings.LastIndexByte(key, '.')
	section, name := strings.ToLower(key[:first]), strings.ToLower(key[last+1:])
	if n, ok := orders[section+"."+name]; ok {
		return n
	}
	return orders[section+".*"]
}

// words returns the words of a command. Quotes and what else the shell knows only
// separate.
func words(command string) []string {
	const most = 64
	all := strings.FieldsFunc(command, func(c rune) bool { return strings.ContainsRune(" \t\n\"'`;|&<>()$!=", c) })
	return all[:min(len(all), most)]
}
