package inspect

import (
	"fmt"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/explain"
)

// Limits of the printed lines about causes: the consequences of the worst cause, the other causes, and the findings
// that are only for information.
const (
	maxConsequences = 5
	maxCauses       = 15
	maxInformation  = 15
)

// Causes prints the worst cause of the cluster with its consequences, the other causes in one line each, and how to see
// more.
func (p Printer) Causes(s *explain.Snapshot, causes []explain.Cause) {
	bad, information := split(causes)
	switch {
	case len(causes) == 0:
		p.Findings(s, "the cluster", nil)
		return
	case len(bad) == 0:
		p.hang("", "No errors and no warnings. For information only:")
		fmt.Fprintln(p.Out)
		p.causes(information, maxInformation)
	default:
		p.hang("", summaryOf(bad))
		fmt.Fprintln(p.Out)
		p.finding(s, bad[0].Finding)
		p.consequences(s, bad[0].Consequences)
		if len(bad) > 1 {
			fmt.Fprintln(p.Out)
			p.causes(bad[1:], maxCauses)
		}
	}
	fmt.Fprintln(p.Out)
	p.hang("", "More about one object: kubectl longhorn explain NAME")
	p.hang("", "All problems in one line each: kubectl longhorn status")
	if len(bad) > 0 && len(information) > 0 {
		p.hang("", fmt.Sprintf("For information only: %d (kubectl longhorn explain -o json)", len(information)))
	}
	p.unseen(s.Unseen)
}

// split separates the causes that are only for information.
func split(causes []explain.Cause) (bad, information []explain.Cause) {
	for _, c := range causes {
		errors, warnings := count([]explain.Cause{c})
		if errors+warnings == 0 {
			information = append(information, c)
		} else {
			bad = append(bad, c)
		}
	}
	return bad, information
}

// count returns the numbers of errors and warnings of causes, with their consequences.
func count(causes []explain.Cause) (errors, warnings int) {
	for _, c := range causes {
		for _, f := range append([]explain.Finding{c.Finding}, c.Consequences...) {
			switch f.Severity {
			case explain.Broken:
				errors++
			case explain.Warning:
				warnings++
			}
		}
	}
	return errors, warnings
}

// summaryOf says how many errors and warnings there are, and that the worst cause follows.
func summaryOf(causes []explain.Cause) string {
	errors, warnings := count(causes)
	var parts []string
	if errors > 0 {
		parts = append(parts, plural(errors, "error"))
	}
	if warnings > 0 {
		parts = append(parts, plural(warnings, "warning"))
	}
	problems := strings.Join(parts, " and ")
	switch {
	case errors+warnings == 1:
		return "The cluster has " + problems + ":"
	case len(causes) == 1:
		return "The cluster has " + problems + ", probably with one cause:"
	}
	return fmt.Sprintf("The cluster has %s, probably with %d causes. The worst:", problems, len(causes))
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// consequences prints which objects have problems that follow from a cause. Users know a volume by its claim.
func (p Printer) consequences(s *explain.Snapshot, found []explain.Finding) {
	var objects []string
	seen := map[explain.Object]bool{}
	for _, f := range found {
		if !seen[f.Object] {
			seen[f.Object] = true
			objects = append(objects, s.TitleOf(f.Object))
		}
	}
	if len(objects) == 0 {
		return
	}
	more := ""
	if n := len(objects) - maxConsequences; n > 0 {
		objects, more = objects[:maxConsequences], fmt.Sprintf(", and %d more", n)
	}
	p.hang("  then  ", "Problems that probably follow from it: "+strings.Join(objects, ", ")+more+".")
}

// causes prints causes as a table, at most most of them.
func (p Printer) causes(causes []explain.Cause, most int) {
	t := table{{"SEVERITY", "PROBLEM"}}
	for _, c := range causes[:min(len(causes), most)] {
		t.add(string(c.Severity), sentence(c.Finding))
	}
	if n := len(causes) - most; n > 0 {
		t.add("", fmt.Sprintf("and %d more", n))
	}
	p.table(t)
}
