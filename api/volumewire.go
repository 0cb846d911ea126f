package api

import (
	"cmp"
	"strconv"

	v1 "github.com/longhorn-lep/longhorn-manager/api/v1"
	"github.com/longhorn-lep/longhorn-manager/manager"
	"github.com/longhorn-lep/longhorn-manager/types"
)

func volumeOf(view manager.VolumeView) *v1.Volume {
	v := view.Volume
	wire := &v1.Volume{
		Resource:                v1.Resource{ID: v.Name},
		VolumeLacking:           v1.NoFeatures(),
		KubernetesStatus:        kubernetesStatusOf(view),
		Image:                   view.Image,
		CurrentImage:            view.Image,
		Name:                    v.Name,
		Size:                    decimal(int64(v.Spec.Size)),
		Frontend:                string(v.Spec.Frontend),
		DisableFrontend:         v.Spec.DisableFrontend,
		DataLocality:            string(v.Spec.DataLocality),
		AccessMode:              string(v.Spec.AccessMode),
		DataEngine:              string(v.Spec.DataEngine),
		NumberOfReplicas:        v.Spec.NumberOfReplicas,
		VolumeOptions:           optionsOf(v),
		StaleReplicaTimeout:     v.Spec.StaleReplicaTimeout,
		DiskSelector:            notNil(v.Spec.DiskSelector),
		NodeSelector:            notNil(v.Spec.NodeSelector),
		RevisionCounterDisabled: v.Spec.RevisionCounterDisabled,
		State:                   string(v.Status.State),
		Robustness:              string(view.Robustness),
		ExpansionRequired:       view.ExpansionRequired,
		Created:                 v.CreationTimestamp.UTC().String(),
		LastAttachedBy:          v.Spec.LastAttachedBy,
		LastDegradedAt:          v.Status.LastDegradedAt,
		Conditions:              conditionsOf(v.Status.Conditions),
		StrictLocalNodes:        view.StrictLocalNodes,
		ShareEndpoint:           v.Status.ShareEndpoint,
		ShareState:              string(v.Status.ShareState),
		Ready:                   view.Ready,
		NotReadyMessage:         view.NotReadyMessage,
		Replicas:                make([]v1.Replica, 0, len(view.Replicas)),
		Controllers:             make([]v1.Controller, 0, len(view.Engines)),
		RebuildStatus:           make([]v1.RebuildStatus, 0, len(view.Rebuilds)),
		VolumeAttachment:        *attachmentsOf(view.Attachment),
	}
	if view.Attachment == nil {
		wire.VolumeAttachment.ID, wire.VolumeAttachment.Volume = v.Name, v.Name
	}
	for _, r := range view.Replicas {
		if !r.Removed {
			wire.Replicas = append(wire.Replicas, replicaOf(r, view.Image))
		}
	}
	for i := range view.Unplaced {
		wire.Replicas = append(wire.Replicas, unplacedReplica(v.Name, i))
	}
	for _, e := range view.Engines {
		wire.Controllers = append(wire.Controllers, controllerOf(e, v, view.Image))
	}
	for _, r := range view.Rebuilds {
		wire.RebuildStatus = append(wire.RebuildStatus, v1.RebuildStatus{
			Replica: r.Replica, Error: r.Error, IsRebuilding: r.IsRebuilding, Progress: r.Progress, State: r.State,
			CopyBytes: r.CopyBytes, Partial: r.Partial, FromReplicaList: []string{},
		})
	}
	for _, p := range view.Purges {
		wire.PurgeStatus = append(wire.PurgeStatus, purgeStatusOf(p))
	}
	return wire
}

// purgeStatusOf shows what replicas do without a request in the words of Longhorn's purges.
func purgeStatusOf(p manager.PurgeView) v1.PurgeStatus {
	if p.IsDone {
		return v1.PurgeStatus{Replica: p.Replica, Progress: 100, State: "complete"}
	}
	return v1.PurgeStatus{Replica: p.Replica, IsPurging: true, State: "in_progress"}
}

func replicaOf(r manager.ReplicaView, image string) v1.Replica {
	wire := v1.Replica{
		Name:                r.Name,
		Image:               image,
		CurrentImage:        runningImage(r.Status.InstanceStatus, image),
		HostID:              r.Spec.NodeID,
		Address:             r.Status.IP,
		Running:             isRunning(r.Status.InstanceStatus),
		InstanceManagerName: r.Status.InstanceManagerName,
		DiskID:              r.Spec.DiskID,
		DiskPath:            r.Spec.DiskPath,
		Mode:                r.Mode,
		FailedAt:            r.Spec.FailedAt,
		DataEngine:          string(r.Spec.DataEngine),
	}
	if r.Spec.DiskPath != "" && r.Spec.DataDirectoryName != "" {
		wire.DataPath = types.ReplicaDataPath(r.Spec.DiskPath, r.Spec.DataDirectoryName)
	}
	return wire
}

