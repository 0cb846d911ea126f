package node

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/longhorn-lep/longhorn-manager/disk"
	longhorn "github.com/longhorn-lep/longhorn-manager/k8s/apis/longhorn/v1beta2"
	"github.com/longhorn-lep/longhorn-manager/scheduler"
	"github.com/longhorn-lep/longhorn-manager/settings"
	"github.com/longhorn-lep/longhorn-manager/types"
)

// Input is the daemon's knowledge about its node.
type Input struct {
	Node     *longhorn.Node
	KubeNode *corev1.Node           // nil: not known, which changes nothing
	Records  map[string]disk.Record // of the disks of Node's spec
	Replicas []*longhorn.Replica    // of this node
	Settings scheduler.Settings
	// CordonedTakesCopies: a cordoned node still gets new replicas.
	CordonedTakesCopies bool
	// Claims are the claims of the disks that diskVerdicts accepts. A missing claim is not held.
	Claims map[string]Claim
	// DataPlane is the report of this node's instance manager.
	DataPlane DataPlane
	// Environment is nil if it was not read. In that case its conditions stay.
	Environment *Environment
	// NFSClientID is the identifier of the node's NFS client. It is nil if it was not read; in that case the status
	// keeps the last one.
	NFSClientID *string
}

// Claim says whether this node has the claim to an accepted disk in the whole cluster.
type Claim struct {
	Held   bool
	Reason string // of a disk that is not held
	Gist   string // a clause for messages
}

// Plan is the result of an Input.
type Plan struct {
	// CreateConfigs names the new disks that lack only a UUID file. After these files are created, the disks must be
	// scanned and planned again.
	CreateConfigs []string
	Status        longhorn.NodeStatus
	// Flipped are the conditions with a changed status.
	Flipped []longhorn.Condition
}

// plan decides the daemon's part of the status and leaves the rest unchanged.
func plan(in Input, now time.Time) Plan {
	var p Plan
	p.Status = *in.Node.Status.DeepCopy()
	p.Status.DiskStatus = make(map[string]longhorn.DiskStatus, len(in.Node.Spec.Disks))
	if in.KubeNode != nil {
		p.Status.Region = in.KubeNode.Labels[types.LabelTopologyRegion]
		p.Status.Zone = in.KubeNode.Labels[types.LabelTopologyZone]
		p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, schedulable(in.KubeNode, in.CordonedTakesCopies), now)
	}
	if in.Environment != nil {
		if len(in.Environment.Addresses) > 0 {
			p.Status.Addresses = in.Environment.Addresses
		}
		for _, c := range environmentConditions(in.Node.Name, *in.Environment) {
			p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, c, now)
		}
	}
	if in.NFSClientID != nil {
		p.Status.NFSClientID = *in.NFSClientID
	}
	if in.DataPlane.Answers {
		p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, deviceSuccession(in.Node.Name, in.DataPlane), now)
		if in.DataPlane.DeviceKind != "" {
			p.Status.Conditions, _ = types.SetCondition(p.Status.Conditions, kernelNBDClient(in.Node.Name, in.DataPlane), now)
		}
	}
	p.Flipped = types.FlippedConditions(in.Node.Status.Conditions, p.Status.Conditions)

	verdicts := diskVerdicts(in)
	for _, name := range sortedDisks(in.Node) {
		v, before := verdicts[name], in.Node.Status.DiskStatus[name]
		if v.CreateConfig {
			p.CreateConfigs = append(p.CreateConfigs, name)
		}
		status := diskStatus(in, name, answering(in, name, claimed(in, name, v)), now)
		p.Flipped = append(p.Flipped, types.FlippedConditions(before.Conditions, status.Conditions)...)
		p.Status.DiskStatus[name] = status
	}
	return p
}

