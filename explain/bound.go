package explain

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
	"github.com/longhorn-lep/longhorn-manager/util/mount"
)

// eventIgnoredParameters is the reason of the Event about parameters of a StorageClass that the driver does not know.
const eventIgnoredParameters = "IgnoredParameters"

// pvOf returns the PersistentVolume of a claim; nil: there is none, or the user may not read it.
func (s *Snapshot) pvOf(c *corev1.PersistentVolumeClaim) *corev1.PersistentVolume {
	if c.Spec.VolumeName == "" {
		return nil
	}
	return named(s.PersistentVolumes, c.Spec.VolumeName)
}

// pvOfVolume returns the PersistentVolume of a volume; nil: there is none. The PersistentVolume names the volume in
// its volumeHandle, and can itself have any name.
func (s *Snapshot) pvOfVolume(volume string) *corev1.PersistentVolume {
	i := slices.IndexFunc(s.PersistentVolumes, func(pv *corev1.PersistentVolume) bool { return isOurs(pv) && pv.Spec.CSI.VolumeHandle == volume })
	if i < 0 {
		return nil
	}
	return s.PersistentVolumes[i]
}

func isOurs(pv *corev1.PersistentVolume) bool {
	return pv.Spec.CSI != nil && pv.Spec.CSI.Driver == types.DriverName
}

// volumeOf returns the volume behind a PersistentVolume; nil: there is none.
func volumeOf(s *Snapshot, pv *corev1.PersistentVolume) *longhorn.Volume {
	if pv == nil || !isOurs(pv) {
		return nil
	}
	return named(s.Volumes, pv.Spec.CSI.VolumeHandle)
}

// ofBound explains a claim that has, or names, a PersistentVolume.
func ofBound(s *Snapshot, c *corev1.PersistentVolumeClaim) []Finding {
	a, pv := about(s, c), s.pvOf(c)
	seePV := Step{"See the PersistentVolume", "kubectl get pv {pv} -o yaml"}
	switch {
	case pv == nil && !s.sees(ResourcePVs), pv != nil && !isOurs(pv):
		return nil
	case pv == nil && c.Status.Phase == corev1.ClaimPending:
		return []Finding{a.say(Broken, "PersistentVolumeMissing", "claim {claim} names PersistentVolume {pv}, which does not exist", nil,
			Step{"Create the PersistentVolume, or create the claim again without spec.volumeName", describeClaim.Command})}
	case pv == nil:
		return []Finding{a.say(Broken, "PersistentVolumeMissing", "claim {claim} has lost PersistentVolume {pv}, which no longer exists", nil,
			Step{"If the volume still exists, create the claim and a PersistentVolume with its name as volumeHandle again", "kubectl -n {ns} get lhv"})}
	}
	var found []Finding
	switch ref := pv.Spec.ClaimRef; {
	case ref != nil && (ref.Namespace != c.Namespace || ref.Name != c.Name):
		found = append(found, a.say(Broken, "PersistentVolumeTaken", "claim {claim} names PersistentVolume {pv}, which belongs to claim "+ref.Namespace+"/"+ref.Name, nil,
			seePV, Step{"Bind the claim to another PersistentVolume", describeClaim.Command}))
	case c.Status.Phase == corev1.ClaimLost, ref != nil && c.UID != "" && ref.UID != "" && ref.UID != c.UID:
		found = append(found, a.say(Broken, "ClaimLost", "claim {claim} is not bound to PersistentVolume {pv}, which belonged to an earlier claim of this name", nil,
			Step{"To use the data again, remove spec.claimRef of the PersistentVolume", `kubectl patch pv {pv} --type merge -p '{"spec":{"claimRef":null}}'`}))
	case c.Status.Phase == corev1.ClaimPending:
		var why []string
		if last := lastEvent(s, referenceOf(c), func(*corev1.Event) bool { return true }); last != nil {
			plain := plainMessage(last.Message)
			why = append(why, last.Reason+": "+plain)
		}
		found = append(found, a.say(Warning, "ClaimPending", "claim {claim} waits to be bound to PersistentVolume {pv}", why,
			Step{"Compare the size, access modes, volume mode and storageClassName of both", "kubectl -n {claimns} get pvc {name} -o yaml; kubectl get pv {pv} -o yaml"}))
	}
	if c.DeletionTimestamp != nil {
		found = append(found, deletingClaim(s, c))
	}
	found = append(found, ofClaimConditions(s, c, a)...)
	return append(found, ofIgnoredParameters(s, c, a)...)
}

