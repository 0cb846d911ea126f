package explain

import (
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// Kind is the kind of object that a Finding is about, in the words of users.
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
	KindSnapshot        Kind = "snapshot"
	KindClaim           Kind = "claim"
	KindPV              Kind = "persistent volume"
	KindPod             Kind = "pod"
	KindInstallation    Kind = "installation"
)

// Severity says how much a Finding matters.
type Severity string

// The severities, the worst first.
const (
	// Broken: data is lost or unusable for now.
	Broken Severity = "error"
	// Warning: less is available than requested, or one more failure would be too many.
	Warning Severity = "warning"
	// Info: the operation is in progress, the state is intended, or the problem only costs speed.
	Info Severity = "info"
)

// rank orders the severities, the worst first.
func (s Severity) rank() int { return slices.Index([]Severity{Broken, Warning, Info}, s) }

// Object names the object that a Finding is about.
type Object struct {
	Kind Kind `json:"kind"`
	// Name is the name of the object. A ticket has its id, a claim or a pod has namespace/name, and the installation
	// has its namespace.
	Name string `json:"name"`
	// Node is the node of a disk or replica. It is empty for other kinds, and for a replica without a place.
	Node string `json:"node,omitempty"`
}

func (o Object) String() string {
	if o.Kind == KindDisk {
		return string(o.Kind) + " " + o.Name + " on node " + o.Node
	}
	return string(o.Kind) + " " + o.Name
}

// Step is an action for the user.
type Step struct {
	Text string `json:"text"`
	// Command is a line for a POSIX shell; empty where no command helps.
	Command string `json:"command,omitempty"`
}

// Finding is one thing that differs from the requested state.
type Finding struct {
	Object   Object   `json:"object"`
	Severity Severity `json:"severity"`
	// Reason is a CamelCase word for programs: the reason of the condition, if there is a condition.
	Reason string `json:"reason"`
	// What describes the problem, in a sentence without its full stop. The following texts have none either.
	What string `json:"what"`
	// Why has the facts behind What. It is empty if What says everything.
	Why []string `json:"why,omitempty"`
	// Next has at least one step.
	Next []Step `json:"next"`
}

// sorted puts the worst findings first and keeps the order within a severity, which is from cause to effect. It
// removes duplicates, and adds the claims of volumes to the messages of conditions.
func sorted(s *Snapshot, list []Finding) []Finding {
	var once []Finding
	messages := s.claimsInMessages()
	for _, f := range list {
		if !slices.ContainsFunc(once, func(o Finding) bool { return o.Object == f.Object && o.Reason == f.Reason && o.What == f.What }) {
			once = append(once, f)
		}
	}
	for i, f := range once {
		once[i].Why = nil
		for _, why := range f.Why {
			once[i].Why = append(once[i].Why, messages(why))
		}
	}
	slices.SortStableFunc(once, func(a, b Finding) int { return cmp.Compare(a.Severity.rank(), b.Severity.rank()) })
	return once
}

// place has the values for the words in braces in texts of advice, such as {node}.
type place map[string]string

// inSentences is the prefix of the key of a word that has another value in sentences than in commands: users know a
// volume by its claim, and commands need its name.
const inSentences = "in sentences: "

// fill replaces the words in a sentence.
func (p place) fill(text string) string {
	return p.replace(text, func(word string) string { return cmp.Or(p[inSentences+word], p[word]) })
}

func (p place) replace(text string, value func(word string) string) string {
	var pairs []string
	for word := range p {
		pairs = append(pairs, "{"+word+"}", value(word))
	}
	return strings.NewReplacer(pairs...).Replace(text) // braces within a value are not replaced
}

// plainWord matches words that have no special meaning in a shell.
var plainWord = regexp.MustCompile(`^[A-Za-z0-9._/:@-]*$`)

// command is fill for text that users paste into a shell. If a name has other characters, it returns "". Otherwise a
// user with the right to name a disk could choose the commands of root.
func (p place) command(text string) string {
	for word, value := range p {
		if strings.Contains(text, "{"+word+"}") && !plainWord.MatchString(value) {
			return ""
		}
	}
	return p.replace(text, func(word string) string { return p[word] })
}

func (p place) steps(list []Step) []Step {
	filled := make([]Step, len(list))
	for i, step := range list {
		filled[i] = Step{Text: p.fill(step.Text), Command: p.command(step.Command)}
	}
	return filled
}
