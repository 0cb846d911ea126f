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

// distance returns the number of letters that must be inserted, deleted, replaced, or swapped with the next letter to
// change a into b.
func distance(a, b string) int {
	before, row := []int(nil), make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		next := make([]int, len(b)+1)
		next[0] = i + 1
		for j := range len(b) {
			replaced := row[j]
			if a[i] != b[j] {
				replaced++
			}
			next[j+1] = min(replaced, row[j+1]+1, next[j]+1)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				next[j+1] = min(next[j+1], before[j-1]+1)
			}
		}
		before, row = row, next
	}
	return row[len(b)]
}