// ofIgnoredParameters lists the parameters of the claim's class that request something and have no effect. The Event
// describes the class as it was when the volume was created. If the Event no longer exists, the class itself is
// checked.
func ofIgnoredParameters(s *Snapshot, c *corev1.PersistentVolumeClaim, a claimFinding) []Finding {
	severity, why := Warning, ""
	if e := lastEvent(s, referenceOf(c), func(e *corev1.Event) bool { return e.Reason == eventIgnoredParameters }); e != nil {
		why = e.Message
	} else if class := classOf(s, c); class != nil && class.Provisioner == types.DriverName {
		severity, why = Info, strings.Join(types.ParametersWithoutEffect(class.Parameters), ", ")
	}
	if why == "" {
		return nil
	}
	return []Finding{a.say(severity, eventIgnoredParameters, "claim {claim} has a volume without some of the parameters of StorageClass {class}", []string{why},
		Step{"Correct their names: parameters of a StorageClass cannot be changed, so delete the StorageClass and create it again", "kubectl get storageclass {class} -o yaml"},
		Step{"If the volume must have them, change the volume, or delete the claim and create it again", "kubectl -n {ns} get lhv"})}
}

// ofClaimConditions explains what Kubernetes itself reports about an expansion or a change of a claim. A file system
// that could not grow while it was mounted has two conditions: it still waits to grow.
func ofClaimConditions(s *Snapshot, c *corev1.PersistentVolumeClaim, a claimFinding) []Finding {
	var found []Finding
	for _, condition := range c.Status.Conditions {
		if condition.Status != corev1.ConditionTrue {
			continue
		}
		why, reason := nonempty(essenceOf(condition.Message)), string(condition.Type)
		switch condition.Type {
		case corev1.PersistentVolumeClaimControllerResizeError:
			found = append(found, a.say(Warning, reason, "claim {claim} cannot grow", why, Step{"Fix the cause in the line above, or request the old size again", describeClaim.Command}))
		case corev1.PersistentVolumeClaimNodeResizeError:
			found = append(found, a.say(Warning, reason, "the volume of claim {claim} has grown, but its file system could not grow", why,
				Step{"Stop all pods that use the claim (Used By), then start them again: the growth is tried again when the volume is mounted", describeClaim.Command}))
		case corev1.PersistentVolumeClaimVolumeModifyVolumeError:
			found = append(found, a.say(Warning, reason, "claim {claim} cannot be changed as its VolumeAttributesClass requests", why, describeClaim))
		case corev1.PersistentVolumeClaimFileSystemResizePending:
			if !hasCondition(c, corev1.PersistentVolumeClaimNodeResizeError) {
				found = append(found, growingFilesystem(s, c, a))
			}
		}
	}
	return found
}

// growingFilesystem explains a file system that has not grown to the size of its volume yet. The message of the
// condition is left out: it requests a restart of the pod, which is not needed.
func growingFilesystem(s *Snapshot, c *corev1.PersistentVolumeClaim, a claimFinding) Finding {
	what, next := "the volume of claim {claim} has grown; its file system grows when a pod mounts it", Step{"Start a pod that uses the claim", describeClaim.Command}
	if v := volumeOf(s, s.pvOf(c)); v != nil && v.Status.State == longhorn.VolumeStateAttached {
		what = "the volume of claim {claim} has grown; its file system grows soon"
		next.Text = "No action needed: the kubelet grows the file system within two minutes, without a restart of the pod"
	}
	return a.say(Info, string(corev1.PersistentVolumeClaimFileSystemResizePending), what, nil, next)
}

// hasCondition reports whether a condition of a claim is True.
func hasCondition(c *corev1.PersistentVolumeClaim, kind corev1.PersistentVolumeClaimConditionType) bool {
	return slices.ContainsFunc(c.Status.Conditions, func(other corev1.PersistentVolumeClaimCondition) bool {
		return other.Type == kind && other.Status == corev1.ConditionTrue
	})
}

