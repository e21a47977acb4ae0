package places

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/unicode/norm"
)

// Fold writes p as the tables do: in lower case and composed (NFC), so that none
// escapes on a file system that does not tell the spellings apart. Some compare
// more loosely still, by Unicode case folding and without the characters that do
// not show (ext4 and f2fs with casefold, APFS, HFS+): so compatibility forms, as
// the ligature in "conﬁg", become what they stand for, and what does not show goes.
// The components stay as many as they are.
func Fold(p string) string {
	if ascii(p) {
		return strings.ToLower(p)
	}
	names := strings.Split(p, "/")
	for i, name := range names {
		names[i] = foldName(name)
	}
	return strings.Join(names, "/")
}

// slash stands for a slash that arose within a name: no name holds a NUL.
const slash = "\x00"

func foldName(name string) string {
	name = strings.Map(func(r rune) rune {
		if unicode.In(r, unicode.Cf, unicode.Variation_Selector, unicode.Other_Default_Ignorable_Code_Point) {
			return -1
		}
		return r
	}, strings.ToLower(norm.NFKD.String(name)))
	return norm.NFKC.String(strings.NewReplacer("ß", "ss", "/", slash).Replace(name))
}

func ascii(s string) bool {
	for i := range len(s) {
		if s[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
