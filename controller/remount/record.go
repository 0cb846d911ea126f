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

// recorded says which pods held the old mount when a request was first seen. It is stored in an annotation of the Volume
// (types.AnnotationRemountPods), so that a later leader acts on the same pods and on no others:
//
//	recorded                  the controller
//	another request, or none  records the pods that exist now; none where the request is old: these may have started after it
//	this request, with pods   waits until the volume is served, restarts these pods, and records that none is left
//	this request, no pods     has nothing to do: replacements stay, and so do pods that a setting spared
//
// No clock is asked which pods these are: the nodes' clocks and the leader's may differ by more than a restart takes.
type recorded struct {
	Request string          `json:"request"`
	Pods    []kubetypes.UID `json:"pods"`
}

// recordOf reads the record of a loss. What cannot be read is as if it were not there.
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

// recordsOfNodes are those of losses on one node each, by node. They have an annotation of their own, which an earlier release leaves alone.
func recordsOfNodes(v *longhorn.Volume) map[string]recorded {
	records := map[string]recorded{}
	if err := json.Unmarshal([]byte(v.Annotations[types.AnnotationRemountPodsOfNodes]), &records); err != nil {
		return map[string]recorded{}
	}
	return records
}

// isForgotten tells whether a request without a record is so old that no pod of now can be believed to have been there when it was
// written, as one that an earlier release wrote and acted on. Of a shared volume the pods' start is compared (holdsOldMount).
func isForgotten(v *longhorn.Volume, request string, now time.Time) bool {
	requested, err := time.Parse(time.RFC3339, request)
	return !types.IsShared(v) && err == nil && now.Sub(requested) > maxAge
}

// annotated is a copy of the volume with the record of a loss. Of records of nodes, only those stay that the share still asks for.
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

// witnesses are the pods that exist now, use the volume, and may hold the old mount; sorted.
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
