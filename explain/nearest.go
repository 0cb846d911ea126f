package explain

import (
	"slices"
	"strings"
)

// Nearest returns the word of a list that resembles a mistyped word most; "": none does. Among equals, it returns the
// first.
func Nearest(typed string, words []string) string {
	near, least := "", 1+len(typed)/3
	for _, word := range words {
		if d := distance(typed, word); d < least {
			near, least = word, d
		}
	}
	return near
}

// meant returns the name of a list that a user most likely meant: one that resembles the typed name, or the only one
// that starts with it.
func meant(typed string, names []string) string {
	if near := Nearest(typed, names); near != "" {
		return near
	}
	var longer []string
	for _, name := range names {
		if strings.HasPrefix(name, typed) {
			longer = append(longer, name)
		}
	}
	if longer = slices.Compact(longer); typed != "" && len(longer) == 1 {
		return longer[0]
	}
	return ""
}

// distance returns the number of letters that must be inserted, deleted or replaced to change a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}
