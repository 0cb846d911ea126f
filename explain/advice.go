package explain

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cause is a condition of a kind of object that is not as it should be, by its reason.
type cause struct {
	kind      Kind
	condition string
	reason    string
}

// advice is what is said of a cause. Its texts name the object by words in braces: {ns} {node} {disk} {path} {uuid} {volume} {replica}
// {name} {pod}.
type advice struct {
	severity Severity
	what     string
	next     []Step
	// always: it is also told while the condition's status is the good one.
	always bool
}

// tables are all rows.
var tables = []map[cause]advice{nodeAdvice, diskAdvice, volumeAdvice, expansionAdvice, engineAdvice, replicaAdvice, ticketAdvice, shareAdvice, managerAdvice, settingAdvice}

func adviceFor(c cause) (advice, bool) {
	for _, table := range tables {
		if a, ok := table[c]; ok {
			return a, true
		}
	}
	return advice{}, false
}

// troubles are the conditions that are there, True, while something is not as it should be. All others are False then.
var troubles = []string{
	types.ConditionFaulted, types.ConditionAttaching, types.ConditionChildRefused, types.ConditionEvictionWaits, types.ConditionCopiesMissing, types.ConditionCopiesUnreachable, types.ConditionSurplusReplicas,
	types.ConditionDeviceInUse, types.ConditionEpochRefused, types.ConditionRemovalRefused, types.ConditionTrustedNetwork,
}

// isWell tells whether a condition says that all is well. Unknown with a reason is not.
func isWell(c longhorn.Condition) bool {
	if c.Status == longhorn.ConditionUnknown || c.Status == "" {
		return c.Reason == ""
	}
	return (c.Status == longhorn.ConditionTrue) != slices.Contains(troubles, c.Type)
}

// ofConditions has a finding for each condition of an object that is not well.
func ofConditions(o Object, p place, list []longhorn.Condition) []Finding {
	var found []Finding
	for _, c := range list {
		if f, ok := ofCondition(o, p, c); ok {
			found = append(found, f)
		}
	}
	return found
}

func ofCondition(o Object, p place, c longhorn.Condition) (Finding, bool) {
	a, known := adviceFor(cause{o.Kind, c.Type, c.Reason})
	if !known {
		a, known = adviceFor(cause{o.Kind, c.Type, ""})
	}
	switch {
	case isWell(c) && !a.always:
		return Finding{}, false
	case !known:
		a = advice{Warning, "condition " + c.Type + " of the {kind} is " + string(c.Status) + ", for the reason " + c.Reason, seeEvents, false}
	}
	words := place{"kind": string(o.Kind), "name": o.Name}
	for word, value := range p {
		words[word] = value
	}
	f := Finding{Object: o, Severity: a.severity, Reason: c.Reason, What: words.fill(a.what), Next: words.steps(a.next)}
	if f.Reason == "" {
		f.Reason = c.Type
	}
	if c.Message != "" {
		f.Why = []string{c.Message}
	}
	return f, true
}

// seeEvents is the step where nothing better is known.
var seeEvents = []Step{{"See its Events, and the log of the daemon that leads", "kubectl -n {ns} get events --field-selector involvedObject.name={name}"}}
