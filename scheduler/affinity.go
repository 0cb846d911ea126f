package scheduler

// replicaUse is the degree to which the volume's replicas take a node or zone.
type replicaUse int

const (
	unused       replicaUse = iota // no replica
	onlyEvicting                   // replicas, all of which must leave
	used                           // a replica that stays
)

// usage counts the volume's replicas by node, zone and disk.
type usage struct {
	nodes, zones map[string]replicaCount
	disks        map[string]int // by UUID
}

type replicaCount struct{ all, staying int }

func (t replicaCount) use() replicaUse {
	switch {
	case t.all == 0:
		return unused
	case t.staying == 0:
		return onlyEvicting
	}
	return used
}

func (t replicaCount) add(r Replica) replicaCount {
	t.all++
	if !r.Evicting {
		t.staying++
	}
	return t
}

func usageOf(s Snapshot) usage {
	u := usage{nodes: map[string]replicaCount{}, zones: map[string]replicaCount{}, disks: map[string]int{}}
	zoneOf := make(map[string]string, len(s.Nodes))
	for _, n := range s.Nodes {
		zoneOf[n.Name] = n.Zone
	}
	for _, r := range s.Replicas {
		u.nodes[r.Node] = u.nodes[r.Node].add(r)
		u.disks[r.DiskUUID]++
		if zone, ok := zoneOf[r.Node]; ok {
			u.zones[zone] = u.zones[zone].add(r)
		}
	}
	return u
}

// forbidden is the stage of a place that anti-affinity does not allow.
const forbidden = -1

// stage returns the stage of a candidate's node in the order in which anti-affinity tries nodes. A lower stage is
// exhausted before the next one is tried.
//
//	             stage 0            stage 1                    stage 2
//	zone hard    both unused        node unused, zone only
//	                                with evicting replicas
//	zone soft,   both unused        node unused                node only with
//	node hard                                                  evicting replicas
//	both soft    both unused        node unused                any node
func (u usage) stage(c candidate, s Settings) int {
	node := u.nodes[c.node.Name].use()
	zone := u.zones[c.node.Zone].use()
	switch {
	case node == unused && zone == unused:
		return 0
	case !s.ZoneSoftAntiAffinity:
		if node == unused && zone == onlyEvicting {
			return 1
		}
		return forbidden
	case node == unused:
		return 1
	case s.NodeSoftAntiAffinity || node == onlyEvicting:
		return 2
	}
	return forbidden
}

// antiAffinity returns the reason why the volume's other replicas forbid a place, or two empty strings.
func (u usage) antiAffinity(c candidate, s Settings) (reason, message string) {
	if u.stage(c, s) == forbidden {
		if !s.ZoneSoftAntiAffinity && u.nodes[c.node.Name].use() == unused {
			return ReasonAntiAffinity, "another replica of the volume is in the node's zone " + zoneName(c.node.Zone)
		}
		return ReasonAntiAffinity, "another replica of the volume is on the node"
	}
	if !s.DiskSoftAntiAffinity && u.disks[c.disk.UUID] > 0 {
		return ReasonAntiAffinity, "another replica of the volume is on the disk"
	}
	return "", ""
}

func zoneName(zone string) string {
	if zone == "" {
		return "(all nodes without a zone label form one zone)"
	}
	return zone
}
