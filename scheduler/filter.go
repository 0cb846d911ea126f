package scheduler

import (
	"fmt"
	"slices"
	"strings"

	"github.com/longhorn-lep/longhorn-manager/types"
)

// candidate is a disk with its node, both unchanged from the snapshot.
type candidate struct {
	node *Node
	disk *Disk
}

// filter returns the reason why a disk cannot take the replica of the request, or two empty strings. A filter checks
// one disk alone; anti-affinity checks the relation between replicas.
type filter func(c candidate, req Request, s Settings) (reason, message string)

// filters run in this order. The first filter that objects rejects the disk.
var filters = []filter{
	nodeAvailable,
	hardNodeAffinity,
	instanceManagerRunning,
	diskAvailable,
	notOnItself,
	nodeTags,
	diskTags,
	enoughStorage,
	usedBelow,
}

func nodeAvailable(c candidate, _ Request, _ Settings) (reason, message string) {
	switch n := c.node; {
	case n.Deleting:
		return ReasonNodesUnavailable, "the node is being deleted"
	case !n.Ready:
		return ReasonNodesUnavailable, "the node is not ready"
	case !n.Schedulable:
		return ReasonNodesUnavailable, "the node is not schedulable: its condition Schedulable is not True"
	case !n.AllowScheduling:
		return ReasonNodesUnavailable, "allowScheduling of the node is false"
	}
	return "", ""
}

func hardNodeAffinity(c candidate, req Request, _ Settings) (reason, message string) {
	if req.HardNodeAffinity != "" && req.HardNodeAffinity != c.node.Name {
		return ReasonHardAffinity, "the replica must be on node " + req.HardNodeAffinity
	}
	return "", ""
}

func instanceManagerRunning(c candidate, _ Request, _ Settings) (reason, message string) {
	if !c.node.InstanceManagerRunning {
		return ReasonNodesUnavailable, "the node's instance manager is not running"
	}
	return "", ""
}

func diskAvailable(c candidate, _ Request, _ Settings) (reason, message string) {
	switch d := c.disk; {
	case !d.AllowScheduling:
		return ReasonDisksUnavailable, "allowScheduling of the disk is false"
	case d.EvictionRequested:
		return ReasonDisksUnavailable, "the disk is being evicted"
	case !d.Ready:
		return ReasonDisksUnavailable, "the disk is not ready"
	case d.UUID == "":
		return ReasonDisksUnavailable, "the disk has no UUID yet"
	}
	return "", ""
}

func notOnItself(c candidate, _ Request, _ Settings) (reason, message string) {
	if c.disk.Circular {
		return ReasonOnItself, fmt.Sprintf("the disk is stored on volume %s: with a replica of this volume on the disk, the volume would depend on itself", c.disk.OnVolume)
	}
	return "", ""
}

func nodeTags(c candidate, req Request, s Settings) (reason, message string) {
	return tags("node", c.node.Tags, req.NodeSelector, s.AllowEmptyNodeSelector)
}

func diskTags(c candidate, req Request, s Settings) (reason, message string) {
	return tags("disk", c.disk.Tags, req.DiskSelector, s.AllowEmptyDiskSelector)
}

func tags(kind string, have, selector []string, allowEmptySelector bool) (reason, message string) {
	if len(selector) == 0 {
		if len(have) > 0 && !allowEmptySelector {
			return ReasonTagsNotFulfilled,
				fmt.Sprintf("the volume has no %s selector, the %s has tags [%s], and setting allow-empty-%s-selector-volume is false", kind, kind, join(have), kind)
		}
		return "", ""
	}
	var lacking []string
	for _, tag := range selector {
		if !slices.Contains(have, tag) {
			lacking = append(lacking, tag)
		}
	}
	if len(lacking) > 0 {
		return ReasonTagsNotFulfilled, fmt.Sprintf("the %s lacks tags [%s]", kind, join(lacking))
	}
	return "", ""
}

func join(list []string) string {
	return strings.Join(slices.Sorted(slices.Values(list)), ", ")
}

// enoughStorage applies the rules of shortage again, with the request's sizes and the placements of this pass. It
// checks the disk's Schedulable condition last. The condition is the result of the same rule without sizes, at an
// earlier time, so the present numbers explain more.
func enoughStorage(c candidate, req Request, s Settings) (reason, message string) {
	if lack := shortage(*c.disk, s, req.SizeBytes, req.ActualSizeBytes); lack != "" {
		return ReasonInsufficientStorage, lack
	}
	if !c.disk.Schedulable {
		return ReasonDisksUnavailable, "the disk is not schedulable: its condition Schedulable is not True"
	}
	return "", ""
}

// usedBelow applies to a replica that leaves a disk because too much of it is in use. It rejects a disk that would then
// be in the same state.
func usedBelow(c candidate, req Request, _ Settings) (reason, message string) {
	d := c.disk
	if req.UsedBelowPercent > 0 && UsesAtLeast(req.UsedBelowPercent, d.StorageMaximum, d.StorageAvailable-req.ActualSizeBytes) {
		return ReasonInsufficientStorage, fmt.Sprintf("storageAvailable %s - required %s must leave more than %d%% of storageMaximum %s",
			types.SizeText(d.StorageAvailable), types.SizeText(req.ActualSizeBytes), 100-req.UsedBelowPercent, types.SizeText(d.StorageMaximum))
	}
	return "", ""
}
