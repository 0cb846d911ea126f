package remount

import (
	"encoding/json"
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

// recordOf reads the annotation. What cannot be read is as if it were not there.
func recordOf(v *longhorn.Volume) recorded {
	var r recorded
	if err := json.Unmarshal([]byte(v.Annotations[types.AnnotationRemountPods]), &r); err != nil {
		return recorded{}
	}
	return r
}

// isForgotten tells whether a request without a record is so old that no pod of now can be believed to have been there when it was
// written, as one that an earlier release wrote and acted on. Of a shared volume the pods' start is compared (holdsOldMount).
func isForgotten(v *longhorn.Volume, request string, now time.Time) bool {
	requested, err := time.Parse(time.RFC3339, request)
	return !types.IsShared(v) && err == nil && now.Sub(requested) > maxAge
}

// annotated is a copy of the volume with the record.
func (r recorded) annotated(v *longhorn.Volume) (*longhorn.Volume, error) {
	text, err := json.Marshal(r)
	if err != nil {
		return nil, err
	}
	v = v.DeepCopy()
	if v.Annotations == nil {
		v.Annotations = map[string]string{}
	}
	v.Annotations[types.AnnotationRemountPods] = string(text)
	return v, nil
}

// witnesses are the pods that exist now, use the volume, and may hold the old mount, on whatever node; sorted.
func witnesses(in Input) []kubetypes.UID {
	uids := []kubetypes.UID{}
	for _, pod := range in.Pods {
		if (hasRun(&pod) || !types.IsShared(in.Volume)) && usesAny(&pod, in.Claims, in.Volume.Name) && holdsOldMount(&pod, in) {
			uids = append(uids, pod.UID)
		}
	}
	slices.SortFunc(uids, func(a, b kubetypes.UID) int { return strings.Compare(string(a), string(b)) })
	return uids
}
