package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"text/template"
	"time"
	"unicode/utf8"
)

// A row is one line of the table.
type row struct {
	What   string
	Ours   [2]string // p50 and p99; of rates the middle and the slowest window; of sizes one
	Name   string    // of what is beside it
	Beside [2]string
	Ratio  float64
	Figure string // what the target is about
	Reach  string // the target, "" for none
	Met    bool
}

// latency makes a row of two series.
func latency(what string, ours series, name string, beside series) row {
	return row{
		What: what, Ours: [2]string{span(ours.p50()), span(ours.p99())}, Name: name,
		Beside: [2]string{span(beside.p50()), span(beside.p99())},
		Ratio:  float64(ours.p50()) / float64(beside.p50()), Figure: span(ours.p50()),
	}
}

// within says that figure is to be at most limit.
func (r row) within(figure, limit time.Duration) row {
	r.Figure, r.Reach, r.Met = span(figure), "≤ "+span(limit), figure <= limit
	return r
}

// added makes the target one of what ours takes longer than what is beside it.
func (r row) added(ours, beside series, limit time.Duration) row {
	more := ours.p50() - beside.p50()
	r.Figure, r.Reach, r.Met = "added "+span(more), "added ≤ "+span(limit), more <= limit
	return r
}

// rates makes a row of two lists of rates; unit is what is counted.
func rates(what, unit string, ours []float64, name string, beside []float64) row {
	mid, low := median(ours)
	theirs, theirLow := median(beside)
	return row{
		What: what, Ours: [2]string{perSecond(mid, unit), perSecond(low, unit)}, Name: name,
		Beside: [2]string{perSecond(theirs, unit), perSecond(theirLow, unit)},
		Ratio:  mid / theirs, Figure: perSecond(mid, unit),
	}
}

// atLeast sets the target of a row of rates.
func (r row) atLeast(ours []float64, limit float64, unit string) row {
	mid, _ := median(ours)
	r.Reach, r.Met = "≥ "+perSecond(limit, unit), mid >= limit
	return r
}

func (r row) verdict() string {
	switch {
	case r.Reach == "":
		return "–"
	case r.Met:
		return "yes"
	}
	return "no"
}

// span writes a duration with three significant digits.
func span(d time.Duration) string {
	for _, u := range []struct {
		unit time.Duration
		name string
	}{{time.Second, "s"}, {time.Millisecond, "ms"}, {time.Microsecond, "µs"}} {
		if d.Abs() >= u.unit {
			return digits(float64(d)/float64(u.unit)) + " " + u.name
		}
	}
	return fmt.Sprintf("%d ns", d.Nanoseconds())
}

func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100:
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return strings.TrimSuffix(fmt.Sprintf("%.1f", x), ".0")
	}
	return strings.TrimSuffix(strings.TrimSuffix(fmt.Sprintf("%.2f", x), "0"), ".0")
}

// ratio writes ours to beside.
func ratio(x float64) string {
	if x < 1 {
		return "×" + strconv.FormatFloat(x, 'g', 2, 64)
	}
	return "×" + digits(x)
}

func perSecond(x float64, unit string) string { return grouped(x) + " " + unit + "/s" }

// grouped writes a number with commas, rounded to three digits.
func grouped(x float64) string {
	if x >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(x))-2)
		x = math.Round(x/unit) * unit
	}
	text := fmt.Sprintf("%.0f", x)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// size writes bytes as megabytes of 10^6.
func size(bytes int64) string { return fmt.Sprintf("%.1f MB", float64(bytes)/1e6) }

// A page is a run, for people.
type page struct {
	Machine, Date string
	Before, After string // load of the machine
	Rows          []row
}

var titles = []string{"what", "p50", "p99", "beside it", "p50", "p99", "ratio", "figure", "to reach", "reached"}

func (r row) cells() []string {
	return []string{
		r.What, r.Ours[0], r.Ours[1], r.Name, r.Beside[0], r.Beside[1], ratio(r.Ratio), r.Figure, r.Reach, r.verdict(),
	}
}

func (p page) text() string {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s, %s; load before %s, after %s\n\n", p.Date, p.Machine, p.Before, p.After)
	b.WriteString(p.aligned())
	return b.String()
}

func (p page) table() (lines [][]string) {
	for _, r := range p.Rows {
		lines = append(lines, r.cells())
	}
	return lines
}

//go:embed page.md
var pageText string

// markdown is the page that docs has.
func (p page) markdown() []byte {
	var b bytes.Buffer
	t := template.Must(template.New("page").Parse(pageText))
	err := t.Execute(&b, map[string]any{"Page": p, "Table": p.aligned(), "Missed": p.missed()})
	if err != nil {
		panic(err) // the text and the types are both ours
	}
	return b.Bytes()
}

// missed are the rows whose target was not reached.
func (p page) missed() (rows []row) {
	for _, r := range p.Rows {
		if r.verdict() == "no" {
			rows = append(rows, r)
		}
	}
	return rows
}

// aligned is the table in markdown.
func (p page) aligned() string {
	lines := append([][]string{titles}, p.table()...)
	widths := make([]int, len(titles))
	for _, cells := range lines {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}
	rule := make([]string, len(titles))
	for i := range rule {
		rule[i] = strings.Repeat("-", widths[i])
	}
	var b strings.Builder
	for n, cells := range lines {
		if n == 1 {
			b.WriteString("| " + strings.Join(rule, " | ") + " |\n")
		}
		for i, c := range cells {
			b.WriteString("| " + c + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c)+1))
		}
		b.WriteString("|\n")
	}
	return b.String()
}

// machine says on what the figures were measured.
func machine() string {
	model := runtime.GOARCH
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d processors, %s, %s", model, runtime.NumCPU(), runtime.GOOS, runtime.Version())
}

// load is the load average over a minute, where the machine tells.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return "not known"
	}
	first, _, _ := strings.Cut(string(text), " ")
	return first
}
