package constitution

import (
	"slices"
	"strings"
	"time"

	"ringfence/internal/policy"
)

var windows = map[string]time.Duration{
	"second": time.Second, "minute": time.Minute, "hour": time.Hour, "day": 24 * time.Hour, "week": 7 * 24 * time.Hour,
	"hourly": time.Hour, "daily": 24 * time.Hour, "weekly": 7 * 24 * time.Hour,
	"session": 0, "run": 0, "task": 0, "conversation": 0,
}

// limit reads "at most 20 times an hour", "twice a day", "up to 5 per session".
func (p *parser) limit(c *conditions) bool {
	start := p.i
	if c.most > 0 {
		l, ok := p.window()
		if l.Count = c.most; ok {
			c.limit, c.most = &l, 0
		}
		return ok
	}
	most := p.accept("at-most", "max", "maximum")
	var n int64
	switch t := p.peek(); {
	case t.kind == number && most || t.kind == number && (p.peekAt(1).is("times") || p.peekAt(1).is("per")):
		n = t.n
		p.i++
	case t.is("once") && (most || p.windowAhead(1)):
		n, p.i = 1, p.i+1
	case t.is("twice") && (most || p.windowAhead(1)):
		n, p.i = 2, p.i+1
	default:
		if t.is("more-than") {
			p.wrong(p.i, "may … at most 20 times an hour", "a limit belongs to what is allowed")
		}
		p.i = start
		return false
	}
	p.accept("times", "time")
	l, ok := p.window()
	if !ok {
		p.wrong(p.i, "at most 20 times an hour", "a limit needs a span of time: an hour, a day, a session")
		p.i = start
		return false
	}
	if n < 1 || c.limit != nil {
		return p.wrong(start, "", "a limit is one number of at least 1")
	}
	l.Count = n
	c.limit = &l
	return true
}

func (p *parser) windowAhead(n int) bool {
	t := p.peekAt(n)
	return t.is("a") || t.is("an") || t.is("per") || t.is("each") || t.is("every") || t.is("in")
}

// window reads "an hour", "per session", "in 10 minutes".
func (p *parser) window() (policy.Limit, bool) {
	start := p.i
	times := int64(1)
	p.accept("in", "within")
	p.accept("a", "an", "per", "each", "every", "any", "one", "the")
	if t := p.peek(); t.kind == number {
		times = max(1, t.n)
		p.i++
	}
	unit := p.peek().low
	span, ok := windows[unit]
	if !ok {
		unit = strings.TrimSuffix(unit, "s")
		span, ok = windows[unit]
	}
	if !ok {
		p.miss(p.i)
		p.i = start
		return policy.Limit{}, false
	}
	p.i++
	return policy.Limit{Window: span * time.Duration(times), PerSession: span == 0}, true
}

// until reads the end of a clause: a day, which is included, or a moment.
func (p *parser) until(c *conditions) bool {
	start := p.i
	if !p.accept("until", "till", "through", "before") {
		return false
	}
	lead := p.toks[start].low
	p.accept("the", "end")
	p.accept("of")
	at, day, ok := p.date()
	if !ok {
		p.i = start
		return false
	}
	if day && lead != "before" {
		at = at.AddDate(0, 0, 1)
	}
	c.expires = &at
	return true
}

var months = strings.Fields("january february march april may june july august september october november december")

// date reads 2027-01-31, a moment as in RFC 3339, "31 January 2027" or "January
// 31, 2027". Days begin at 00:00 UTC.
func (p *parser) date() (at time.Time, day, ok bool) {
	t := p.peek()
	if d, err := time.Parse(time.DateOnly, t.text); err == nil {
		p.i++
		return d, true, true
	}
	if d, err := time.Parse(time.RFC3339, strings.ToUpper(t.text)); err == nil {
		p.i++
		return d.UTC(), false, true
	}
	d, m, y := t, p.peekAt(1), p.peekAt(2)
	n := 3
	if slices.Contains(months, t.low) {
		d, m = m, t
		if y.is(",") {
			y, n = p.peekAt(3), 4
		}
	}
	month := slices.Index(months, m.low)
	if month < 0 || d.kind != number || y.kind != number || y.n < 1000 {
		return time.Time{}, false, p.miss(p.i)
	}
	p.i += n
	at = time.Date(int(y.n), time.Month(month+1), int(d.n), 0, 0, 0, 0, time.UTC)
	return at, true, at.Day() == int(d.n)
}

// hoursOfDay reads "between 9 and 17 UTC" and "outside 9:00-17:00 UTC".
func (p *parser) hoursOfDay(c *conditions) bool {
	start := p.i
	not := p.accept("outside")
	if !p.accept("between", "from", "during") && !not {
		return false
	}
	p.accept("of", "the", "hours")
	from, to, ok := p.hourRange()
	if !ok {
		p.i = start
		return false
	}
	p.accept("o'clock", "hours")
	if !p.accept("utc", "gmt") {
		return p.wrong(p.i, "between 9 and 17 UTC", "hours are those of UTC: say so")
	}
	p.accept("time")
	if from == to || from > 23 {
		return p.wrong(start, "between 9 and 17 UTC", "the hours leave nothing, or everything")
	}
	if not {
		from, to = to, from
	}
	if from >= to { // over midnight: all but the hours between
		c.hours = append(c.hours, [2]int64{to, from})
		return true
	}
	c.when = append(c.when, policy.Condition{Fact: policy.FactHour, Op: ">=", Value: from},
		policy.Condition{Fact: policy.FactHour, Op: "<", Value: to})
	return true
}

func (p *parser) hourRange() (from, to int64, ok bool) {
	t := p.peek()
	if a, b, cut := strings.Cut(strings.ReplaceAll(t.text, "–", "-"), "-"); cut {
		from, okFrom := hourOf(a)
		to, okTo := hourOf(b)
		p.i++
		return from, to, okFrom && okTo
	}
	from, ok = p.hour()
	if !ok || !p.accept("and", "to", "until", "—") {
		return 0, 0, false
	}
	to, ok = p.hour()
	return from, to, ok
}

func (p *parser) hour() (int64, bool) {
	t := p.peek()
	h, ok := hourOf(t.low)
	if !ok {
		return 0, p.miss(p.i)
	}
	p.i++
	if h < 13 && p.accept("pm", "p.m.") && h < 12 {
		h += 12
	}
	p.accept("am", "a.m.", "o'clock")
	return h, true
}

// hourOf reads 9, 09:00, 9am or 5pm.
func hourOf(s string) (int64, bool) {
	s = strings.TrimSuffix(s, ":00")
	pm := strings.HasSuffix(s, "pm")
	n, ok := numberOf(strings.TrimSuffix(strings.TrimSuffix(s, "am"), "pm"))
	if len(s) > 1 && s[0] == '0' && !ok {
		n, ok = numberOf(s[1:])
	}
	if pm && n < 12 {
		n += 12
	}
	return n, ok && n <= 24
}
