package fetch

import (
	"net/url"
	"strings"

	"golang.org/x/net/html"
	"golang.org/x/net/html/atom"
)

const (
	maxNesting = 10 // lists and quotes within each other that are shown as such
	maxHref    = 2048
	enough     = 200 // characters of text, from which on a page counts as read
)

// convert turns a page into Markdown or plain text, of which no more than about
// length characters will be used.
//
// It reads tokens, not a tree, so its time is linear in the page and unbalanced tags
// cost nothing. First only the element main is read, if there is one, without what
// surrounds the content (navigation and the like). If that leaves next to nothing,
// because a page is built in another way or leaves an element open, all of it is.
func convert(page, base string, markdown bool, length int) string {
	at, err := url.Parse(base)
	if err != nil {
		at = &url.URL{}
	}
	var longest string
	for _, how := range []struct{ main, frame bool }{{true, false}, {false, false}, {false, true}} {
		c := converter{base: at, markdown: markdown, limit: 4*length + 1024, inMain: !how.main, frame: how.frame}
		text := c.run(page)
		if len(text) >= enough {
			return text
		}
		if len(text) > len(longest) {
			longest = text
		}
	}
	return longest
}

// A converter is one reading of a page.
type converter struct {
	base     *url.URL
	markdown bool
	frame    bool // also read what surrounds the content
	inMain   bool // within what is to be read
	limit    int  // bytes of output that are enough

	skip      atom.Atom // element whose content is left out, 0 if none
	skipDepth int       // how many of that name are open

	out   writer
	lists []list
	links []string // addresses of open links, "" if they are not shown
	marks []string // marks of open stretches, "" if they are not shown
	pre   int
	fresh bool // just within pre: a line break here is not part of it
	title strings.Builder
	inTit bool
	hasH1 bool
	row   *row
}

type list struct {
	ordered bool
	n       int
}

// A row is a line of a table that is being read.
type row struct {
	cells []string
	first bool
}

func (c *converter) run(page string) string {
	z := html.NewTokenizer(strings.NewReader(page))
	for c.out.len() < c.limit {
		switch kind := z.Next(); kind {
		case html.ErrorToken:
			return c.finish()
		case html.TextToken:
			c.text(string(z.Text()))
		case html.StartTagToken, html.SelfClosingTagToken:
			name, more := z.TagName()
			a := atom.Lookup(name)
			if kind == html.SelfClosingTagToken && (a == atom.Svg || a == atom.Math) {
				continue // the only ones for which the slash means something
			}
			attrs := map[string]string{}
			for more {
				var k, v []byte
				if k, v, more = z.TagAttr(); len(attrs) < 32 {
					attrs[string(k)] = string(v)
				}
			}
			c.start(a, attrs)
		case html.EndTagToken:
			name, _ := z.TagName()
			c.end(atom.Lookup(name))
		}
	}
	return c.finish()
}

func (c *converter) finish() string {
	c.endRow()
	text := c.out.String()
	if t := strings.Join(strings.Fields(c.title.String()), " "); t != "" && !c.hasH1 && text != "" {
		if c.markdown {
			t = "# " + t
		}
		text = t + "\n\n" + text
	}
	return text
}

func (c *converter) text(s string) {
	switch {
	case c.inTit:
		if c.title.Len() < 1024 {
			c.title.WriteString(s)
		}
	case c.skip != 0 || !c.inMain:
	case c.pre > 0:
		if c.fresh {
			s = strings.TrimPrefix(strings.TrimPrefix(s, "\r"), "\n")
		}
		c.fresh = false
		c.out.raw(s)
	default:
		c.out.words(s)
	}
}

// never are the elements whose content is no text of the page.
var never = map[atom.Atom]bool{
	atom.Script: true, atom.Style: true, atom.Noscript: true, atom.Iframe: true, atom.Template: true, atom.Svg: true, atom.Math: true,
	atom.Object: true, atom.Canvas: true, atom.Audio: true, atom.Video: true, atom.Select: true, atom.Textarea: true, atom.Button: true, atom.Dialog: true,
}

// around are the elements that surround the content.
var around = map[atom.Atom]bool{atom.Nav: true, atom.Footer: true, atom.Aside: true}

// void are the elements without an end tag.
var void = map[atom.Atom]bool{
	atom.Area: true, atom.Base: true, atom.Br: true, atom.Col: true, atom.Embed: true, atom.Hr: true, atom.Img: true, atom.Input: true,
	atom.Link: true, atom.Meta: true, atom.Source: true, atom.Track: true, atom.Wbr: true,
}

