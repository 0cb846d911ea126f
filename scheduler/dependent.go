package scheduler

// dependentVolumes returns the volumes that rest on a volume: the volume itself, and the volumes with a replica on a
// disk that lies on one of the returned volumes. A disk lies on a volume if its file system does. The volume's replicas
// must not be placed on a disk that lies on any of them: a write to the volume would cause a further write to it.
//
//	volume a ─ replica ─► disk d ─ its file system ─► volume b ─ replica ─► disk e ─ its file system ─► volume c
//	a rests on b, b on c; so no replica of c may be placed on d, nor on a disk that lies on a
func (o Objects) dependentVolumes(volume string) map[string]bool {
	disks := map[string][]string{} // UUIDs of the disks that lie on a volume
	for _, n := range o.Nodes {
		for _, d := range n.Status.DiskStatus {
			if d.OnVolume != "" && d.DiskUUID != "" {
				disks[d.OnVolume] = append(disks[d.OnVolume], d.DiskUUID)
			}
		}
	}
	dependents := map[string]bool{volume: true}
	if len(disks) == 0 {
		return dependents
	}
	replicas := map[string][]string{} // the volumes that have a replica on a disk, by UUID
	for _, r := range o.Replicas {
		replicas[r.Spec.DiskID] = append(replicas[r.Spec.DiskID], r.Spec.VolumeName)
	}
	for todo := []string{volume}; len(todo) > 0; todo = todo[1:] {
		for _, uuid := range disks[todo[0]] {
			for _, v := range replicas[uuid] {
				if !dependents[v] {
					dependents[v] = true
					todo = append(todo, v)
				}
			}
		}
	}
	return dependents
}
