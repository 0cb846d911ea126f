package volume

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/controller/volume/copies"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// copiesMissing reports on a detached volume that it has fewer good replicas than requested. While no engine runs, its
// robustness is unknown and nothing is rebuilt, so no other field would show that.
func copiesMissing(in Input, p *Plan) {
	text := ""
	if p.Status.State == longhorn.VolumeStateDetached && in.Engine.Status.Epoch != nil {
		text = lackDetached(in)
	}
	sayWhile(in, p, types.ConditionCopiesMissing, types.ReasonVolumeDetached, text)
}

// sayWhile sets a condition to True while text is not empty, and to False afterwards. A volume that never had a text
// does not have the condition.
func sayWhile(in Input, p *Plan, condition, reason, text string) {
	switch {
	case text != "":
		setCondition(p, in.Now, condition, longhorn.ConditionTrue, reason, text)
	case types.IsConditionTrue(p.Status.Conditions, condition):
		setCondition(p, in.Now, condition, longhorn.ConditionFalse, "", "")
	}
}

// lackDetached says which good replicas a detached volume lacks, and why; "": it has enough. Good replicas are the
// members of the last epoch that can be reached, as far as is known.
func lackDetached(in Input) string {
	absent := map[string]bool{}
	for _, name := range in.Engine.Status.Epoch.Members {
		absent[name] = true
	}
	good := 0
	var troubles []string
	for _, r := range in.Replicas {
		isMember := absent[r.Name]
		delete(absent, r.Name)
		switch where := fmt.Sprintf("replica %s on node %s", r.Name, r.Spec.NodeID); {
		case isMember && in.LacksDisk[r.Name]:
			troubles = append(troubles, where+": the node came back without its disk")
		case !types.Stays(r), copies.IsUnavailable(in.Facts, r):
			troubles = append(troubles, describe(in, r))
		case !isMember:
			troubles = append(troubles, where+": it is not rebuilt yet")
		default:
			good++
		}
	}
	if good >= in.Volume.Spec.NumberOfReplicas {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(absent)) {
		troubles = append(troubles, fmt.Sprintf("replica %s no longer exists", name))
	}
	text := fmt.Sprintf("healthy replicas: %d of the %d requested", good, in.Volume.Spec.NumberOfReplicas)
	if len(troubles) > 0 {
		text += " (" + strings.Join(troubles, "; ") + ")"
	}
	if good > 0 {
		text += "; missing replicas are rebuilt when the volume is attached"
	}
	return text
}
