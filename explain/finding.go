package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Kind is what a Finding is about, by the word that users know it by.
type Kind string

// The kinds.
const (
	KindVolume          Kind = "volume"
	KindEngine          Kind = "engine"
	KindReplica         Kind = "replica"
	KindTicket          Kind = "ticket"
	KindNode            Kind = "node"
	KindDisk            Kind = "disk"
	KindInstanceManager Kind = "instance manager"
	KindShareManager    Kind = "share manager"
	KindSetting         Kind = "setting"
	KindClaim           Kind = "claim"
	KindPV              Kind = "persistent volume"
	KindPod             Kind = "pod"
	KindInstallation    Kind = "installation"
)

// Severity says how much a Finding matters.
type Severity string

// The severities, the worst first.
const (
	// Broken: data or its use is lost for now.
	Broken Severity = "error"
	// Warning: there is less than was asked for, or less is left than one more failure takes.
	Warning Severity = "warning"
	// Info: it is on its way, it is wanted, or it only costs speed.
	Info Severity = "info"
)

// rank orders the severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Broken, Warning, Info}, s) }

// Object names what a Finding is about.
type Object struct {
	Kind Kind `json:"kind"`
	// Name of the object; of a ticket its id; of a claim and a pod namespace/name; of the installation its namespace.
	Name string `json:"name"`
	// Node of a disk or replica; empty for other kinds, and for a replica without a place.
	Node string `json:"node,omitempty"`
}

func (o Object) String() string {
	if o.Kind == KindDisk {
		return string(o.Kind) + " " + o.Name + " on node " + o.Node
	}
	return string(o.Kind) + " " + o.Name
}

// Step is what a person does next.
type Step struct {
	Text string `json:"text"`
	// Command is a line for a POSIX shell; empty where no command helps.
	Command string `json:"command,omitempty"`
}

// Finding is one thing that is not as it was asked for.
type Finding struct {
	Object   Object   `json:"object"`
	Severity Severity `json:"severity"`
	// Reason is a CamelCase word for programs: that of the condition where there is one.
	Reason string `json:"reason"`
	// What is wrong, a sentence without its full stop, as are the following.
	What string `json:"what"`
	// Why has the facts that it rests on; empty where What says it all.
	Why []string `json:"why,omitempty"`
	// Next has at least one step.
	Next []Step `json:"next"`
}

// sorted puts the worst first and keeps the order within a severity: that is from the cause to what follows of it. A finding
// that stands there twice is told once.
func sorted(list []Finding) []Finding {
	var once []Finding
	for _, f := range list {
		if !slices.ContainsFunc(once, func(o Finding) bool { return o.Object == f.Object && o.Reason == f.Reason && o.What == f.What }) {
			once = append(once, f)
		}
	}
	slices.SortStableFunc(once, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return once
}

// place has the words that texts of advice name in braces, such as {node}.
type place map[string]string

func (p place) fill(text string) string {
	var pairs []string
	for word, value := range p {
		pairs = append(pairs, "{"+word+"}", value)
	}
	return strings.NewReplacer(pairs...).Replace(text) // what a value has in braces stays
}

// plainWord is what no shell takes for anything else.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:@-]*$`)

// command is fill for what people paste into a shell. Where a name has other characters there is no command: who may name a disk would
// say what root runs.
func (p place) command(text string) string {
	for word, value := range p {
		if strings.Contains(text, "{"+word+"}") && !plainWord.MatchString(value) {
			return ""
		}
	}
	return p.fill(text)
}

func (p place) steps(list []Step) []Step {
	filled := make([]Step, len(list))
	for i, step := range list {
		filled[i] = Step{Text: p.fill(step.Text), Command: p.command(step.Command)}
	}
	return filled
}
