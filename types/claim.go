package types

import (
	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
)

// ClaimOf returns the claim that uses a volume now, as namespace/name. It is empty if the volume never had a claim, or
// if its last claim was deleted: another volume may have a claim of that name now. claimOf in ui/src/lib/volume.ts has
// the same rule.
func ClaimOf(v *longhorn.Volume) string {
	k := v.Status.KubernetesStatus
	if k.PVCName == "" || k.LastPVCRefAt != "" || k.PVStatus == string(corev1.VolumeReleased) {
		return ""
	}
	return k.Namespace + "/" + k.PVCName
}

// VolumeText names a volume in a text for users, who know it by its claim: "default/data (pvc-...)". A volume without a
// claim keeps its name. The name is never shortened, because users copy it into commands. fullNameOf in
// ui/src/lib/names.ts has the same rule.
func VolumeText(v *longhorn.Volume) string { return VolumeWithClaim(v.Name, ClaimOf(v)) }

// VolumeWithClaim is VolumeText for the name of a volume, and its claim; "": it has none.
func VolumeWithClaim(name, claim string) string {
	if claim == "" {
		return name
	}
	return claim + " (" + name + ")"
}