// diskVerdicts asks package disk which directories contain the expected disks.
func diskVerdicts(in Input) map[string]disk.Verdict {
	spec := make(map[string]disk.SpecDisk, len(in.Node.Spec.Disks))
	known := make(map[string]disk.Known, len(in.Node.Spec.Disks))
	for name, d := range in.Node.Spec.Disks {
		status := in.Node.Status.DiskStatus[name]
		spec[name] = disk.SpecDisk{Path: d.Path, MayBeOnVolume: in.DataPlane.mayUse(status)}
		known[name] = disk.Known{
			UUID:  status.DiskUUID,
			Ready: types.IsConditionTrue(status.Conditions, types.ConditionReady),
		}
	}
	return disk.Match(in.Node.Name, spec, known, in.Records)
}

// claimed is the next step for a disk that this node accepts: the node must have its claim in the whole cluster. A
// refused disk keeps its recorded UUID, if any.
func claimed(in Input, name string, v disk.Verdict) disk.Verdict {
	if !v.Accept {
		return v
	}
	c, ok := in.Claims[name]
	if !ok {
		c = Claim{Reason: disk.ReasonNoDiskInfo, Gist: "the manager has not claimed the disk in the cluster yet"}
	}
	if c.Held {
		return v
	}
	return disk.Refused(in.Node.Name, name, in.Node.Spec.Disks[name].Path, in.Node.Status.DiskStatus[name].DiskUUID, c.Reason, c.Gist)
}

// answering is the last step for a disk that is accepted: it must answer the data plane, which does more with it than
// examine it. A disk that hangs must get no further requests.
func answering(in Input, name string, v disk.Verdict) disk.Verdict {
	path := in.Node.Spec.Disks[name].Path
	message, hanging := in.DataPlane.HangingDisks[filepath.Clean(path)]
	if !v.Accept || !hanging {
		return v
	}
	return disk.Refused(in.Node.Name, name, path, v.UUID, types.ReasonDiskNotResponding, message)
}

// holderGone reports whether the disk that claimed a UUID no longer exists. This is so in three cases: the node does
// not exist (nil), the node's spec has no disk with that name, or that disk has another UUID now. A node that is not
// ready, or being deleted, still exists.
func holderGone(n *longhorn.Node, name, uuid string) bool {
	if n == nil {
		return true
	}
	if _, ok := n.Spec.Disks[name]; !ok {
		return true
	}
	recorded := n.Status.DiskStatus[name].DiskUUID
	return recorded != "" && !strings.EqualFold(recorded, uuid)
}

// schedulable says whether the node gets new replicas. It gets none while its Kubernetes node is cordoned, unless the
// setting disable-scheduling-on-cordoned-node is false.
func schedulable(n *corev1.Node, cordonedTakesCopies bool) longhorn.Condition {
	if n.Spec.Unschedulable && cordonedTakesCopies {
		return longhorn.Condition{
			Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue,
			Message: fmt.Sprintf("Kubernetes node %s is cordoned, but gets new replicas because setting %s is false", n.Name, settings.DisableSchedulingOnCordoned),
		}
	}
	if n.Spec.Unschedulable {
		return longhorn.Condition{
			Type: types.ConditionSchedulable, Status: longhorn.ConditionFalse,
			Reason: types.ReasonKubernetesNodeCordoned, Message: "Kubernetes node " + n.Name + " is cordoned",
		}
	}
	return longhorn.Condition{
		Type: types.ConditionSchedulable, Status: longhorn.ConditionTrue,
		Message: "Kubernetes node " + n.Name + " is not cordoned",
	}
}

