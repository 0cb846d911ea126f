package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// floor contains the results of Longhorn's own engine and replica processes through their unix socket, on a machine
// with two processors. The volume had three replicas on loopback addresses; a run took 5 s over 512 MiB, with the page
// cache on. The figures are operations or 10^6 bytes per second, by pattern.
var floor = map[string]float64{
	"4k write QD1":  3042,
	"4k write QD16": 5740,
	"4k read QD16":  16735,
	"1M write QD4":  360,
	"1M read QD4":   570,
}

func unitOf(p pattern) string {
	if p.isSmall() {
		return "IOPS"
	}
	return "MB/s"
}

// writeLoadTable writes the medians next to the floor, and returns the cells of volumes that are not above the floor.
func writeLoadTable(w io.Writer, targets []target, all results) (missed []string) {
	head := []string{""}
	row := []string{"floor"}
	for _, p := range patterns {
		head = append(head, p.name)
		if f, ok := floor[p.name]; ok {
			row = append(row, fmt.Sprintf("%s %s", thousands(f), unitOf(p)))
		} else {
			row = append(row, "")
		}
	}
	rows := [][]string{row}
	for _, t := range targets {
		if len(all[t.name]) == 0 { // not requested
			continue
		}
		rates, latencies, costs := []string{t.name}, []string{t.name + ", p99"}, []string{t.name + ", CPU per operation"}
		for _, p := range patterns {
			if len(all[t.name][p.name]) == 0 { // not requested
				rates, latencies, costs = append(rates, ""), append(latencies, ""), append(costs, "")
				continue
			}
			rate := median(all[t.name][p.name], func(f figures) float64 { return f.rate(p) })
			cell := fmt.Sprintf("%s %s", thousands(rate), unitOf(p))
			if f, ok := floor[p.name]; ok && t.name != plainName {
				if rate > f {
					cell += fmt.Sprintf(", beaten ×%.1f", rate/f)
				} else {
					cell = fmt.Sprintf("**%s, NOT beaten ×%.2f**", cell, rate/f)
					missed = append(missed, fmt.Sprintf("%s %s: %s of %s %s", t.name, p.name, thousands(rate), thousands(f), unitOf(p)))
				}
			}
			rates = append(rates, cell)
			p99 := time.Duration(median(all[t.name][p.name], func(f figures) float64 { return float64(f.P99) }))
			latencies = append(latencies, p99.Round(time.Microsecond).String())
			cpu := time.Duration(median(all[t.name][p.name], func(f figures) float64 { return float64(f.CPU) }))
			costs = append(costs, cpu.Round(time.Microsecond).String())
		}
		rows = append(rows, rates, latencies)
		if t.name != plainName {
			rows = append(rows, costs)
		}
	}
	writeTable(w, head, rows)
	return missed
}

// median returns the middle value. For an even number of values, it returns the lower of the two middle ones, so that
// the figures do not look better than they are.
func median[F any](all []F, value func(F) float64) float64 {
	if len(all) == 0 {
		return 0
	}
	values := make([]float64, 0, len(all))
	for _, f := range all {
		values = append(values, value(f))
	}
	slices.Sort(values)
	return values[(len(values)-1)/2]
}

// thousands writes a number without a fraction and with commas.
func thousands(v float64) string {
	digits := fmt.Sprintf("%.0f", v)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// writeTable writes Markdown whose columns are also aligned when it is read as text.
func writeTable(w io.Writer, head []string, rows [][]string) {
	widths := make([]int, len(head))
	for _, row := range append([][]string{head}, rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], len([]rune(cell)), 3)
		}
	}
	line := func(row []string) {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = cell + strings.Repeat(" ", widths[i]-len([]rune(cell)))
		}
		fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | "))
	}
	line(head)
	rule := make([]string, len(head))
	for i := range rule {
		rule[i] = strings.Repeat("-", widths[i])
	}
	line(rule)
	for _, row := range rows {
		line(row)
	}
}
