package config

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ringfence/internal/act/strictjson"
	"ringfence/internal/sys/paths"
)

// A loader fills one Config.
type loader struct {
	path, home string
	src        []byte // nil: there is no file
	config     Config
	settings   Provenance
}

func (l *loader) all(env func(string) (string, bool)) error {
	var f file
	if l.src != nil {
		if err := strictjson.Unmarshal(l.src, &f); err != nil {
			return fmt.Errorf("%w: %s:%w", ErrInvalid, l.path, err)
		}
	}
	return errors.Join(
		l.ask(f.Ask, env),
		l.approvers(f.Approvers),
		l.guests(f.Approvals),
		l.idle(f.Idle),
		l.policies(f.Policies),
		l.box(f.Box, env),
		l.network(f.Network),
		l.notices(f.Approvals),
		l.terminal(f.Terminal),
		l.models(f.Models),
		l.statistics(f.Statistics),
		l.log(f.Log, env),
	)
}

func (l *loader) ask(a *ask, env func(string) (string, bool)) error {
	if a == nil {
		a = &ask{}
	}
	wait, err := l.seconds("ask.seconds", a.Seconds, 300, 10, 3600)
	l.config.AskWait = wait
	if a.Never != nil {
		l.config.AskNever = *a.Never
	}
	never := l.setting("ask.never", strconv.FormatBool(l.config.AskNever), a.Never != nil)
	v, _ := env(EnvAsk)
	switch v {
	case "":
	case "never":
		l.config.AskNever = true
		never.Value, never.Source, never.Where = "true", FromEnvironment, EnvAsk
	default:
		err = errors.Join(err, fmt.Errorf("%w: %s is %q; it can only be \"never\"", ErrInvalid, EnvAsk, v))
	}
	l.settings = append(l.settings, never)
	return err
}

// approvers turns role → names into person → roles.
func (l *loader) approvers(roles map[string][]string) error {
	people := map[string][]string{}
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		at := "/approvers/" + strictjson.Escape(role)
		if role == "" || strings.ContainsAny(role, " \t\n\"@") {
			return l.invalid(at, "%q is no name for a role", role)
		}
		for i, name := range roles[role] {
			if strings.TrimSpace(name) == "" {
				return l.invalid(fmt.Sprintf("%s/%d", at, i), "an approver has no name: write a user name or a numeric user id")
			}
			if !slices.Contains(people[name], role) {
				people[name] = append(people[name], role)
			}
		}
	}
	l.config.Approvers = people
	var text []string
	for _, role := range slices.Sorted(maps.Keys(roles)) {
		text = append(text, role+": "+strings.Join(roles[role], ", "))
	}
	l.settings = append(l.settings, l.setting("approvers", strings.Join(text, "; "), roles != nil))
	return nil
}

// maxSocket is how long the name of a socket can be everywhere (sun_path of unix(7)),
// without the zero byte.
const maxSocket = 103

func (l *loader) guests(a *approvals) error {
	const key = "approvals.socket"
	if a == nil || a.Socket == nil {
		l.settings = append(l.settings, l.setting(key, "", false))
		return nil
	}
	path := *a.Socket
	switch {
	case path == "":
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return l.invalid(pointer(key), "%q is not an absolute path", path)
	case len(path) > maxSocket:
		return l.invalid(pointer(key), "the path of a socket has at most %d bytes, and this one %d", maxSocket, len(path))
	case path == l.home || strings.HasPrefix(path, l.home+"/"):
		return l.invalid(pointer(key), "%q is in the home of ringfence, which other users cannot enter: name a directory beside it", path)
	}
	l.config.GuestSocket = path
	l.settings = append(l.settings, l.setting(key, path, true))
	return nil
}

func (l *loader) idle(s *seconds) (err error) {
	if s == nil {
		s = &seconds{}
	}
	l.config.Idle, err = l.seconds("idle.seconds", s.Seconds, 600, 0, 86400)
	return err
}

