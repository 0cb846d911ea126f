package cluster

import (
	"fmt"
	"io"
	"time"
)

// Progress prints one line per step with the time it took.
type Progress struct {
	w     io.Writer
	begin time.Time
}

// NewProgress returns a Progress and starts its clock.
func NewProgress(w io.Writer) *Progress {
	return &Progress{w: w, begin: time.Now()}
}

// step prints the first half of its line, runs f, and prints the second half.
func (p *Progress) step(what string, f func() error) error {
	begin := time.Now()
	fmt.Fprintf(p.w, "%-48s", what+" …")
	if err := f(); err != nil {
		fmt.Fprintln(p.w, "failed")
		return err
	}
	fmt.Fprintf(p.w, "%6.1f s\n", time.Since(begin).Seconds())
	return nil
}

// note prints a line of its own.
func (p *Progress) note(format string, args ...any) {
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *Progress) done(what string) {
	fmt.Fprintf(p.w, "%-48s%6.1f s in all\n", what, time.Since(p.begin).Seconds())
}