// ends are the elements that the start of another of their kind ends.
var ends = map[atom.Atom]bool{
	atom.P: true, atom.Li: true, atom.Dt: true, atom.Dd: true, atom.Td: true, atom.Th: true, atom.Tr: true, atom.Option: true,
}

// hidden reports whether a reader would not see an element.
func hidden(attrs map[string]string) bool {
	if _, ok := attrs["hidden"]; ok {
		return true
	}
	style := strings.ToLower(strings.Join(strings.Fields(attrs["style"]), ""))
	return strings.Contains(style, "display:none") || strings.Contains(style, "visibility:hidden") || strings.Contains(style, "font-size:0") ||
		strings.Contains(style, "opacity:0;") || strings.HasSuffix(style, "opacity:0")
}

func (c *converter) start(a atom.Atom, attrs map[string]string) {
	switch {
	case c.skip != 0 && a == c.skip && ends[a]:
		c.skip = 0
	case c.skip != 0:
		if a == c.skip {
			c.skipDepth++
		}
		return
	}
	if a == atom.Main || attrs["role"] == "main" && !void[a] {
		c.inMain = true
	}
	if !void[a] && (never[a] || around[a] && !c.frame || hidden(attrs)) {
		// An element without a name that we know cannot be waited for.
		if a != 0 {
			c.skip, c.skipDepth = a, 1
		}
		return
	}
	switch a {
	case atom.Title:
		c.inTit = true
		return
	case atom.Body:
		c.inTit = false
	}
	if c.inMain {
		c.open(a, attrs)
	}
}

func (c *converter) open(a atom.Atom, attrs map[string]string) {
	switch a {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6:
		c.hasH1 = c.hasH1 || a == atom.H1
		c.out.block()
		c.mark(strings.Repeat("#", int(a.String()[1]-'0')) + " ")
	case atom.P, atom.Div, atom.Section, atom.Article, atom.Main, atom.Header, atom.Figure, atom.Dl, atom.Details, atom.Form, atom.Fieldset, atom.Address:
		c.out.block()
	case atom.Br, atom.Dt, atom.Dd, atom.Summary, atom.Figcaption, atom.Option:
		c.out.line()
	case atom.Hr:
		c.out.block()
		c.mark("---")
		c.out.block()
	case atom.Ul, atom.Ol:
		c.openList(a)
	case atom.Li:
		c.item()
	case atom.Blockquote:
		c.out.block()
		c.out.indent("> ")
	case atom.Pre:
		c.out.block()
		c.mark("```")
		c.out.line()
		c.pre++
		c.fresh = true
	case atom.Code, atom.Kbd, atom.Samp:
		c.openMark("`")
	case atom.Strong, atom.B:
		c.openMark("**")
	case atom.Em, atom.I:
		c.openMark("*")
	case atom.A:
		c.openLink(attrs["href"])
	case atom.Img:
		c.image(attrs)
	case atom.Table:
		c.endRow()
		c.out.block()
		c.row = &row{first: true}
	case atom.Tr:
		c.newRow()
	case atom.Td, atom.Th:
		c.cell()
	}
}

func (c *converter) end(a atom.Atom) {
	if c.skip != 0 {
		if a == c.skip {
			if c.skipDepth--; c.skipDepth == 0 {
				c.skip = 0
			}
		}
		return
	}
	if a == atom.Title {
		c.inTit = false
	}
	if !c.inMain {
		return
	}
	switch a {
	case atom.H1, atom.H2, atom.H3, atom.H4, atom.H5, atom.H6, atom.P, atom.Div, atom.Section, atom.Article, atom.Main, atom.Header,
		atom.Figure, atom.Dl, atom.Details, atom.Form, atom.Fieldset, atom.Address:
		c.out.block()
	case atom.Ul, atom.Ol:
		c.closeList()
	case atom.Blockquote:
		c.out.block()
		c.out.outdent("> ")
	case atom.Pre:
		if c.pre > 0 {
			c.pre--
			c.out.line()
			c.mark("```")
			c.out.block()
		}
	case atom.Code, atom.Kbd, atom.Samp, atom.Strong, atom.B, atom.Em, atom.I:
		c.closeMark()
	case atom.A:
		c.closeLink()
	case atom.Td, atom.Th:
		c.endCell()
	case atom.Tr:
		c.newRow()
	case atom.Table:
		c.endRow()
		c.row = nil
		c.out.block()
	}
}

// mark writes what only Markdown has.
func (c *converter) mark(s string) {
	if c.markdown {
		c.out.words(s)
	}
}