func (l *loader) statistics(s *statistics) error {
	if s == nil {
		s = &statistics{}
	}
	c := &l.config
	if s.Off != nil {
		c.StatisticsOff = *s.Off
	}
	if c.StatisticsDays = 90; s.Days != nil {
		c.StatisticsDays = *s.Days
	}
	if c.StatisticsDays < 1 || c.StatisticsDays > 3650 {
		return l.invalid("/statistics/days", "statistics.days is %d; it must be from 1 to 3650", c.StatisticsDays)
	}
	l.settings = append(l.settings,
		l.setting("statistics.off", strconv.FormatBool(c.StatisticsOff), s.Off != nil),
		l.setting("statistics.days", strconv.Itoa(c.StatisticsDays), s.Days != nil))
	return nil
}

func (l *loader) policies(p *policies) error {
	if p == nil {
		p = &policies{}
	}
	var err1, err2 error
	l.config.Policies.Organisation, err1 = l.dir("policies.organisation", p.Organisation, "organisation")
	l.config.Policies.User, err2 = l.dir("policies.user", p.User, "user")
	return errors.Join(err1, err2)
}

// dir reads the directory of a layer. The default is one of that name in the
// policies of the home, if it exists: a layer that was named and is missing is
// an error when it is loaded, a default that is missing is none.
func (l *loader) dir(key string, given *string, name string) (string, error) {
	if given == nil {
		dir := filepath.Join(paths.Policies(l.home), name)
		if _, err := os.Lstat(dir); err != nil {
			if !errors.Is(err, os.ErrNotExist) {
				return "", fmt.Errorf("reading configuration: %w", err)
			}
			dir = ""
		}
		l.settings = append(l.settings, l.setting(key, dir, false))
		return dir, nil
	}
	if *given != "" && !filepath.IsAbs(*given) {
		return "", l.invalid(pointer(key), "%q is not an absolute path", *given)
	}
	l.settings = append(l.settings, l.setting(key, *given, true))
	return *given, nil
}

var levels = map[string]slog.Level{"error": slog.LevelError, "warn": slog.LevelWarn, "info": slog.LevelInfo, "debug": slog.LevelDebug}

func (l *loader) log(given *string, env func(string) (string, bool)) error {
	set := l.setting("log", "warn", given != nil)
	if given != nil {
		set.Value = *given
		if _, ok := levels[set.Value]; !ok {
			return l.invalid("/log", "%s", noLevel(set.Value))
		}
	}
	if v, _ := env(EnvLog); v != "" {
		if _, ok := levels[v]; !ok {
			return fmt.Errorf("%w: %s: %s", ErrInvalid, EnvLog, noLevel(v))
		}
		set.Value, set.Source, set.Where = v, FromEnvironment, EnvLog
	}
	l.config.Log = levels[set.Value]
	l.settings = append(l.settings, set)
	return nil
}

func noLevel(v string) string {
	names := slices.Sorted(maps.Keys(levels))
	if near := strictjson.Nearest(v, names); near != "" {
		return fmt.Sprintf("%q is no level; did you mean %q?", v, near)
	}
	return fmt.Sprintf("%q is no level; there are %s", v, strings.Join(names, ", "))
}

// seconds reads a number of seconds within bounds.
func (l *loader) seconds(key string, given *int, otherwise, least, most int) (time.Duration, error) {
	n := otherwise
	if given != nil {
		n = *given
	}
	if n < least || n > most {
		return 0, l.invalid(pointer(key), "%s is %d; it must be from %d to %d", key, n, least, most)
	}
	l.settings = append(l.settings, l.setting(key, strconv.Itoa(n), given != nil))
	return time.Duration(n) * time.Second, nil
}

// setting describes a value from the file, or else a default.
func (l *loader) setting(key, value string, given bool) Setting {
	s := Setting{Key: key, Value: value, Source: FromDefault}
	if given {
		s.Source, s.Where = FromFile, l.where(pointer(key))
	}
	return s
}

func pointer(key string) string { return "/" + strings.ReplaceAll(key, ".", "/") }

// where is file:line:column of the value at a pointer.
func (l *loader) where(pointer string) string {
	v, ok, err := strictjson.Find(l.src, pointer)
	if err != nil || !ok {
		return l.path
	}
	before := l.src[:v.Start]
	line := 1 + bytes.Count(before, []byte{'\n'})
	return fmt.Sprintf("%s:%d:%d", l.path, line, v.Start-bytes.LastIndexByte(before, '\n'))
}

func (l *loader) invalid(pointer, format string, a ...any) error {
	return fmt.Errorf("%w: %s: %s", ErrInvalid, l.where(pointer), fmt.Sprintf(format, a...))
}
