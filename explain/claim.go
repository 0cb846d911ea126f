package explain

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// Claim explains why a PersistentVolumeClaim is not bound. The error says that there is no such claim.
func Claim(s *Snapshot, namespace, name string) ([]Finding, error) {
	for _, c := range s.Claims {
		if c.Namespace == namespace && c.Name == name {
			return ofClaim(s, c), nil
		}
	}
	return nil, notThere(s, KindClaim, namespace+"/"+name, ResourceClaims, nil)
}

// ofClaim explains a claim that waits. One of another driver's class is not ours to explain.
func ofClaim(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	if c.Status.Phase != corev1.ClaimPending || c.Spec.VolumeName != "" || c.Spec.StorageClassName == nil {
		return nil
	}
	class := named(s.Classes, *c.Spec.StorageClassName)
	if class != nil && class.Provisioner != types.DriverName || class == nil && !s.sees(ResourceClasses) {
		return nil
	}
	p := s.place("name", c.Name, "claimns", c.Namespace, "class", *c.Spec.StorageClassName)
	f := Finding{Object: Object{Kind: KindClaim, Name: c.Namespace + "/" + c.Name}, Severity: Warning, Reason: "ClaimPending", What: "claim " + c.Namespace + "/" + c.Name + " waits for its volume"}
	switch last := lastEvent(s, c); {
	case class == nil:
		f.What, f.Severity = "claim "+c.Namespace+"/"+c.Name+" names a StorageClass that does not exist", Broken
		f.Next = []Step{{"Make the class, or a claim of another one", "kubectl get storageclass"}}
	case awaitsPod(c, class):
		f.Severity, f.Why = Info, []string{"its class has volumeBindingMode WaitForFirstConsumer: the volume is made when a pod uses the claim"}
		f.Next = []Step{{"Use the claim in a pod", "kubectl -n {claimns} describe pvc {name}"}}
	case last != nil:
		f.Why = []string{fmt.Sprintf("%s: %s", last.Reason, last.Message)}
		f.Next = []Step{{"Mend what the message names; it is tried again by itself", "kubectl -n {claimns} describe pvc {name}"}}
	default:
		f.Next = []Step{{"See whether the pods that make volumes run", "kubectl -n {ns} get pods -l app=" + types.AppCSIController}}
	}
	f.Next = p.steps(f.Next)
	return []Finding{f}
}

// awaitsPod tells whether the claim waits for its first pod, as its class says.
func awaitsPod(c *corev1.PersistentVolumeClaim, class *storagev1.StorageClass) bool {
	mode := class.VolumeBindingMode
	return mode != nil && *mode == storagev1.VolumeBindingWaitForFirstConsumer && c.Annotations["volume.kubernetes.io/selected-node"] == ""
}

// lastEvent is the last Warning about a claim; nil: there is none.
func lastEvent(s *Snapshot, c *corev1.PersistentVolumeClaim) *corev1.Event {
	var last *corev1.Event
	for _, e := range s.Events {
		about := e.InvolvedObject
		if e.Type != corev1.EventTypeWarning || about.Kind != "PersistentVolumeClaim" || about.Namespace != c.Namespace || about.Name != c.Name {
			continue
		}
		if last == nil || last.LastTimestamp.Before(&e.LastTimestamp) {
			last = e
		}
	}
	return last
}
