package explain

import (
	"cmp"
	"slices"

	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Cause is a finding that no other finding explains, with the findings that probably follow from it.
type Cause struct {
	Finding
	Consequences []Finding `json:"consequences,omitempty"`
}

// Causes explains the whole cluster like All, but in order of causes.
func Causes(s *Snapshot) []Cause { return CausesOf(s, All(s)) }

// CausesOf orders the findings of All by causes: findings that probably follow from the failure of an object below,
// such as a node or a disk, are listed as its consequences. The worst cause is first: the one with the worst finding
// among itself and its consequences, then the one with the most consequences.
func CausesOf(s *Snapshot, found []Finding) []Cause {
	roots := rootsOf(s, found)
	causes := make([]Cause, 0, len(found))
	at := map[int]int{} // the index in causes of a finding that has no cause
	for i, f := range found {
		if roots[i] == i {
			at[i] = len(causes)
			causes = append(causes, Cause{Finding: f})
		}
	}
	for i, f := range found {
		if roots[i] != i {
			c := &causes[at[roots[i]]]
			c.Consequences = append(c.Consequences, f)
		}
	}
	slices.SortStableFunc(causes, func(a, b Cause) int {
		return cmp.Or(cmp.Compare(a.worst(), b.worst()), cmp.Compare(len(b.Consequences), len(a.Consequences)),
			cmp.Compare(layer(a.Object.Kind), layer(b.Object.Kind)))
	})
	return causes
}

// worst returns the rank of the worst finding of a cause.
func (c Cause) worst() int {
	rank := c.Severity.rank()
	for _, f := range c.Consequences {
		rank = min(rank, f.Severity.rank())
	}
	return rank
}

// rootsOf returns for each finding the index of the finding that explains it; its own index if no finding explains it.
func rootsOf(s *Snapshot, found []Finding) []int {
	var blocking []int
	for i, f := range found {
		if blocks(s, f) {
			blocking = append(blocking, i)
		}
	}
	roots := make([]int, len(found))
	for i, f := range found {
		roots[i] = i
		below := s.restsOn(f.Object)
		for _, j := range blocking {
			c := found[j]
			isLower := layer(c.Object.Kind) < layer(f.Object.Kind) && slices.Contains(below, c.Object)
			if isLower && (roots[i] == i || layer(c.Object.Kind) < layer(found[roots[i]].Object.Kind)) {
				roots[i] = j
			}
		}
	}
	for i := range roots { // a cause is of a lower layer than its consequence, so this ends
		for roots[roots[i]] != roots[i] {
			roots[i] = roots[roots[i]]
		}
	}
	return roots
}

// layers are the kinds of objects from the lowest layer, on which all others rest, to the highest.
var layers = []Kind{
	KindInstallation, KindNode, KindInstanceManager, KindDisk, KindReplica, KindEngine, KindVolume, KindTicket,
	KindSnapshot, KindShareManager, KindPV, KindClaim, KindPod,
}

// layer returns the position of a kind in layers. A setting has none: no other object fails with it.
func layer(k Kind) int {
	if i := slices.Index(layers, k); i >= 0 {
		return i
	}
	return len(layers)
}

// blocks reports whether the problem of a finding can be the cause of problems of objects that rest on its object. For
// example, a missing NFS client of a node does not stop the node's disks.
func blocks(s *Snapshot, f Finding) bool {
	isBad := f.Severity == Broken || f.Severity == Warning
	switch f.Object.Kind {
	case KindInstallation, KindShareManager, KindTicket:
		return isBad
	case KindNode:
		n := s.node(f.Object.Name)
		return f.Reason == "NodeMissing" || n != nil && isBad && f.Reason == badReason(types.FindCondition(n.Status.Conditions, types.ConditionReady))
	case KindDisk:
		n := s.node(f.Object.Node)
		return f.Severity == Broken || n != nil && isBad && f.Reason == badReason(types.FindCondition(n.Status.DiskStatus[f.Object.Name].Conditions, types.ConditionReady))
	case KindInstanceManager:
		im := named(s.InstanceManagers, f.Object.Name)
		return f.Severity == Broken || f.Reason == "NotRunning" || f.Reason == "Deleting" ||
			im != nil && isBad && f.Reason == badReason(types.FindCondition(im.Status.Conditions, types.ConditionPodReady))
	case KindReplica:
		r := named(s.Replicas, f.Object.Name)
		return r != nil && isBad && f.Reason == badReason(types.FindCondition(r.Status.Conditions, types.ConditionInstanceCreation))
	case KindEngine, KindVolume, KindPV:
		return f.Severity == Broken
	case KindClaim:
		return f.Severity == Broken || f.Severity == Warning && f.Reason == "ClaimPending"
	}
	return false
}

// badReason returns the reason of a condition that is not in its good state; a text that no finding has if it is.
func badReason(c longhorn.Condition) string {
	if isWell(c) {
		return "-"
	}
	return cmp.Or(c.Reason, c.Type)
}