// ofPV explains a PersistentVolume of this driver.
func ofPV(s *Snapshot, pv *corev1.PersistentVolume) []Finding {
	if !isOurs(pv) {
		return nil
	}
	handle := pv.Spec.CSI.VolumeHandle
	o, p := Object{Kind: KindPV, Name: pv.Name}, s.place("pv", pv.Name)
	p.setVolume(s, handle)
	var found []Finding
	say := func(severity Severity, reason, what string, why []string, next ...Step) {
		found = append(found, Finding{o, severity, reason, p.fill(what), why, p.steps(next)})
	}
	deleted := pv.DeletionTimestamp != nil || pv.Status.Phase == corev1.VolumeReleased
	switch v := volumeOf(s, pv); {
	case v == nil && s.sees(ResourceVolumes) && !deleted:
		severity := Broken
		if pv.Status.Phase != corev1.VolumeBound {
			severity = Warning // no claim uses it yet
		}
		say(severity, "VolumeMissing", "volume {volume} of PersistentVolume {pv} does not exist; create it, or correct volumeHandle", similarVolumes(s, pv),
			Step{"See which volumes exist", "kubectl -n {ns} get lhv"},
			Step{"To correct volumeHandle, create the PersistentVolume again: the field cannot be changed", "kubectl get pv {pv} -o yaml"},
			Step{"If the volume was deleted, its data is gone: restore it from a backup into a new volume", ""})
	case v != nil && v.DeletionTimestamp != nil && !deleted:
		say(Broken, "VolumeDeleted", "volume {volume} of PersistentVolume {pv} is being deleted, with its data", finalizers(v.Finalizers),
			Step{"The deletion cannot be undone: copy the data from a running pod now, or restore it from a backup into a new volume", "kubectl longhorn explain volume {volume}"})
	}
	if ignored := ignoredMountOptions(s, pv); len(ignored) > 0 && !deleted {
		say(Warning, "MountOptionsIgnored", "shared volume {volume} is mounted without mountOptions "+strings.Join(ignored, ", ")+" of PersistentVolume {pv}",
			[]string{"a shared volume is mounted over NFS version 4, which does not support such options"},
			Step{"Remove the options from the PersistentVolume", "kubectl edit pv {pv}"},
			Step{"Put options of the kernel's NFS client into the parameter nfsOptions of the StorageClass; it applies to new claims", ""})
	}
	if pv.Status.Phase == corev1.VolumeFailed {
		say(Warning, "PersistentVolumeFailed", "PersistentVolume {pv} could not be deleted", nonempty(pv.Status.Message), Step{"Fix what the lines above name; the deletion is retried automatically", "kubectl describe pv {pv}"})
	}
	if pv.DeletionTimestamp != nil && pv.Status.Phase == corev1.VolumeBound {
		say(Warning, "Deleting", "PersistentVolume {pv} is being deleted, and waits until its claim is deleted", finalizers(pv.Finalizers), Step{"See its claim", "kubectl describe pv {pv}"})
	}
	return append(found, ofKubeAttachments(s, pv, o, p)...)
}

// ignoredMountOptions returns the mount options of a shared volume's PersistentVolume that nodes ignore. New claims
// with such options are refused. But a PersistentVolume that an earlier release or a user created may have them.
func ignoredMountOptions(s *Snapshot, pv *corev1.PersistentVolume) []string {
	v := volumeOf(s, pv)
	if v == nil || v.Spec.AccessMode != longhorn.AccessModeReadWriteMany {
		return nil
	}
	_, ignored := mount.DefaultNFSOptions.WithMountOptions(pv.Spec.MountOptions)
	return ignored
}

func nonempty(text string) []string {
	if text == "" {
		return nil
	}
	return []string{text}
}

// similarVolumes returns the volumes whose names resemble the missing volume that a PersistentVolume names.
func similarVolumes(s *Snapshot, pv *corev1.PersistentVolume) []string {
	if near := Nearest(pv.Spec.CSI.VolumeHandle, names(s.Volumes)); near != "" {
		return []string{fmt.Sprintf("a volume of a similar name exists: %s", s.volumeText(near))}
	}
	return nil
}

// ofKubeAttachments explains why the volume of a PersistentVolume cannot be attached to a node, or detached from it.
// It uses the status of Kubernetes' own objects, which exists longer than Events.
func ofKubeAttachments(s *Snapshot, pv *corev1.PersistentVolume, o Object, p place) []Finding {
	var found []Finding
	for _, a := range s.KubeAttachments {
		if source := a.Spec.Source.PersistentVolumeName; source == nil || *source != pv.Name {
			continue
		}
		p["attachment"], p["attachnode"] = a.Name, a.Spec.NodeName
		see := Step{"See the attachment", "kubectl describe volumeattachments.storage.k8s.io {attachment}"}
		if e := a.Status.AttachError; e != nil && !a.Status.Attached && a.DeletionTimestamp == nil {
			plain := plainMessage(e.Message)
			found = append(found, Finding{o, Broken, "AttachError", p.fill("PersistentVolume {pv} cannot be attached to node {attachnode}"), nonempty(plain), p.steps([]Step{see})})
		}
		if e := a.Status.DetachError; e != nil {
			plain := plainMessage(e.Message)
			found = append(found, Finding{o, Warning, "DetachError", p.fill("PersistentVolume {pv} cannot be detached from node {attachnode}"), nonempty(plain), p.steps([]Step{see})})
		}
	}
	return found
}
