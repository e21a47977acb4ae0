package inspect

import (
	"bytes"
	"math"
)

// What is personal is found by numbers that carry a check of their own, so that other
// numbers are not taken for them. A mail address or a name alone is nothing: every source
// file has one.

const maxPrivate = 1 // more of it changes no label

// numbers looks for a number of a card or an account at text[i], a digit or two capital
// letters. It returns how many bytes to go on, 0 if more text decides.
func (s *scan) numbers(v view, i int) int {
	if i > 0 && is(v.text[i-1], word) {
		return 1
	}
	find, name := card, "card-number"
	if is(v.text[i], upperChar) {
		find, name = iban, "account-number"
	}
	end, found := find(s, v.text, i)
	switch found {
	case more:
		return 0
	case yes:
		s.sign(mapped(i, end, v.steps), Private, name)
		return end - i
	default:
		return 1
	}
}

// Bounds of a card number (ISO/IEC 7812-1), in digits.
const (
	minCard = 13
	maxCard = 19
)

// card wants a number that an issuer of cards gives out, in groups as on a card or with
// nothing between the digits, whose last digit is the check digit of Luhn. Without groups
// one number in ten would do, so a word has to say what it is.
func card(s *scan, text []byte, i int) (end int, v verdict) {
	first := run(text[i:], digitChar, maxCard+1)
	switch {
	case i+first == len(text) && first <= maxCard && !s.whole:
		return 0, more
	case first != 4 && first < minCard, first > maxCard:
		return 0, no
	}
	digits := make([]byte, 0, maxCard+1)
	var sep byte
	groups := 1
	for end = i; ; end++ {
		if end == len(text) {
			if !s.whole {
				return 0, more
			}
			break
		}
		c := text[end]
		if is(c, digitChar) {
			if digits = append(digits, c-'0'); len(digits) > maxCard {
				return 0, no
			}
			continue
		}
		grouped := len(digits) > 0 && len(digits)%4 == 0 && (c == ' ' || c == '-') && (sep == 0 || c == sep) && text[end-1] != c
		if !grouped || len(digits) >= maxCard {
			break
		}
		if end+1 == len(text) && !s.whole {
			return 0, more
		}
		if end+1 == len(text) || !is(text[end+1], digitChar) {
			break
		}
		sep = c
		groups++
	}
	if end < len(text) && text[end] == '.' && end+1 == len(text) && !s.whole {
		return 0, more
	}
	if end < len(text) && (is(text[end], word) || text[end] == '.' && end+1 < len(text) && is(text[end+1], digitChar)) {
		return 0, no
	}
	named := func() bool {
		var room [nearby]byte
		return groups >= 4 || bytes.Contains(lowered(&room, text[max(0, i-lookBehind+8):i]), []byte("card"))
	}
	if len(digits) < minCard || !named() || !issued(digits) || !luhn(digits) || bytes.Count(digits, digits[:1]) > len(digits)/2 {
		return 0, no
	}
	return end, yes
}

// issued reports whether the first digits are those of the large networks of cards.
func issued(d []byte) bool {
	switch n := len(d); d[0] {
	case 4:
		return n == 13 || n == 16 || n == 19
	case 5:
		return n == 16 && d[1] >= 1 && d[1] <= 5
	case 3:
		return n == 15 && (d[1] == 4 || d[1] == 7)
	case 6:
		return n == 16 && (d[1] == 0 && d[2] == 1 && d[3] == 1 || d[1] == 5)
	case 2:
		return n == 16 && d[1] >= 2 && d[1] <= 7
	}
	return false
}

// luhn checks the last digit (ISO/IEC 7812-1, annex B).
func luhn(d []byte) bool {
	sum := 0
	for i, c := range d {
		n := int(c)
		if (len(d)-i)%2 == 0 {
			if n *= 2; n > 9 {
				n -= 9
			}
		}
		sum += n
	}
	return sum%10 == 0
}

// ibanLengths are those of the countries that have such numbers (ISO 13616, registry of
// SWIFT), for the larger of them.
var ibanLengths = map[string]int{
	"AD": 24, "AE": 23, "AT": 20, "BE": 16, "BG": 22, "CH": 21, "CY": 28, "CZ": 24, "DE": 22, "DK": 18, "EE": 20, "ES": 24, "FI": 18,
	"FR": 27, "GB": 22, "GR": 27, "HR": 21, "HU": 28, "IE": 22, "IL": 23, "IS": 26, "IT": 27, "LI": 21, "LT": 20, "LU": 20, "LV": 21,
	"MC": 27, "MT": 31, "NL": 18, "NO": 15, "PL": 28, "PT": 25, "QA": 29, "RO": 24, "SA": 24, "SE": 24, "SI": 19, "SK": 24, "TR": 26, "UA": 29,
}

