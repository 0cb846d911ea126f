package types

import (
	"fmt"
	"regexp"
	"strconv"
)

var binaryUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// SizeText is a size for people: the bytes below 1 KiB, else a number of binary units with two places at most.
func SizeText(bytes int64) string {
	if bytes == 1 {
		return "1 byte"
	}
	if bytes > -1<<10 && bytes < 1<<10 {
		return fmt.Sprintf("%d bytes", bytes)
	}
	value, unit := float64(bytes)/(1<<10), 0
	for (value >= 1<<10 || value <= -1<<10) && unit < len(binaryUnits)-1 {
		value, unit = value/(1<<10), unit+1
	}
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(value, 'f', 2, 64), 64) // drops zeros at the end
	return strconv.FormatFloat(rounded, 'f', -1, 64) + " " + binaryUnits[unit]
}

// figure is a number that stands alone, not one in a name or an address.
var figure = regexp.MustCompile(`(^|[\s(=])-?[0-9]+(\.[0-9]+)?([\s),;:%]|$)`)

// DiffersInFigures tells whether two messages say the same with other numbers, as of space that is left. An Event for each of these would
// bury the others.
func DiffersInFigures(a, b string) bool {
	return a != b && withoutFigures(a) == withoutFigures(b)
}

func withoutFigures(text string) string {
	// Twice: a separator between two numbers is part of the first match.
	for range 2 {
		text = figure.ReplaceAllString(text, "${1}#${3}")
	}
	return text
}
