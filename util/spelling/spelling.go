// Package spelling finds the word that a user probably meant. It owns the measure of how similar two words are, and
// must not know the meaning of words.
package spelling

import (
	"strings"
	"unicode"
)

// Nearest returns the known word of which a word is probably a misspelling, or "". Case, and characters that are
// neither letters nor digits, do not count. If two words are equally near, the first one is returned.
func Nearest(word string, known []string) string {
	nearest, least := "", 0
	for _, k := range known {
		a, b := letters(word), letters(k)
		d := distance(a, b)
		if d <= tolerance(min(len(a), len(b))) && (nearest == "" || d < least) {
			nearest, least = k, d
		}
	}
	return nearest
}

// tolerance is how many mistakes a word of a length may have. A short word is easily similar to another one.
func tolerance(length int) int {
	switch {
	case length < 4:
		return 0
	case length < 8:
		return 1
	}
	return 2
}

func letters(word string) []rune {
	return []rune(strings.Map(func(r rune) rune {
		if !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			return -1
		}
		return unicode.ToLower(r)
	}, word))
}

// distance is the number of mistakes that turn a into b: an extra letter, a missing one, a wrong one, or two exchanged
// neighbours.
func distance(a, b []rune) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			wrong := 1
			if a[i-1] == b[j-1] {
				wrong = 0
			}
			rows[i][j] = min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+wrong)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
