package remount

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"time"

	kubetypes "k8s.io/apimachinery/pkg/types"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// recorded says which pods had the old mount when a request was first seen. It is stored in an annotation of the Volume
// (types.AnnotationRemountPods), so that a later leader acts only on the same pods:
//
//	recorded                  the controller
//	another request, or none  records the present pods; none if the request is old, as they may have started after it
//	this request, with pods   waits until the volume is served, restarts these pods, and records an empty list
//	this request, no pods     has nothing to do: replacements stay, and so do pods that a setting spared
//
// No clock decides which pods these are: the nodes' clocks and the leader's may differ by more than a restart takes.
type recorded struct {
	Request string          `json:"request"`
	Pods    []kubetypes.UID `json:"pods"`
}

// recordOf reads the record of a loss. A record that cannot be parsed counts as missing.
func recordOf(v *longhorn.Volume, node string) recorded {
	if node != "" {
		return recordsOfNodes(v)[node]
	}
	var r recorded
	if err := json.Unmarshal([]byte(v.Annotations[types.AnnotationRemountPods]), &r); err != nil {
		return recorded{}
	}
	return r
}

// recordsOfNodes are the records of losses on one node each, by node. They have their own annotation, which an earlier
// release does not change.
func recordsOfNodes(v *longhorn.Volume) map[string]recorded {
	records := map[string]recorded{}
	if err := json.Unmarshal([]byte(v.Annotations[types.AnnotationRemountPodsOfNodes]), &records); err != nil {
		return map[string]recorded{}
	}
	return records
}

// isForgotten reports whether a request without a record is very old. An earlier release may have written such a
// request and acted on it. In that case no present pod can be assumed to have existed when the request was written. For
// a shared volume, the pods' start is compared instead (holdsOldMount).
func isForgotten(v *longhorn.Volume, request string, now time.Time) bool {
	requested, err := time.Parse(time.RFC3339, request)
	return !types.IsShared(v) && err == nil && now.Sub(requested) > maxAge
}

// annotated is a copy of the volume with the record of a loss. If the loss is about one node, it also removes the
// records of nodes for which the share no longer has a request.
func (r recorded) annotated(v *longhorn.Volume, node string, asking []loss) (*longhorn.Volume, error) {
	key, value := types.AnnotationRemountPods, any(r)
	if node != "" {
		records := recordsOfNodes(v)
		maps.DeleteFunc(records, func(name string, _ recorded) bool {
			return !slices.ContainsFunc(asking, func(l loss) bool { return l.node == name })
		})
		records[node] = r
		key, value = types.AnnotationRemountPodsOfNodes, records
	}
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	v = v.DeepCopy()
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	v.Annotations[key] = string(text)
	return v, nil
}

// witnesses are the pods that exist now, use the volume, and may have the old mount; sorted.
func witnesses(in Input) []kubetypes.UID {
	uids := []kubetypes.UID{}
	for _, pod := range in.Pods {
		if in.isOnNode(&pod) && (hasRun(&pod) || !types.IsShared(in.Volume)) && usesAny(&pod, in.Claims, in.Volume.Name) && holdsOldMount(&pod, in) {
			uids = append(uids, pod.UID)
		}
	}
	slices.SortFunc(uids, func(a, b kubetypes.UID) int { return strings.Compare(string(a), string(b)) })
	return uids
}
