package explain

import (
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// cause identifies a condition that is not in its good state: the kind of object, the condition's type, and its
// reason.
type cause struct {
	kind      Kind
	condition string
	reason    string
}

// advice is the text for a cause. Its texts refer to objects by words in braces: {ns} {node} {disk} {path} {uuid}
// {volume} {replica} {name} {pod} {copynode} {places}. volumePlace says which nodes the last two are.
type advice struct {
	severity Severity
	what     string
	next     []Step
	// always: it is also reported while the condition is in its good state.
	always bool
}

// tables contains all rows.
var tables = []map[cause]advice{nodeAdvice, diskAdvice, volumeAdvice, expansionAdvice, engineAdvice, replicaAdvice, ticketAdvice, shareAdvice, managerAdvice, settingAdvice, snapshotAdvice}

func adviceFor(c cause) (advice, bool) {
	for _, table := range tables {
		if a, ok := table[c]; ok {
			return a, true
		}
	}
	return advice{}, false
}

// troubles are the conditions that are True while something is wrong. All other conditions are False in that case.
// ui/src/lib/conditions.ts has the same list.
var troubles = []string{
	types.ConditionFaulted, types.ConditionAttaching, types.ConditionChildRefused, types.ConditionEvictionWaits, types.ConditionCopiesMissing, types.ConditionCopiesUnreachable, types.ConditionSurplusReplicas,
	types.ConditionDeviceInUse, types.ConditionEpochRefused, types.ConditionRemovalRefused, types.ConditionTrustedNetwork,
	conditionTooManySnapshots, conditionSnapshotSpaceWaits,
}

// isWell reports whether a condition is in its good state. Unknown with a reason is not.
func isWell(c longhorn.Condition) bool {
	if c.Status == longhorn.ConditionUnknown || c.Status == "" {
		return c.Reason == ""
	}
	return (c.Status == longhorn.ConditionTrue) != slices.Contains(troubles, c.Type)
}

// ofConditions returns a finding for each condition of an object that is not in its good state.
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
		a = advice{Warning, "condition " + c.Type + " of {kind} {name} is " + string(c.Status) + ", with the reason " + c.Reason, seeEvents, false}
	}
	words := place{"kind": string(o.Kind), "name": o.Name}
	if o.Kind == KindVolume {
		words[inSentences+"name"] = p[inSentences+"volume"]
	}
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

// seeEvents are the steps if there is no better advice.
var seeEvents = []Step{{"See its Events, and the log of the daemon that is the leader", "kubectl -n {ns} get events --field-selector involvedObject.name={name}"}}