// diskStatus is the whole status of one disk. A disk that is not accepted keeps its
// recorded UUID and shows no figures.
func diskStatus(in Input, name string, v disk.Verdict, now time.Time) longhorn.DiskStatus {
	spec, before := in.Node.Spec.Disks[name], in.Node.Status.DiskStatus[name]
	after := longhorn.DiskStatus{
		Conditions:       before.Conditions,
		DiskUUID:         v.UUID,
		DiskName:         name,
		DiskPath:         spec.Path,
		Type:             longhorn.DiskTypeFilesystem,
		ScheduledReplica: map[string]int64{},
	}
	if v.UUID == before.DiskUUID {
		// also while the disk is not accepted, so that the scheduler creates no circle in that time
		after.OnVolume = before.OnVolume
	}
	ready := longhorn.Condition{Type: types.ConditionReady, Status: longhorn.ConditionFalse, Reason: v.Reason, Message: v.Message}
	if v.Accept {
		ready.Status = longhorn.ConditionTrue
		r := in.Records[name]
		after.FSType, after.StorageMaximum, after.OnVolume = r.FSType, r.StorageMaximum, r.OnVolume
		after.ScheduledReplica, after.StorageScheduled = scheduled(in.Replicas, v.UUID)
		after.StorageAvailable = steadyAvailable(in, name, before, after, r.StorageAvailable)
	}
	if saidByLeader(in.Node.Status.Conditions, before.Conditions) {
		return after
	}
	room := hasRoom(in, name, after, v.Accept)
	after.Conditions, _ = types.SetCondition(after.Conditions, ready, now)
	after.Conditions, _ = types.SetCondition(after.Conditions, room, now)
	if v.Accept {
		after.Conditions = withEmptied(in, name, after, now)
	}
	return after
}

// scheduled adds up the replicas that are placed on a disk, at their full size.
func scheduled(replicas []*longhorn.Replica, diskUUID string) (byName map[string]int64, sum int64) {
	byName = map[string]int64{}
	for _, r := range replicas {
		if r.Spec.DiskID == diskUUID {
			byName[r.Name] = int64(r.Spec.VolumeSize)
			sum += int64(r.Spec.VolumeSize)
		}
	}
	return byName, sum
}

// steadyAvailable keeps the recorded figure of free space while the new one differs by less than 1 % of the disk and
// changes nothing for placement. So a busy disk does not cause a write of the status at every scan.
func steadyAvailable(in Input, name string, before, after longhorn.DiskStatus, fresh int64) int64 {
	difference := max(fresh-before.StorageAvailable, before.StorageAvailable-fresh)
	if difference >= after.StorageMaximum/100 || before.StorageMaximum != after.StorageMaximum {
		return fresh
	}
	after.StorageAvailable = fresh
	byFresh := hasRoom(in, name, after, true)
	after.StorageAvailable = before.StorageAvailable
	if byFresh.Status != hasRoom(in, name, after, true).Status {
		return fresh
	}
	return before.StorageAvailable
}

// hasRoom is the disk's Schedulable condition.
func hasRoom(in Input, name string, status longhorn.DiskStatus, ready bool) longhorn.Condition {
	ok, reason, message := scheduler.DiskSchedulable(in.Node.Name, scheduler.Disk{
		Name: name, UUID: status.DiskUUID, Path: status.DiskPath, Ready: ready,
		StorageMaximum:   status.StorageMaximum,
		StorageAvailable: status.StorageAvailable,
		StorageReserved:  in.Node.Spec.Disks[name].StorageReserved,
		StorageScheduled: status.StorageScheduled,
	}, in.Settings)
	// of an earlier release, which accepted it
	if ok && disk.InMemory(status.FSType) {
		ok, reason = false, disk.ReasonDiskInMemory
		message = fmt.Sprintf("Disk %s(%s) on node %s gets no new replicas: its file system (%s) is in memory, and a restart of the node loses all replicas on it. "+
			"Its replicas are still served; set evictionRequested to move them to other disks", name, status.DiskPath, in.Node.Name, status.FSType)
	}
	c := longhorn.Condition{Type: types.ConditionSchedulable, Status: longhorn.ConditionFalse, Reason: reason, Message: message}
	if ok {
		c.Status = longhorn.ConditionTrue
	}
	return c
}
