package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reasons for rejecting a disk: a small vocabulary, known to users from the
// message of a volume's Scheduled condition.
const (
	ReasonNodeNotFound        = "node not found"
	ReasonDiskNotFound        = "disk not found"
	ReasonNodesUnavailable    = "nodes are unavailable"
	ReasonHardAffinity        = "hard affinity cannot be satisfied"
	ReasonDisksUnavailable    = "disks are unavailable"
	ReasonOnItself            = "the volume would lie on itself"
	ReasonTagsNotFulfilled    = "tags not fulfilled"
	ReasonInsufficientStorage = "insufficient storage"
	ReasonAntiAffinity        = "anti-affinity cannot be satisfied"
)

// Rejection says why a disk was not taken.
type Rejection struct {
	Node    string
	Disk    string // name; empty: the node has no disks
	Reason  string // one of the Reason constants
	Message string // a clause for people, with the names and numbers
}

// Unschedulable is the error of Schedule and ScheduleAll: no disk was left.
type Unschedulable struct {
	Wanted int // replicas asked for
	Placed int // how many of them would have found a place
	// Rejections holds every disk once, in the order of node and disk names, as
	// seen by the first replica without a place; empty if there are no nodes.
	Rejections []Rejection
}

// Error starts with "replica scheduling failed" and gives the distinct reasons with the number of disks each and what
// those lack; the details of each disk are in Rejections.
func (u *Unschedulable) Error() string {
	var b strings.Builder
	b.WriteString("replica scheduling failed: ")
	if u.Wanted > 1 {
		fmt.Fprintf(&b, "%d of %d replicas fit: ", u.Placed, u.Wanted)
	}
	b.WriteString(u.summary())
	return b.String()
}

// Details is Error and one line for each rejected disk.
func (u *Unschedulable) Details() string {
	lines := []string{u.Error()}
	for _, r := range u.Rejections {
		where := "node " + r.Node
		if r.Disk != "" {
			where += " disk " + r.Disk
		}
		lines = append(lines, fmt.Sprintf("%s: %s: %s", where, r.Reason, r.Message))
	}
	return strings.Join(lines, "\n")
}

// summary counts the reasons, the most frequent first, then by name.
func (u *Unschedulable) summary() string {
	if len(u.Rejections) == 0 {
		return ReasonNodeNotFound
	}
	counts := map[string]int{}
	for _, r := range u.Rejections {
		counts[r.Reason]++
	}
	reasons := make([]string, 0, len(counts))
	for reason := range counts {
		reasons = append(reasons, reason)
	}
	slices.SortFunc(reasons, func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	texts := make([]string, len(reasons))
	for i, reason := range reasons {
		texts[i] = fmt.Sprintf("%s (%s%s)", reason, countOf(reason, counts[reason]), u.clauses(reason))
	}
	return strings.Join(texts, ", ")
}

// maxClauses bounds how many different clauses the summary gives for one reason.
const maxClauses = 3

// clauses says what the disks with a reason lack: ": " and the distinct messages, the most frequent first, with the number of
// disks of each where there is more than one. It is empty where the reason says it all, and for a shortage of storage: those
// messages have figures that change all the time, and the sentence goes into a status and into events.
func (u *Unschedulable) clauses(reason string) string {
	if reason == ReasonInsufficientStorage || reason == ReasonDiskNotFound || reason == ReasonAntiAffinity {
		return ""
	}
	counts := map[string]int{}
	for _, r := range u.Rejections {
		if r.Reason == reason {
			counts[r.Message]++
		}
	}
	messages := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	if len(messages) == 1 {
		return ": " + messages[0]
	}
	var texts []string
	for i, message := range messages {
		if i == maxClauses {
			texts = append(texts, "and others")
			break
		}
		texts = append(texts, fmt.Sprintf("%d: %s", counts[message], message))
	}
	return ": " + strings.Join(texts, "; ")
}

// countOf is a number of disks, or of nodes where there is no disk to count.
func countOf(reason string, n int) string {
	noun := "disk"
	if reason == ReasonDiskNotFound {
		noun = "node"
	}
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}
