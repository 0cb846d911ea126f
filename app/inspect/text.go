package inspect

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"
)

// DefaultWidth is the number of columns of the output if neither the terminal nor the user says another number.
const DefaultWidth = 100

// minText is the smallest number of columns for a text that is indented, however narrow the terminal is.
const minText = 20

// Printer prints for users. Lines have at most Width columns. Commands and names are exceptions: users copy them, so
// they stay on one line.
type Printer struct {
	Out   io.Writer
	Width int
}

// hang prints a text after a prefix. All lines after the first are indented by the width of the prefix.
func (p Printer) hang(prefix, text string) {
	indent := utf8.RuneCountInString(prefix)
	fmt.Fprintf(p.Out, "%s%s\n", prefix, strings.Join(wrap(text, p.Width-indent), "\n"+strings.Repeat(" ", indent)))
}

// wrap breaks a text at spaces into lines of at most width columns. It does not break words.
func wrap(text string, width int) []string {
	width = max(width, minText)
	var lines []string
	for _, paragraph := range strings.Split(text, "\n") {
		line := ""
		for i, word := range strings.Split(paragraph, " ") {
			switch {
			case i == 0:
				line = word
			case utf8.RuneCountInString(line)+1+utf8.RuneCountInString(word) > width:
				lines = append(lines, line)
				line = word
			default:
				line += " " + word
			}
		}
		lines = append(lines, line)
	}
	return lines
}

// Fold breaks the lines of a finished text that are longer than width. The continuation of a line starts below its
// last column: below the text after the last gap of two or more spaces, or below the first word.
func Fold(text string, width int) string {
	var folded []string
	for _, line := range strings.Split(text, "\n") {
		indent := lastColumn(line)
		if utf8.RuneCountInString(line) <= width || width-indent < minText {
			folded = append(folded, line)
			continue
		}
		head := string([]rune(line)[:indent])
		for i, part := range wrap(string([]rune(line)[indent:]), width-indent) {
			if i > 0 {
				head = strings.Repeat(" ", indent)
			}
			folded = append(folded, head+part)
		}
	}
	return strings.Join(folded, "\n")
}

// lastColumn returns the position of the text after the last gap of two or more spaces in a line.
func lastColumn(line string) int {
	at := 0
	runes := []rune(line)
	for i := 2; i < len(runes); i++ {
		if runes[i] != ' ' && runes[i-1] == ' ' && runes[i-2] == ' ' {
			at = i
		}
	}
	return at
}