// openMark begins a stretch of Markdown that closeMark ends with the same mark. Deep
// nesting, and marks in code, are not shown.
func (c *converter) openMark(s string) {
	if !c.markdown || c.pre > 0 || len(c.marks) >= maxNesting {
		s = ""
	}
	c.marks = append(c.marks, s)
	c.out.pending += s
}

func (c *converter) closeMark() {
	if len(c.marks) == 0 {
		return
	}
	s := c.marks[len(c.marks)-1]
	c.marks = c.marks[:len(c.marks)-1]
	if rest, ok := strings.CutSuffix(c.out.pending, s); ok {
		c.out.pending = rest // nothing was between the two
		return
	}
	c.out.attach(s)
}

func (c *converter) openList(a atom.Atom) {
	if len(c.lists) == 0 {
		c.out.block()
	} else {
		c.out.line()
		if len(c.lists) < maxNesting {
			c.out.indent("  ")
		}
	}
	if len(c.lists) < 1000 {
		c.lists = append(c.lists, list{ordered: a == atom.Ol})
	}
}

func (c *converter) closeList() {
	if len(c.lists) == 0 {
		return
	}
	c.lists = c.lists[:len(c.lists)-1]
	if len(c.lists) == 0 {
		c.out.block()
		return
	}
	c.out.line()
	if len(c.lists) < maxNesting {
		c.out.outdent("  ")
	}
}

func (c *converter) item() {
	c.out.line()
	bullet := "-"
	if n := len(c.lists); n > 0 && c.lists[n-1].ordered {
		c.lists[n-1].n++
		bullet = itoa(c.lists[n-1].n) + "."
	}
	c.out.words(bullet)
	c.out.space = true
}

func itoa(n int) string {
	if n < 10 {
		return string(rune('0' + n))
	}
	return itoa(n/10) + string(rune('0'+n%10))
}

// address returns where a link leads, "" if that is nothing to show.
func (c *converter) address(href string) string {
	u, err := c.base.Parse(strings.TrimSpace(href))
	if err != nil || href == "" || len(href) > maxHref || strings.HasPrefix(href, "#") {
		return ""
	}
	switch u.Scheme {
	case "http", "https", "mailto":
		return strings.NewReplacer("(", "%28", ")", "%29", " ", "%20").Replace(u.String())
	}
	return ""
}

func (c *converter) openLink(href string) {
	to := ""
	if c.markdown && c.pre == 0 && len(c.links) < maxNesting {
		to = c.address(href)
	}
	c.links = append(c.links, to)
	if to != "" {
		c.out.pending += "["
	}
}

func (c *converter) closeLink() {
	if len(c.links) == 0 {
		return
	}
	to := c.links[len(c.links)-1]
	c.links = c.links[:len(c.links)-1]
	if to == "" {
		return
	}
	if rest, ok := strings.CutSuffix(c.out.pending, "["); ok {
		c.out.pending = rest // a link without text
		return
	}
	c.out.attach("](" + to + ")")
}

func (c *converter) image(attrs map[string]string) {
	alt := attrs["alt"]
	if strings.TrimSpace(alt) == "" {
		return
	}
	to := c.address(attrs["src"])
	if !c.markdown || to == "" {
		c.out.words(alt)
		return
	}
	c.out.words("![" + alt + "](" + to + ")")
}

// newRow ends the row that is being read, if any, and begins the next.
func (c *converter) newRow() {
	if c.row == nil {
		c.out.line()
		return
	}
	c.endRow()
}

// endRow writes the row that was read.
func (c *converter) endRow() {
	if c.row == nil {
		return
	}
	c.endCell()
	if len(c.row.cells) == 0 {
		return
	}
	c.out.line()
	if !c.markdown {
		c.out.words(strings.Join(c.row.cells, "\u00a0| "))
	} else {
		c.out.words("| " + strings.Join(c.row.cells, " | ") + " |")
		if c.row.first {
			c.out.line()
			c.out.words("|" + strings.Repeat(" --- |", len(c.row.cells)))
		}
	}
	c.out.line()
	c.row.cells, c.row.first = nil, false
}

func (c *converter) cell() {
	c.endCell()
	if c.row != nil && len(c.row.cells) < 100 {
		c.out.capture()
	}
}

func (c *converter) endCell() {
	if c.row == nil {
		return
	}
	if text, ok := c.out.captured(); ok {
		c.row.cells = append(c.row.cells, strings.ReplaceAll(strings.Join(strings.Fields(text), " "), "|", `\|`))
	}
}
