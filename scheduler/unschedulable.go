package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Reasons for the rejection of a disk: a small vocabulary that users know from the message of a volume's Scheduled
// condition.
const (
	ReasonNodeNotFound        = "node not found"
	ReasonDiskNotFound        = "disk not found"
	ReasonNodesUnavailable    = "nodes are unavailable"
	ReasonHardAffinity        = "hard affinity cannot be satisfied"
	ReasonDisksUnavailable    = "disks are unavailable"
	ReasonOnItself            = "the volume would depend on itself"
	ReasonTagsNotFulfilled    = "tags not fulfilled"
	ReasonInsufficientStorage = "insufficient storage"
	ReasonAntiAffinity        = "anti-affinity cannot be satisfied"
)

// Rejection is the reason why a disk was not taken.
type Rejection struct {
	Node    string
	Disk    string // name; empty if the node has no disks
	Reason  string // one of the Reason constants
	Message string // a clause for people, with the names and numbers
}

// Unschedulable is the error of Schedule and ScheduleAll: no disk was left.
type Unschedulable struct {
	Wanted int // number of requested replicas
	Placed int // how many of them would have found a place
	// Rejections contains every disk once, in the order of node and disk names, for the first replica without a place.
	// It is empty if there are no nodes.
	Rejections []Rejection
}

// Error starts with "replica scheduling failed". It contains the distinct reasons, the number of disks for each, and
// what these disks lack. The details of each disk are in Rejections.
func (u *Unschedulable) Error() string {
	var b strings.Builder
	b.WriteString("replica scheduling failed: ")
	if u.Wanted > 1 {
		fmt.Fprintf(&b, "%d of %d replicas fit: ", u.Placed, u.Wanted)
	}
	b.WriteString(u.summary())
	return b.String()
}

// Details returns Error and one line for each rejected disk.
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

// summary counts the reasons. It lists the most frequent ones first, then by name.
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

// maxClauses limits the number of different clauses for one reason in the summary.
const maxClauses = 3

// clauses describes the shortages of the disks with a reason. It returns ": " and the distinct messages, the most
// frequent first. A message that applies to several disks has their number. The result is empty if the reason says
// everything. It is also empty for a shortage of storage: those messages contain figures that change all the time, and
// the sentence is stored in a status and in events.
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

// countOf returns a number of disks, or of nodes if no disk can be counted.
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
