package inspect

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// Gaps between the columns of a table: the usual one, the one for a table that would be too wide, and the one that
// lets a table of short cells fit a narrow terminal.
const (
	wideGap   = 3
	narrowGap = 2
	tightGap  = 1
)

// table is a list of rows of cells; all rows have the same number of cells, and the first is the header.
type table [][]string

func (t *table) add(cells ...string) { *t = append(*t, cells) }

// table prints a table. Only the text of the last column is broken into several lines. If the table is too wide, a name
// that is too long for the first column is printed on a separate line, above the rest of its row. A name in the last
// column that still does not fit is printed below its row.
func (p Printer) table(t table) {
	widths, gap := t.layout(p.Width)
	for _, row := range t {
		var line strings.Builder
		for i, cell := range row[:len(row)-1] {
			if utf8.RuneCountInString(cell) > widths[i] {
				fmt.Fprintln(p.Out, cell)
				cell = ""
			}
			line.WriteString(cell)
			line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)+gap))
		}
		text, start := row[len(row)-1], strings.TrimRight(line.String(), " ")
		switch {
		case text == "":
			fmt.Fprintln(p.Out, start)
		case !strings.Contains(text, " ") && utf8.RuneCountInString(line.String()+text) > p.Width:
			fmt.Fprintf(p.Out, "%s\n%s%s\n", start, strings.Repeat(" ", 2*narrowGap), text)
		default:
			p.hang(line.String(), text)
		}
	}
}

// layout returns the widths of the columns and the gap between them for a table of at most total columns. The width of
// the first column may be smaller than its longest cell.
func (t table) layout(total int) (widths []int, gap int) {
	for _, row := range t {
		for i, cell := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	last := len(widths) - 1
	if last < 1 {
		return widths, wideGap
	}
	all := 0
	for _, width := range widths {
		all += width
	}
	if all+last*wideGap <= total {
		return widths, wideGap
	}
	if t.hasText(last) {
		all += min(widths[last], minText) - widths[last]
	}
	if over := all + last*narrowGap - total; over > 0 {
		if all+last*tightGap <= total {
			return widths, tightGap
		}
		widths[0] = max(widths[0]-over, utf8.RuneCountInString(t[0][0]))
	}
	return widths, narrowGap
}

// hasText reports whether a column has a text that can be broken.
func (t table) hasText(column int) bool {
	return slices.ContainsFunc(t[1:], func(row []string) bool { return strings.Contains(row[column], " ") })
}
