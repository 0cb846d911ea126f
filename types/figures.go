package types

import (
	"fmt"
	"math"
	"regexp"
	"strconv"
)

var binaryUnits = []string{"KiB", "MiB", "GiB", "TiB", "PiB", "EiB"}

// SizeText is a size for people: the bytes below 1 KiB, else a number of binary units with two places at most.
func SizeText(bytes int64) string { return sizeText(bytes, math.Round) }

// SizeTextDown is SizeText of a size that people may request: the text never says more than there is.
func SizeTextDown(bytes int64) string { return sizeText(bytes, math.Floor) }

// ExactSizeText is SizeText for a message that compares sizes: a size that SizeText rounds is followed by its bytes.
func ExactSizeText(bytes int64) string {
	if isExact(bytes) {
		return SizeText(bytes)
	}
	return fmt.Sprintf("%s (%d bytes)", SizeText(bytes), bytes)
}

// isExact tells whether SizeText says all of a size: it is a whole number of hundredths of the unit.
func isExact(bytes int64) bool {
	unit := int64(1)
	for range binaryUnits {
		if size := bytes / unit; size > -1<<10 && size < 1<<10 {
			break
		}
		unit <<= 10
	}
	// Two is the only prime that a hundred and the unit share, twice: hundredths are whole where quarters are.
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
