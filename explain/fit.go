package explain

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// sizeUnit is the unit in bytes of a volume's size: every size is a multiple of it.
const sizeUnit = int64(2) << 20

// tooLarge reports how large a volume of a waiting claim's class can be, if the scheduler finds no place for one of
// the claim's size.
func tooLarge(s *Snapshot, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass, a claimFinding) (Finding, bool) {
	spec, ok := specOf(s, c, class)
	if !ok || !s.sees(ResourceNodes) || !s.sees(ResourceReplicas) || !s.sees(ResourceInstanceManagers) || len(s.Nodes) == 0 {
		return Finding{}, false
	}
	objects := scheduler.Objects{Nodes: s.Nodes, InstanceManagers: s.InstanceManagers, Replicas: s.Replicas}
	cluster := objects.Snapshot("pvc-"+string(c.UID), scheduler.SettingsOf(s.values(), &spec))
	allowed := s.values().Bool(settings.AllowVolumeCreationWithDegradedAvailability)
	lack := noRoomFor(cluster, spec, int64(spec.Size), allowed)
	if lack == nil {
		return Finding{}, false
	}
	asks := fmt.Sprintf("claim {claim} requests %s with %s, and ", types.SizeText(int64(spec.Size)), plural(spec.NumberOfReplicas, "replica"))
	smaller := Step{"Delete the claim and create a smaller one, or add disks: the claim is retried automatically", "kubectl longhorn status"}
	all, fewer := largestFor(cluster, spec, false), int64(0)
	if allowed {
		fewer = largestFor(cluster, spec, true)
	}
	const degraded = "a volume with fewer replicas is degraded until there is a place for the others (allow-volume-creation-with-degraded-availability)"
	switch {
	case all > 0 && fewer > all:
		asks += "the largest volume that fits is " + types.SizeTextDown(all) + "; with fewer replicas, " + types.SizeTextDown(fewer)
		return a.say(Warning, "ClaimPending", asks, []string{degraded}, smaller), true
	case all > 0:
		return a.say(Warning, "ClaimPending", asks+"the largest volume that fits is "+types.SizeTextDown(all), nil, smaller), true
	case fewer > 0:
		asks += "there is no place for so many; the largest volume with fewer replicas is " + types.SizeTextDown(fewer)
		return a.say(Warning, "ClaimPending", asks, []string{degraded}, smaller), true
	}
	return nothingFits(s, spec, lack, a), true
}

// nothingFits explains a claim for which no disk has a place, whatever the size.
func nothingFits(s *Snapshot, spec longhorn.VolumeSpec, lack *scheduler.Unschedulable, a claimFinding) Finding {
	other := func(r scheduler.Rejection) bool { return r.Reason != scheduler.ReasonTagsNotFulfilled }
	if len(spec.NodeSelector)+len(spec.DiskSelector) > 0 && !slices.ContainsFunc(lack.Rejections, other) {
		return a.say(Warning, "ClaimPending", "claim {claim} requests "+tagsOf(spec)+", and no disk fits", nil, tagStep(s, lack.Rejections, spec),
			Step{"Or correct the tags: parameters of a StorageClass cannot be changed, so delete the StorageClass and create it again", "kubectl get storageclass {class} -o yaml"})
	}
	asks := fmt.Sprintf("claim {claim} requests %s with %s, and ", types.SizeText(int64(spec.Size)), plural(spec.NumberOfReplicas, "replica"))
	var why []string
	for _, r := range lack.Rejections {
		where := "node " + r.Node
		if r.Disk != "" {
			where += " disk " + r.Disk
		}
		why = append(why, fmt.Sprintf("%s: %s: %s", where, r.Reason, r.Message))
	}
	return a.say(Warning, "ClaimPending", asks+"no volume of StorageClass {class} fits, not even a smaller one", why,
		Step{"Fix what the lines above say about nodes and disks; the claim is retried automatically", "kubectl longhorn status"})
}

// largestFor returns the size in bytes of the largest volume that could be created now, up to the size of spec; 0:
// none.
func largestFor(cluster scheduler.Snapshot, spec longhorn.VolumeSpec, fewer bool) int64 {
	units := sort.Search(int(int64(spec.Size)/sizeUnit), func(units int) bool {
		return noRoomFor(cluster, spec, (int64(units)+1)*sizeUnit, fewer) != nil
	})
	return int64(units) * sizeUnit
}

// noRoomFor returns the reason why a volume of a size could not be created now; nil: it could. With fewer, a place for
// one of its replicas suffices.
func noRoomFor(cluster scheduler.Snapshot, spec longhorn.VolumeSpec, size int64, fewer bool) *scheduler.Unschedulable {
	_, err := scheduler.ScheduleAll(cluster, scheduler.Request{SizeBytes: size, NodeSelector: spec.NodeSelector, DiskSelector: spec.DiskSelector}, spec.NumberOfReplicas)
	var u *scheduler.Unschedulable
	if !errors.As(err, &u) || u.Placed > 0 && fewer {
		return nil
	}
	return u
}

// specOf returns the spec of a volume for a claim, as far as the scheduler reads it. false: the values of its class
// are refused for another reason.
func specOf(s *Snapshot, c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) (longhorn.VolumeSpec, bool) {
	request := c.Spec.Resources.Requests[corev1.ResourceStorage]
	spec := longhorn.VolumeSpec{
		Size:                        longhorn.Bytes(request.Value()),
		NumberOfReplicas:            int(s.values().Int(settings.DefaultReplicaCount)),
		NodeSelector:                words(class.Parameters["nodeSelector"]),
		DiskSelector:                words(class.Parameters["diskSelector"]),
		ReplicaSoftAntiAffinity:     longhorn.AntiAffinity(class.Parameters["replicaSoftAntiAffinity"]),
		ReplicaZoneSoftAntiAffinity: longhorn.AntiAffinity(class.Parameters["replicaZoneSoftAntiAffinity"]),
		ReplicaDiskSoftAntiAffinity: longhorn.AntiAffinity(class.Parameters["replicaDiskSoftAntiAffinity"]),
	}
	if text := class.Parameters["numberOfReplicas"]; text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return spec, false
		}
		spec.NumberOfReplicas = n
	}
	return spec, spec.Size > 0
}

// words returns the parts of a comma-separated list.
func words(list string) []string {
	var parts []string
	for _, part := range strings.Split(list, ",") {
		if part = strings.TrimSpace(part); part != "" {
			parts = append(parts, part)
		}
	}
	return parts
}
