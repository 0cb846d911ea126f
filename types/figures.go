package types

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

var binaryUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// SizeText formats a size for users: bytes below 1 KiB, otherwise a number of binary units with at most two decimals.
func SizeText(bytes int64) string { return sizeText(bytes, math.Round) }

// SizeTextDown is SizeText for a size that users may request: the text never exceeds the size.
func SizeTextDown(bytes int64) string { return sizeText(bytes, math.Floor) }

// ExactSizeText is SizeText for a message that compares sizes. If SizeText rounds a size, its bytes follow.
func ExactSizeText(bytes int64) string {
	if isExact(bytes) {
		return SizeText(bytes)
	}
	return fmt.Sprintf("%s (%d bytes)", SizeText(bytes), bytes)
}

// isExact reports whether SizeText does not round: the size is a whole number of hundredths of the unit.
func isExact(bytes int64) bool {
	unit := int64(1)
	for range binaryUnits {
		if size := bytes / unit; size > -1<<10 && size < 1<<10 {
			break
		}
		unit <<= 10
	}
	// The only common prime factor of 100 and the unit is 2, twice. So a whole number of quarters has whole
	// hundredths.
	return unit == 1 || bytes%(unit/4) == 0
}

func sizeText(bytes int64, round func(float64) float64) string {
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
	return strconv.FormatFloat(round(value*100)/100, 'f', -1, 64) + " " + binaryUnits[unit]
}

// figure matches a number that stands alone, not a number in a name or an address.
var figure = regexp.MustCompile(`(^|[\s(=])-?[0-9]+(\.[0-9]+)?([\s),;:%]|$)`)

// DiffersInFigures reports whether two messages differ only in numbers, such as the remaining space. Events with only
// new numbers would bury the other Events.
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
