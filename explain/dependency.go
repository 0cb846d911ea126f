package explain

import (
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// restsOn returns all objects whose failure can be the cause of a problem of an object: those that it uses, those that
// they use, and so on.
func (s *Snapshot) restsOn(o Object) []Object {
	var all []Object
	todo := s.uses(o)
	for len(todo) > 0 {
		next := todo[0]
		todo = todo[1:]
		if next != o && !slices.Contains(all, next) {
			all = append(all, next)
			todo = append(todo, s.uses(next)...)
		}
	}
	return all
}

// uses returns the objects that an object uses itself. A volume uses only those replicas that are not healthy or
// that cannot be reached: the others are not a cause of its problems.
func (s *Snapshot) uses(o Object) []Object {
	switch o.Kind {
	case KindDisk:
		return nodeObjects(o.Node)[:1]
	case KindInstanceManager:
		for _, n := range s.Nodes {
			if types.InstanceManagerName(n.Name) == o.Name {
				return nodeObjects(n.Name)[:1]
			}
		}
	case KindReplica:
		if r := named(s.Replicas, o.Name); r != nil && r.Spec.NodeID != "" {
			return append(nodeObjects(r.Spec.NodeID), s.diskOf(r)...)
		}
	case KindEngine:
		if e := named(s.Engines, o.Name); e != nil {
			return append(nodeObjects(e.Spec.NodeID), s.badCopies(e.Spec.VolumeName)...)
		}
	case KindVolume:
		return append(s.badCopies(o.Name), Object{Kind: KindEngine, Name: types.EngineName(o.Name)})
	case KindTicket:
		used := nodeObjects(o.Node)
		for _, va := range s.Attachments {
			if t, ok := va.Spec.AttachmentTickets[o.Name]; ok && t.NodeID == o.Node {
				used = append(used, Object{Kind: KindVolume, Name: va.Name}, Object{Kind: KindShareManager, Name: va.Name})
			}
		}
		return used
	case KindShareManager:
		used := []Object{{Kind: KindVolume, Name: o.Name}}
		if sm := named(s.ShareManagers, o.Name); sm != nil {
			used = append(used, nodeObjects(sm.Status.CurrentNode)...)
		}
		return used
	case KindSnapshot:
		if taken := named(s.Snapshots, o.Name); taken != nil {
			return []Object{{Kind: KindVolume, Name: taken.Spec.Volume}, {Kind: KindEngine, Name: types.EngineName(taken.Spec.Volume)}}
		}
	case KindPV:
		return s.usedByPV(named(s.PersistentVolumes, o.Name))
	case KindClaim:
		return s.usedByClaim(o.Name)
	case KindPod:
		return s.usedByPod(o)
	}
	return nil
}

// nodeObjects returns a node and its data plane.
func nodeObjects(node string) []Object {
	return []Object{{Kind: KindNode, Name: node}, {Kind: KindInstanceManager, Name: types.InstanceManagerName(node)}}
}

// diskOf returns the disk of a replica, if its node has it.
func (s *Snapshot) diskOf(r *longhorn.Replica) []Object {
	n := s.node(r.Spec.NodeID)
	if n == nil {
		return nil
	}
	for name, status := range n.Status.DiskStatus {
		if status.DiskUUID == r.Spec.DiskID && r.Spec.DiskID != "" {
			return []Object{{Kind: KindDisk, Name: name, Node: n.Name}}
		}
	}
	return nil
}

// badCopies returns the replicas of a volume that are not healthy, or that cannot be reached.
func (s *Snapshot) badCopies(volume string) []Object {
	var bad []Object
	e := s.engine(volume)
	for _, r := range s.replicasOf(volume) {
		if e == nil || !types.IsGoodCopy(e, r) || !s.isReachable(r) {
			bad = append(bad, Object{Kind: KindReplica, Name: r.Name, Node: r.Spec.NodeID})
		}
	}
	return bad
}

// usedByPV returns the volume of a PersistentVolume, what attaches and shares it, and the nodes that it is to be
// attached to. If the volume does not exist, no node is the cause that it cannot be attached. pv may be nil.
func (s *Snapshot) usedByPV(pv *corev1.PersistentVolume) []Object {
	if pv == nil || !isOurs(pv) {
		return nil
	}
	volume := pv.Spec.CSI.VolumeHandle
	used := []Object{{Kind: KindVolume, Name: volume}, {Kind: KindShareManager, Name: volume}}
	if va := named(s.Attachments, volume); va != nil {
		for _, id := range slices.Sorted(maps.Keys(va.Spec.AttachmentTickets)) {
			used = append(used, Object{Kind: KindTicket, Name: id, Node: va.Spec.AttachmentTickets[id].NodeID})
		}
	}
	if volumeOf(s, pv) == nil && s.sees(ResourceVolumes) {
		return used
	}
	for _, a := range s.KubeAttachments {
		if source := a.Spec.Source.PersistentVolumeName; source != nil && *source == pv.Name {
			used = append(used, nodeObjects(a.Spec.NodeName)...)
		}
	}
	return used
}

// usedByClaim returns the PersistentVolume of a claim. A claim without one uses the installation, which creates it.
func (s *Snapshot) usedByClaim(name string) []Object {
	for _, c := range s.Claims {
		if c.Namespace+"/"+c.Name != name {
			continue
		}
		if c.Spec.VolumeName != "" {
			return []Object{{Kind: KindPV, Name: c.Spec.VolumeName}}
		}
		return []Object{{Kind: KindInstallation, Name: s.Namespace}, {Kind: KindVolume, Name: "pvc-" + string(c.UID)}}
	}
	return nil
}

// usedByPod returns the claims of a pod and its node.
func (s *Snapshot) usedByPod(o Object) []Object {
	var used []Object
	if o.Node != "" {
		used = nodeObjects(o.Node)
	}
	if pod := s.userPod(o.Name); pod != nil {
		for _, claim := range claimsOf(pod) {
			used = append(used, Object{Kind: KindClaim, Name: pod.Namespace + "/" + claim})
		}
	}
	return used
}
