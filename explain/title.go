package explain

import (
	"regexp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// This file names volumes, and objects of volumes, by the claims that users know. types.VolumeText decides the form.

// ClaimOf returns the claim that uses a volume now, as namespace/name; "": it has none, its claim is not known, or the
// volume does not exist. If the volume does not record a claim yet, its PersistentVolume names the claim.
func (s *Snapshot) ClaimOf(volume string) string {
	return s.claimFor(named(s.Volumes, volume), volume)
}

// claimFor is ClaimOf for a volume and its name; nil: it does not exist.
func (s *Snapshot) claimFor(v *longhorn.Volume, volume string) string {
	if v == nil && s.sees(ResourceVolumes) {
		return ""
	}
	if v != nil && v.Status.KubernetesStatus.PVCName != "" {
		return types.ClaimOf(v)
	}
	pv := s.pvOfVolume(volume)
	if pv == nil || pv.Spec.ClaimRef == nil || pv.Status.Phase == corev1.VolumeReleased {
		return ""
	}
	return pv.Spec.ClaimRef.Namespace + "/" + pv.Spec.ClaimRef.Name
}

// volumeText names a volume in a sentence: its claim, then its name.
func (s *Snapshot) volumeText(name string) string {
	return types.VolumeWithClaim(name, s.ClaimOf(name))
}

// replicaText names a replica of a volume in a sentence, with the claim of the volume.
func (s *Snapshot) replicaText(name, volume string) string {
	if claim := s.ClaimOf(volume); claim != "" {
		return name + " of " + claim
	}
	return name
}

// setVolume sets the value of {volume}: in sentences with its claim, in commands only its name.
func (p place) setVolume(s *Snapshot, name string) {
	p["volume"], p[inSentences+"volume"] = name, s.volumeText(name)
}

// setReplica sets the values of {replica} and of {volume}, in the same way.
func (p place) setReplica(s *Snapshot, name, volume string) {
	p["replica"], p[inSentences+"replica"] = name, s.replicaText(name, volume)
	p.setVolume(s, volume)
}

// TitleOf names an object for users. A volume has its claim, and an object of a volume has the claim of the volume.
// objectText in ui/src/lib/names.ts has the same rule.
func (s *Snapshot) TitleOf(o Object) string {
	volume := s.volumeNameOf(o)
	switch claim := s.ClaimOf(volume); {
	case volume == "" || claim == "":
		return o.String()
	case o.Name == volume:
		return string(o.Kind) + " " + types.VolumeWithClaim(volume, claim)
	default:
		return o.String() + " of " + claim
	}
}

// volumeNameOf returns the name of the volume that an object is, or belongs to; "": it belongs to none, or to several.
func (s *Snapshot) volumeNameOf(o Object) string {
	switch o.Kind {
	case KindVolume, KindShareManager:
		return o.Name
	case KindEngine:
		if e := named(s.Engines, o.Name); e != nil {
			return e.Spec.VolumeName
		}
	case KindReplica:
		if r := named(s.Replicas, o.Name); r != nil {
			return r.Spec.VolumeName
		}
	case KindSnapshot:
		if taken := named(s.Snapshots, o.Name); taken != nil {
			return taken.Spec.Volume
		}
	case KindTicket:
		return s.volumeOfTicket(o)
	}
	return ""
}

// volumeOfTicket returns the volume of a ticket; "": tickets of several volumes have the same id and node.
func (s *Snapshot) volumeOfTicket(o Object) string {
	volume := ""
	for _, va := range s.Attachments {
		if t, ok := va.Spec.AttachmentTickets[o.Name]; ok && t.NodeID == o.Node {
			if volume != "" {
				return ""
			}
			volume = va.Name
		}
	}
	return volume
}

// Names of volumes in a message: the words that precede them, and names in a list.
var (
	volumesInMessage = regexp.MustCompile(`\bvolumes? [a-z0-9][a-z0-9-]*(, [a-z0-9][a-z0-9-]*)*( and [a-z0-9][a-z0-9-]*)?`)
	nameInMessage    = regexp.MustCompile(`[a-z0-9][a-z0-9-]*`)
)

// claimsInMessages returns a function that adds the claims of volumes to a message that the writer of a condition wrote
// without them, because it does not know claims. It changes only names that follow the word volume, or volumes: other
// words may be the name of a volume by chance.
func (s *Snapshot) claimsInMessages() func(message string) string {
	texts := map[string]string{}
	for _, v := range s.Volumes {
		if claim := s.claimFor(v, v.Name); claim != "" {
			texts[v.Name] = types.VolumeWithClaim(v.Name, claim)
		}
	}
	return func(message string) string {
		if len(texts) == 0 {
			return message
		}
		var text []byte
		end := 0
		for _, at := range volumesInMessage.FindAllStringIndex(message, -1) {
			text = append(text, message[end:at[0]]...)
			list := message[at[0]:at[1]]
			end = at[1]
			if end < len(message) && slices.Contains([]byte("/."), message[end]) && end+1 < len(message) && message[end+1] != ' ' {
				text = append(text, list...) // the last word is a part of a claim or a path
				continue
			}
			text = append(text, nameInMessage.ReplaceAllStringFunc(list, func(name string) string {
				if title, ok := texts[name]; ok {
					return title
				}
				return name
			})...)
		}
		return string(append(text, message[end:]...))
	}
}
