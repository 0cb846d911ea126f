package explain

// Nearest is the word of a list that is most like a mistyped one; empty: none is. The first of equals wins.
func Nearest(typed string, words []string) string {
	near, least := "", 1+max(1, len(typed)/3)
	for _, word := range words {
		if d := distance(typed, word); d < least {
			near, least = word, d
		}
	}
	return near
}

// distance is how many letters must be inserted, deleted or replaced to make b of a.
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