// iban wants an account number of ISO 13616: the length of its country, the two check
// digits right. Groups of four may have a space between them.
func iban(s *scan, text []byte, i int) (end int, v verdict) {
	if len(text) < i+4 {
		if s.whole {
			return 0, no
		}
		return 0, more
	}
	length := ibanLengths[string(text[i:i+2])]
	if length == 0 || !is(text[i+2], digitChar) || !is(text[i+3], digitChar) {
		return 0, no
	}
	var b []byte
	for end = i; len(b) < length; end++ {
		if end == len(text) {
			if s.whole {
				return 0, no
			}
			return 0, more
		}
		switch c := text[end]; {
		case is(c, upperChar|digitChar):
			b = append(b, c)
		case c != ' ' || len(b)%4 != 0 || text[end-1] == ' ':
			return 0, no
		}
	}
	if end == len(text) && !s.whole {
		return 0, more
	}
	if end < len(text) && is(text[end], word) {
		return 0, no
	}
	rest := 0
	for k := range b {
		c := b[(k+4)%len(b)]
		if is(c, digitChar) {
			rest = (rest*10 + int(c-'0')) % 97
		} else {
			rest = (rest*100 + int(c-'A') + 10) % 97
		}
	}
	if rest != 1 {
		return 0, no
	}
	return end, yes
}

// matchSSN wants a number of the form 123-45-6789 soon after words that say what it is.
// Numbers that are never given out are none.
func matchSSN(s *scan, text []byte, from int) (start, end int, k Kind, v verdict) {
	const near, form = 24, len("123-45-6789")
	limit := from + near + form
	if len(text) < limit+1 && !s.whole {
		return 0, 0, "", more
	}
	for i := from; i+form <= min(len(text), limit); i++ {
		t := text[i : i+form]
		if !is(t[0], digitChar) {
			continue
		}
		if run(t, digitChar, form) != 3 || t[3] != '-' || run(t[4:], digitChar, form) != 2 || t[6] != '-' || run(t[7:], digitChar, form) != 4 {
			return 0, 0, "", no
		}
		area := string(t[:3])
		if i+form < len(text) && is(text[i+form], word|dashChar) || area == "000" || area == "666" || t[0] == '9' || string(t[4:6]) == "00" || string(t[7:]) == "0000" {
			return 0, 0, "", no
		}
		return i, i + form, Private, yes
	}
	return 0, 0, "", no
}

// active are types of data: URLs (RFC 2397) whose content runs where it is opened.
var active = []string{"text/html", "text/javascript", "application/javascript", "application/xhtml+xml", "image/svg+xml"}

func matchDataURL(s *scan, text []byte, from int) (start, end int, k Kind, v verdict) {
	for _, a := range active {
		rest := text[from:]
		if hasFold(rest, a) {
			end = from + len(a)
			if end == len(text) && !s.whole {
				return 0, 0, "", more
			}
			if end < len(text) && (text[end] == ';' || text[end] == ',') {
				return from - len("data:"), end, Active, yes
			}
			continue
		}
		if len(rest) < len(a) && hasFold(rest, a[:len(rest)]) && !s.whole {
			return 0, 0, "", more
		}
	}
	return 0, 0, "", no
}

// Bounds of what is assigned to a name of a secret, in bytes.
const (
	minAssigned = 20
	maxAssigned = 128
	maxBetween  = 24
)

// matchAssigned wants a random text assigned to a name that says what it is, as in
// `api_key = "…"` and `"token": "…"`. from is where the telling word of the name ends.
func matchAssigned(s *scan, text []byte, from int) (start, end int, k Kind, v verdict) {
	stop := from + maxBetween
	i := from
	skip := func(set string, most int) int {
		n := 0
		for i < len(text) && i < stop && n < most && bytes.IndexByte([]byte(set), text[i]) >= 0 {
			i, n = i+1, n+1
		}
		return n
	}
	i += run(text[i:min(len(text), stop)], word, 12) // the end of a longer name
	skip("\"'\\]", 3)
	skip(" \t", 4)
	signs := skip(":=>", 2)
	skip(" \t", 4)
	quotes := skip("\"'`\\", 2)
	if i == len(text) && i < stop && !s.whole {
		return 0, 0, "", more
	}
	if signs == 0 || quotes == 0 {
		return 0, 0, "", no
	}
	n := run(text[i:], slug|base64Char|dotChar, maxAssigned+1)
	if i+n == len(text) && n <= maxAssigned && !s.whole {
		return 0, 0, "", more
	}
	value := text[i:min(len(text), i+n)]
	closed := i+n < len(text) && bytes.IndexByte([]byte("\"'`\\"), text[i+n]) >= 0
	if n < minAssigned || n > maxAssigned || !closed || dull(value) || !random(value) {
		return 0, 0, "", no
	}
	return i, i + n, Suspect, yes
}

// minEntropy is what random text of letters and digits has at twenty characters, in bits
// for each; names of things have less.
const minEntropy = 3.6

// random reports whether b looks like random letters and digits rather than words: both
// kinds in turns, and no character much more often than others.
func random(b []byte) bool {
	var count [256]int
	turns, digit := 0, false
	for i, c := range b {
		count[c]++
		if d := is(c, digitChar); i > 0 && d != digit {
			turns++
		}
		digit = is(c, digitChar)
	}
	bits := 0.0
	for _, n := range count {
		if n > 0 {
			p := float64(n) / float64(len(b))
			bits -= p * math.Log2(p)
		}
	}
	return bits >= minEntropy && turns >= len(b)/6
}