// controllerOf returns an engine as a v1.Controller. An engine that does not run has the size with which it will start:
// clients read it to see whether a detached volume has grown.
func controllerOf(e *manager.Engine, v *manager.Volume, image string) v1.Controller {
	size := int64(e.Status.CurrentSize)
	if !isRunning(e.Status.InstanceStatus) {
		size = cmp.Or(int64(v.Status.Size), int64(v.Spec.Size))
	}
	return v1.Controller{
		Name:                e.Name,
		Image:               image,
		CurrentImage:        runningImage(e.Status.InstanceStatus, image),
		HostID:              e.Spec.NodeID,
		Address:             e.Status.IP,
		Running:             isRunning(e.Status.InstanceStatus),
		InstanceManagerName: e.Status.InstanceManagerName,
		Size:                decimal(size),
		ActualSize:          decimal(v.Status.ActualSize),
		Endpoint:            e.Status.Endpoint,
		IsExpanding:         e.Status.IsExpanding,
		LastExpansionError:  e.Status.LastExpansionError, LastExpansionFailedAt: e.Status.LastExpansionFailedAt,
	}
}

// attachmentsOf shows no tickets if there is no VolumeAttachment.
func attachmentsOf(va *manager.VolumeAttachment) *v1.VolumeAttachment {
	wire := &v1.VolumeAttachment{
		Resource:    v1.Resource{Type: v1.TypeVolumeAttachment, Links: map[string]string{}, Actions: map[string]string{}},
		Attachments: map[string]v1.Attachment{},
	}
	if va == nil {
		return wire
	}
	wire.ID, wire.Volume = va.Name, va.Spec.Volume
	for id, ticket := range va.Spec.AttachmentTickets {
		attachment := v1.Attachment{
			AttachmentID:   ticket.ID,
			AttachmentType: string(ticket.Type),
			NodeID:         ticket.NodeID,
			Parameters:     notNilMap(ticket.Parameters),
			Satisfied:      manager.IsSatisfied(va, id),
			Conditions:     []v1.Condition{},
		}
		for _, c := range va.Status.AttachmentTicketStatuses[id].Conditions {
			attachment.Conditions = append(attachment.Conditions, conditionOf(c))
		}
		wire.Attachments[id] = attachment
	}
	return wire
}

// unplacedReplica returns the entry for a replica that the volume should have and that has no place; no object has its
// name.
func unplacedReplica(volume string, i int) v1.Replica {
	return v1.Replica{Name: volume + "-r-unplaced-" + strconv.Itoa(i+1), DataEngine: "v1"}
}

// runningImage returns the image of a running instance; empty if it does not run.
func runningImage(s manager.InstanceStatus, image string) string {
	if isRunning(s) {
		return image
	}
	return ""
}

// kubernetesStatusOf returns the claim and the pods that use a volume. Without such pods it returns the last ones.
func kubernetesStatusOf(view manager.VolumeView) v1.KubernetesStatus {
	last := view.Volume.Status.KubernetesStatus
	status := v1.KubernetesStatus{
		PVName: last.PVName, Namespace: last.Namespace, PVCName: last.PVCName, LastPVCRefAt: last.LastPVCRefAt,
		WorkloadsStatus: make([]v1.WorkloadStatus, 0, len(view.Workloads)),
	}
	if pv := view.PersistentVolume; pv != nil {
		status.PVName, status.PVStatus = pv.Name, string(pv.Status.Phase)
		if claim := pv.Spec.ClaimRef; claim != nil {
			status.Namespace, status.PVCName = claim.Namespace, claim.Name
		}
	}
	for _, w := range view.Workloads {
		status.WorkloadsStatus = append(status.WorkloadsStatus, v1.WorkloadStatus{
			PodName: w.Pod, PodStatus: w.Phase, WorkloadName: w.Owner, WorkloadType: w.OwnerKind,
		})
	}
	if len(view.Workloads) > 0 || last.LastPodRefAt == "" {
		return status
	}
	status.LastPodRefAt = last.LastPodRefAt
	for _, w := range last.WorkloadsStatus {
		status.WorkloadsStatus = append(status.WorkloadsStatus, v1.WorkloadStatus(w))
	}
	return status
}

func isRunning(s manager.InstanceStatus) bool { return s.CurrentState == "running" }

func decimal(n int64) string { return strconv.FormatInt(n, 10) }
